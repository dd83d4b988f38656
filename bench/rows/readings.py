"""One reading of a small process: the smallest file, so the dearest call around it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import floors
from harness import Budget, Contender, Row, Size, Unavailable

import cowlab

MICRO = 1e6


@contextmanager
def sleeper(first: str = "", *args: str) -> Iterator[int]:
    """The pid of a Python that waits, after it did what it is told first."""
    code = f"import sys; {first}\nprint(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.communicate(b"\n")


def timed(call: Callable[[], object], loops: int) -> float:
    """Seconds of this thread's CPU for one call, system calls included."""
    start = time.thread_time()
    for _ in range(loops):
        call()
    return (time.thread_time() - start) / loops


@contextmanager
def _reading(name: str, size: Size) -> Iterator[Mapping[str, Contender]]:
    ours = getattr(cowlab, name)
    with sleeper() as pid:
        try:
            ours(pid)
        except cowlab.CowlabError as error:
            raise Unavailable(str(error)) from None
        loops = size.loops
        contenders = {
            "cowlab": lambda: timed(lambda: ours(pid), loops) * MICRO,
            "floor": lambda: floors.read_file(pid, name, loops) * MICRO,
        }
        try:
            import psutil
        except ImportError:
            pass
        else:
            process = psutil.Process(pid)
            todays = {
                "smaps_rollup": process.memory_full_info,
                "smaps": process.memory_maps,
            }[name]
            contenders[f"psutil.{todays.__name__}"] = lambda: (
                timed(todays, loops) * MICRO
            )
        yield contenders


ROWS = (
    Row(
        "smaps_rollup",
        "smaps_rollup() of a bare Python",
        "us",
        partial(_reading, "smaps_rollup"),
        Budget(1.15),
    ),
    Row(
        "smaps",
        "smaps() of a bare Python",
        "us",
        partial(_reading, "smaps"),
    ),
)
