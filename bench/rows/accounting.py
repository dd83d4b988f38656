"""What it costs to account for every page of a large parent's child."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import floors
from harness import Budget, Contender, Row, Size, Unavailable

import cowlab
from cowlab import host

MILLI = 1e3
ROLLUPS = 2


def _nothing() -> None:
    """The task: all that is left is the accounting."""


@contextmanager
def memory(size: int) -> Iterator[mmap.mmap]:
    """That much private memory, every page of it written, in small pages."""
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.madvise(mmap.MADV_NOHUGEPAGE)
        chunk = b"\1" * min(size, 1 << 20)
        for at in range(0, size, len(chunk)):
            block[at : at + len(chunk)] = chunk
        yield block


@contextmanager
def sleeping_child() -> Iterator[int]:
    """A fork of this process that waits."""
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _require_measure() -> None:
    if not host().pagemap:
        raise Unavailable(str(host().pagemap))


@contextmanager
def _account(size: Size) -> Iterator[Mapping[str, Contender]]:
    """Both figures are for one reading of the page map of the whole child."""
    _require_measure()
    with memory(size.memory), sleeping_child() as child:

        def ours() -> float:
            observer = cowlab.measure(_nothing).observer
            return observer.reading_seconds / observer.page_map_reads * MILLI

        yield {"cowlab": ours, "floor": lambda: floors.page_map(child) * MILLI}


@contextmanager
def _whole(size: Size) -> Iterator[Mapping[str, Contender]]:
    _require_measure()
    with memory(size.memory):
        reads = cowlab.measure(_nothing).observer.page_map_reads

        def ours() -> float:
            start = time.perf_counter()
            cowlab.measure(_nothing)
            return (time.perf_counter() - start) * MILLI

        yield {
            "cowlab": ours,
            "floor": lambda: floors.measure(reads, ROLLUPS) * MILLI,
        }


ROWS = (
    Row(
        "accounting",
        "page accounting of 1 GiB: each reading",
        "ms",
        _account,
        Budget(1.25),
        heavy=True,
    ),
    Row(
        "measure",
        "measure() of a parent of 1 GiB",
        "ms",
        _whole,
        heavy=True,
    ),
)
