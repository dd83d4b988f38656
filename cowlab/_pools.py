"""pymalloc's arenas and pools, of this process or of another, exactly."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

from cowlab import _native
from cowlab._errors import Unsupported
from cowlab._table import ArenaRow, PoolRow, Table

__all__ = [
    "BLOCK_FREE",
    "BLOCK_USED",
    "BLOCK_VIRGIN",
    "Heap",
    "Pools",
    "SizeClass",
    "arenas",
    "pools",
    "scan",
]

BLOCK_USED, BLOCK_FREE, BLOCK_VIRGIN = range(3)
"""How a block stands. A block that a trim or a seal retired shows as used here: it can
only be counted, by pool, not told from one in use."""

RESET = 0xFFFF
"""The ``size_class`` of an empty pool that a trim has reset."""


class SizeClass(NamedTuple):
    """All pools of one block size that have a block in use. Blocks, and bytes."""

    size_class: int
    block_size: int
    pools: int
    used: int
    free: int
    virgin: int
    retired: int
    resident: int


class Pools(Table[PoolRow]):
    """Every pool, by address. With ``blocks=True``, also how each block stands."""

    __slots__ = ("_states",)

    def __init__(self, data: Any, states: Any) -> None:
        super().__init__(data, PoolRow, "Q" * 3 + "I" * 10 + "Q")
        self._states = memoryview(states)

    def states(self, pool: PoolRow) -> memoryview:
        """BLOCK_USED, BLOCK_FREE or BLOCK_VIRGIN for each block of a pool, in order.

        Block i begins at ``pool.address + 48 + i * pool.block_size``. Empty where
        the blocks were not asked for.
        """
        return self._states[pool.first : pool.first + pool.capacity]

    def by_size_class(self, interpreter: int | None = None) -> list[SizeClass]:
        """The pools in use, summed by size class; of one interpreter or of all.

        Equal to what ``sys._debugmallocstats()`` prints for that interpreter; its
        "avail blocks" are free + virgin + retired.
        """
        sums: dict[int, list[int]] = {}
        for pool in self:
            if pool.used == 0 or interpreter not in (None, pool.interpreter):
                continue
            figures = sums.setdefault(pool.size_class, [0] * 6)
            for i, value in enumerate(
                (1, pool.used, pool.free, pool.virgin, pool.retired, pool.resident)
            ):
                figures[i] += value
        return [SizeClass(key, (key + 1) * 16, *sums[key]) for key in sorted(sums)]


@dataclass(frozen=True, slots=True)
class Heap:
    """One scan: the arenas and the pools in them, of the same moment.

    ``strays`` counts what looked like a pool and is in no interpreter's table: copies
    of pools in somebody's buffers.
    """

    arenas: Table[ArenaRow]
    pools: Pools
    strays: int


def _why_none(pid: int | None) -> str:
    if pid is None or pid == os.getpid():
        name = _native.allocator() or "one of its own"
        return (
            f"this process has no pymalloc arenas: its allocator is {name}; run it "
            "with PYTHONMALLOC=pymalloc, or without PYTHONMALLOC"
        )
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        entries = []
    prefix = b"PYTHONMALLOC="
    names = [e[len(prefix) :].decode() for e in entries if e.startswith(prefix)]
    if names:
        return (
            f"process {pid} has no pymalloc arenas: it was started with "
            f"PYTHONMALLOC={names[-1]}"
        )
    return (
        f"process {pid} has no pymalloc arenas: it is not CPython, or a free-threaded "
        "build, or it uses another allocator"
    )


def scan(pid: int | None = None, blocks: bool = False) -> Heap:
    """Arenas and pools in one pass. Errors as for ``arenas``."""
    pool_rows, arena_rows, states, strays = _native.scan_heap(pid, blocks)
    if len(pool_rows) == 0:
        raise Unsupported(_why_none(pid))
    arena_table = Table(arena_rows, ArenaRow, "Q" * 8 + "I" * 6)
    return Heap(arena_table, Pools(pool_rows, states), strays)


def arenas(pid: int | None = None) -> Table[ArenaRow]:
    """Every arena of pymalloc, by address: what is live in it, what is free.

    ``live`` is what objects and small buffers occupy, their blocks rounded up to 16
    bytes. ``free`` is what a later allocation can use and the system cannot: an arena
    goes back only when all of it is free. ``resident`` may be less than ``size``: pages
    never touched, and pages that ``trim`` gave back. ``interpreter`` numbers the
    tables of the interpreters in the process; 0 is the calling one.

    Of this process it is exact. Of another that runs meanwhile each pool is as it was
    at some moment of the scan; stop it, or read a child that waits, for exact figures.
    Reads /proc/PID/mem, maps and pagemap; pages that are not there are not touched.

    Raises Unsupported where there are no arenas (PYTHONMALLOC=malloc or mimalloc, a
    free-threaded build, not CPython), Gone, Zombie, KernelThread or Unreadable.
    """
    return scan(pid).arenas


def pools(pid: int | None = None, blocks: bool = False) -> Pools:
    """Every pool of pymalloc, by address: its size class and how its blocks stand.

    ``used``, ``free``, ``virgin`` (never used) and ``retired`` (given up by a trim or
    a seal until the pool empties) add up to ``capacity``. A pool with ``used == 0`` is
    empty: its ``size_class`` is the one that it had last, or 0xffff after a trim.
    Sources, exactness and errors as for ``arenas``.
    """
    return scan(pid, blocks).pools
