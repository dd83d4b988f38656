"""trim(): the free pages inside pinned arenas, given back to the system."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cowlab import _native

__all__ = ["TrimReport", "trim"]


@dataclass(frozen=True, slots=True)
class TrimReport:
    """What a trim gave back.

    ``pages`` and ``bytes`` are what pymalloc's pools returned; ``libc_bytes`` what
    ``malloc_trim`` returned on top of it (the fall of the resident size around the
    call), or None where it was not asked for or the C library has none.

    ``pools`` were looked at. Of these ``pools_trimmed`` are in use and gave pages
    back, ``pools_reset`` were empty, and ``pools_left`` were left alone: every free
    block that they have lies on a page that would have gone. ``blocks_retired`` free
    blocks lay on returned pages, and cannot be allocated until their pool is empty
    and is taken for another size class, or trimmed again; ``blocks_restored`` came
    back that way. ``blocks_left`` free blocks can still be allocated.
    """

    pages: int
    bytes: int
    libc_bytes: int | None
    blocks_retired: int
    blocks_restored: int
    blocks_left: int
    pools: int
    pools_trimmed: int
    pools_reset: int
    pools_left: int
    seconds: float


def _resident() -> int:
    from cowlab._smaps import smaps_rollup

    return smaps_rollup().rss or 0


def trim(libc: bool = False) -> TrimReport:
    """Give the free pages inside pinned arenas back to the system.

    One survivor pins an arena of 1 MiB, since pymalloc returns whole arenas only; but
    most of its pages hold free blocks and nothing else. Those are returned
    (MADV_DONTNEED); objects do not move, and the pools go on working with the free
    blocks that they keep. Memory that is allocated afterwards may need new arenas
    earlier: trim when a peak is over, not in a loop. ``libc=True`` also returns the
    free memory of glibc's malloc.

    Only the calling interpreter's arenas are trimmed. All its threads wait meanwhile,
    some 10 microseconds for each 16 KiB of arena. In a forked child it is safe; pages
    that are still shared with the parent stay resident there, so that little comes
    back.

    Raises Unsupported, by name, where it cannot be sound: another allocator than
    pymalloc or its debug hooks (PYTHONMALLOC, PYTHONDEVMODE), a debug build, a
    free-threaded build, a heap that is locked in memory (mlock).
    """
    start = time.perf_counter()
    figures = _native.trim_pools()
    libc_bytes = None
    if libc:
        before = _resident()
        if _native.trim_libc() is not None:
            libc_bytes = max(before - _resident(), 0)
    seconds = time.perf_counter() - start
    return TrimReport(libc_bytes=libc_bytes, seconds=seconds, **figures)
