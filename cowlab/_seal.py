"""seal(): what a child allocates goes to fresh pools, not into holes of shared ones."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["SealReport", "seal"]


@dataclass(frozen=True, slots=True)
class SealReport:
    """What a seal closed.

    ``pools`` of pymalloc had blocks in use and blocks to give. ``pools_sealed`` look
    full now; ``pools_left`` were left alone, because a sealed pool with one block in
    use could never be emptied. ``bytes_retired`` in ``blocks_retired`` free blocks are
    what it costs: they cannot be allocated until a block beside them is freed and, for
    most of them, their pool is empty. ``libc_bytes`` in ``libc_blocks`` are what was
    taken out of use in the heap of glibc's malloc, or None where it was not asked for,
    or the C library's malloc is another, or this is not the main thread (nor a child
    that another thread forked: that goes on with a heap of its own).
    """

    pools: int
    pools_sealed: int
    pools_left: int
    blocks_retired: int
    bytes_retired: int
    libc_blocks: int | None
    libc_bytes: int | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)


_held: list[object] = []  # what the last seal of libc keeps out of use


def seal(libc: bool = False) -> SealReport:
    """Make every partly used pool look full, right before a fork.

    New objects go to fresh pools from then on, in this process and in its children: a
    child's new objects no longer copy pages of the old ones. A block that is freed in a
    sealed pool opens that pool again. What is allocated after the call fills new pools
    with holes of their own: ``prepare_fork()`` installs a hook that seals again before
    each fork.

    ``libc=True`` does the same to glibc's malloc, where buffers of more than 512 bytes
    come from: its free blocks are taken out of use, until ``seal(libc=True)`` is called
    again, which gives them back first. Their whole pages go back to the system.

    Only the calling interpreter's pools are sealed. It costs as much as there are
    partly used pools, a microsecond or so for each.

    Raises Unsupported, by name, where it cannot be sound: another allocator than
    pymalloc or its debug hooks (PYTHONMALLOC, PYTHONDEVMODE), a debug build, a
    free-threaded build.
    """
    from cowlab import _native

    start = time.perf_counter()
    figures = _native.seal_pools(_native.allocator() == "pymalloc")
    blocks = size = None
    if libc:
        sealed = _native.seal_libc(*_held)
        if sealed is not None:
            blocks, size, held = sealed
            _held[:] = [held]
    return SealReport(
        **figures,
        libc_blocks=blocks,
        libc_bytes=size,
        seconds=time.perf_counter() - start,
    )
