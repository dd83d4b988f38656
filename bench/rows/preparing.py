"""What prepare_fork() costs a master before it forks: once, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness import Budget, Contender, Row, Size, Unavailable

import cowlab
from cowlab import host

# An immortal object cannot be made mortal again, hence an interpreter for each sample.
# The integers are above those that every interpreter keeps: four objects a list.
CHILD = """
import gc, sys, time
sys.path[:0] = sys.argv[3:]
import cowlab
kept = [[i, i + 1, i + 2] for i in range(1000, 1000 + int(sys.argv[2]) // 4)]
start = time.process_time()
if sys.argv[1] == "cowlab":
    cowlab.prepare_fork()
else:
    gc.collect()
    gc.freeze()
print(len(kept) * 4 / (time.process_time() - start) / 1e6)
"""


@contextmanager
def _prepare(size: Size) -> Iterator[Mapping[str, Contender]]:
    if not host().immortality:
        raise Unavailable(str(host().immortality))
    paths = [str(Path(cowlab.__file__).parents[1]), *sys.path]

    def sample(way: str) -> float:
        command = [sys.executable, "-I", "-c", CHILD, way, str(size.objects), *paths]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)

    yield {
        "cowlab": lambda: sample("cowlab"),
        "gc.collect, gc.freeze": lambda: sample("gc"),
    }


ROWS = (
    Row(
        "prepare_fork",
        "prepare_fork() of a million objects",
        "M objects/s",
        _prepare,
        Budget(4, "M objects/s", at_least=True),
        heavy=True,
    ),
)
