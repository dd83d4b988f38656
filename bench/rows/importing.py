"""What ``import cowlab`` costs a server, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness import Budget, Contender, Row, Size

import cowlab

# One reading to warm up, so that the reading's own memory is in both.
CHILD = """
import os, sys, time
sys.path[:0] = sys.argv[2:]
def private():
    fd = os.open("/proc/self/smaps_rollup", os.O_RDONLY)
    text = os.read(fd, 4096)
    os.close(fd)
    return sum(
        int(line.split()[1]) for line in text.splitlines() if line[:8] == b"Private_"
    )
private()
before, start = private(), time.perf_counter()
__import__(sys.argv[1])
seconds = time.perf_counter() - start
print(seconds, private() - before)
"""


@contextmanager
def _import_of(
    field: int, scale: float, size: Size
) -> Iterator[Mapping[str, Contender]]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "an_empty_module.py").write_text('"""Nothing."""\n')
        paths = [str(Path(cowlab.__file__).parents[1]), folder, *sys.path]

        def sample(module: str) -> float:
            command = [sys.executable, "-I", "-c", CHILD, module, *paths]
            said = subprocess.run(command, capture_output=True, text=True, check=True)
            return float(said.stdout.split()[field]) * scale

        modules = {"cowlab": "cowlab", "an empty module": "an_empty_module"}
        try:
            import psutil  # noqa: F401

            modules["psutil"] = "psutil"
        except ImportError:
            pass
        yield {
            name: lambda module=module: sample(module)
            for name, module in modules.items()
        }


ROWS = (
    Row(
        "import",
        "import cowlab: time",
        "ms",
        partial(_import_of, 0, 1e3),
        Budget(5, "ms"),
    ),
    Row(
        "import-memory",
        "import cowlab: private memory",
        "MiB",
        partial(_import_of, 1, 1 / 1024),
        Budget(1, "MiB"),
    ),
)
