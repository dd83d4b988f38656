"""What the kernel knows of single pages: the page map, runs of pages, frames."""

from __future__ import annotations

import mmap
import operator
import os
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cowlab import _native
from cowlab._errors import Unsupported, needs
from cowlab._native import Words as _Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "PageFlag",
    "PageMap",
    "PageRun",
    "Words",
    "kpagecount",
    "kpageflags",
    "page_runs",
    "pagemap",
]

PAGE = mmap.PAGESIZE

BITS = {
    "soft_dirty": 1 << 55,
    "exclusive": 1 << 56,
    "uffd_wp": 1 << 57,
    "guard": 1 << 58,
    "file": 1 << 61,
    "swapped": 1 << 62,
    "present": 1 << 63,
}
"""The named bits of a page-map entry, as the kernel's admin-guide/mm/pagemap numbers
them."""

_FIRST_KERNEL_ADDRESS = 1 << 63


class _HasEnds(Protocol):
    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


Ranges: TypeAlias = Iterable[tuple[int, int] | _HasEnds]


class Words(_Words):
    """64-bit words as the kernel gave them, read-only, with the buffer protocol.

    ``words[i]`` and ``len(words)`` work as for a list; ``memoryview(words)`` and
    ``numpy.asarray(words)`` copy nothing.
    """

    __slots__ = ()

    def numpy(self) -> NDArray[np.uint64]:
        """A read-only numpy array of these words, which copies nothing."""
        with needs("An array (memoryview() gives the same words)", "numpy"):
            import numpy
        return numpy.asarray(memoryview(self))


class PageMap(Words):
    """One word for each page of ``ranges``, in their order.

    ``present``, ``swapped``, ``exclusive``, ``file``, ``soft_dirty``, ``uffd_wp`` and
    ``guard`` are numpy arrays of booleans; ``count()`` and ``bits()`` do the same
    without numpy. A page that is neither present nor swapped has no contents yet, or is
    a file's that nobody mapped: reading the page map does not touch it.

    ``exclusive`` means that this process alone maps the page, once; it says nothing of
    who wrote it, and after a fork it can become true because the other side copied or
    left. ``file`` is true of shared anonymous memory too. Huge pages from the pool and
    the shared zero page are ``present``; the latter is never ``exclusive``.
    """

    __slots__ = ("_pid", "_ranges")

    _pid: int
    _ranges: tuple[tuple[int, int], ...]

    source = "pagemap"
    page_size = PAGE

    @property
    def pid(self) -> int:
        """The process that was read."""
        return self._pid

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """What was read: (start, end) in bytes, rounded out to whole pages."""
        return self._ranges

    def address(self, index: int) -> int:
        """Where the page of an entry begins."""
        if index < 0:
            index += len(self)
        if index >= 0:
            for start, end in self._ranges:
                pages = (end - start) // PAGE
                if index < pages:
                    return start + index * PAGE
                index -= pages
        raise IndexError("no entry has that index")

    def count(self, *names: str, without: Iterable[str] = ()) -> int:
        """How many pages have all of these bits and none of those.

        >>> from cowlab import maps, pagemap
        >>> stack = [m for m in maps() if m.kind == "stack"]
        >>> pages = pagemap(None, stack)
        >>> 0 < pages.count("present", "exclusive", without=["file"]) <= len(pages)
        True
        """
        return self._count(_mask(names), _mask(without))

    def bits(self, *names: str, without: Iterable[str] = ()) -> memoryview[bool]:
        """For each page whether it has all of these bits and none of those.

        A memoryview of booleans, without numpy.
        """
        return memoryview(self._matching(_mask(names), _mask(without))).cast("?")

    def _booleans(self, name: str) -> NDArray[np.bool_]:
        words = self.numpy()
        bits: NDArray[np.bool_] = words & words.dtype.type(BITS[name]) != 0
        return bits

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether the page is in memory and mapped here."""
        return self._booleans("present")

    @property
    def swapped(self) -> NDArray[np.bool_]:
        """Whether the page is in swap (or on its way between two nodes).

        A guard of madvise looks swapped too: ``count("swapped", without=["guard"])``.
        """
        return self._booleans("swapped")

    @property
    def exclusive(self) -> NDArray[np.bool_]:
        """Whether this process alone maps the page, once."""
        return self._booleans("exclusive")

    @property
    def file(self) -> NDArray[np.bool_]:
        """Whether the page is a file's, or shared anonymous memory."""
        return self._booleans("file")

    @property
    def soft_dirty(self) -> NDArray[np.bool_] | None:
        """Whether the page was written since soft-dirty bits were last cleared.

        None: this kernel does not keep them (tried, not guessed).
        """
        return self._booleans("soft_dirty") if _native.soft_dirty_works() else None

    @property
    def uffd_wp(self) -> NDArray[np.bool_]:
        """Whether userfaultfd write-protects the page."""
        return self._booleans("uffd_wp")

    @property
    def guard(self) -> NDArray[np.bool_]:
        """Whether it is a guard page of madvise (Linux 6.15; always false before)."""
        return self._booleans("guard")

    @property
    def frames(self) -> Words | None:
        """The number of the physical page behind each present page, 0 for the others.

        None: the kernel hides them, CAP_SYS_ADMIN shows them.
        """
        return self._frames(Words)


@dataclass(frozen=True, slots=True)
class PageRun:
    """Neighbouring pages that are alike. ``start`` and ``end`` are bytes, end excluded.

    ``zero`` is the kernel's shared zero page: read before anything was written, no
    memory of its own. ``huge`` is a page mapped as a whole by one entry of 2 MiB (or
    this machine's size). ``file`` as in ``PageMap``.
    """

    start: int
    end: int
    present: bool
    swapped: bool
    file: bool
    zero: bool
    huge: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


class PageFlag(IntFlag):
    """The bits of a word of ``kpageflags``, by the kernel's names (KPF_*)."""

    LOCKED = 1 << 0
    ERROR = 1 << 1
    REFERENCED = 1 << 2
    UPTODATE = 1 << 3
    DIRTY = 1 << 4
    LRU = 1 << 5
    ACTIVE = 1 << 6
    SLAB = 1 << 7
    WRITEBACK = 1 << 8
    RECLAIM = 1 << 9
    BUDDY = 1 << 10
    MMAP = 1 << 11
    ANON = 1 << 12
    SWAPCACHE = 1 << 13
    SWAPBACKED = 1 << 14
    COMPOUND_HEAD = 1 << 15
    COMPOUND_TAIL = 1 << 16
    HUGE = 1 << 17
    UNEVICTABLE = 1 << 18
    HWPOISON = 1 << 19
    NOPAGE = 1 << 20
    KSM = 1 << 21
    THP = 1 << 22
    OFFLINE = 1 << 23
    ZERO_PAGE = 1 << 24
    IDLE = 1 << 25
    PGTABLE = 1 << 26


def _mask(names: Iterable[str]) -> int:
    if isinstance(names, str):
        names = (names,)
    mask = 0
    for name in names:
        if name not in BITS:
            raise ValueError(f"no such bit: {name!r}; there are {', '.join(BITS)}")
        mask |= BITS[name]
    if mask & BITS["soft_dirty"] and not _native.soft_dirty_works():
        raise Unsupported(
            "this kernel keeps no soft-dirty bits: it needs CONFIG_MEM_SOFT_DIRTY"
        )
    return mask


def _whole_pages(ranges: Ranges) -> tuple[tuple[int, int], ...]:
    """The ranges as pairs, rounded out to pages."""
    shape = "ranges must be a list of (start, end) pairs or of mappings"
    items: Any = (ranges,) if hasattr(ranges, "start") else ranges
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise TypeError(f"{shape}, not {type(ranges).__name__}")
    pairs = []
    for item in items:
        given = hasattr(item, "start")
        try:
            start, end = (item.start, item.end) if given else item
            start, end = operator.index(start), operator.index(end)
        except (TypeError, ValueError, AttributeError):
            raise TypeError(f"{shape}; this is neither: {item!r}") from None
        if given and start >= _FIRST_KERNEL_ADDRESS:
            continue  # [vsyscall] is in every maps and in no page map
        if not 0 <= start <= end < 1 << 64:
            raise ValueError(
                "a range must have 0 <= start <= end < 2**64, "
                f"not ({start:#x}, {end:#x})"
            )
        pairs.append((start - start % PAGE, end + -end % PAGE))
    return tuple(pairs)


def pagemap(pid: int | None, ranges: Ranges) -> PageMap:
    """The page-map entries of some address ranges of a process; None is this one.

    ``ranges`` are (start, end) pairs in bytes, rounded out to whole pages, or mappings
    from ``maps`` or ``smaps``. 8 bytes are kept for each page; holes cost as much as
    pages, so give mappings and not the whole address space. Source: /proc/PID/pagemap.
    Raises ``Gone``, ``Zombie``, ``KernelThread``, ``Unreadable``, and ValueError for
    addresses that no process can map.
    """
    pairs = _whole_pages(ranges)
    words = _native.pagemap(pid, pairs, PageMap)
    words._pid = os.getpid() if pid is None else operator.index(pid)
    words._ranges = pairs
    return words


def page_runs(pid: int | None, ranges: Ranges) -> tuple[PageRun, ...]:
    """The pages of some address ranges that are in memory or in swap, as runs.

    Holes cost nothing and are left out. Arguments as for ``pagemap``. Source:
    PAGEMAP_SCAN; raises ``Unsupported`` before Linux 6.7, and what ``pagemap`` raises.
    """
    runs = _native.page_runs(pid, _whole_pages(ranges), 1 << 3 | 1 << 4)
    return tuple(
        PageRun(
            start,
            end,
            present=bool(kind & 1 << 3),
            swapped=bool(kind & 1 << 4),
            file=bool(kind & 1 << 2),
            zero=bool(kind & 1 << 5),
            huge=bool(kind & 1 << 6),
        )
        for start, end, kind in runs
    )


def _frame_words(frames: Any) -> Any:
    """Something with the buffer protocol that holds frame numbers as 64-bit words."""
    if frames is None:
        raise TypeError(
            "frames is None: the kernel hid them from pagemap, CAP_SYS_ADMIN shows them"
        )
    if isinstance(frames, (str, bytes, bytearray)) or not hasattr(frames, "__len__"):
        raise TypeError(
            "frames must be a list of frame numbers, or what pagemap().frames gives, "
            f"not {type(frames).__name__}"
        )
    try:
        view = memoryview(frames)
    except TypeError:
        pass
    else:
        if view.format in {"Q", "L", "N"} and view.itemsize == 8 and view.contiguous:
            return view
        frames = view.tolist()
    try:
        return array("Q", [operator.index(frame) for frame in frames])
    except OverflowError:
        raise ValueError("a frame number is negative or beyond 64 bits") from None


def kpagecount(frames: Any) -> Words:
    """How often each of these frames is mapped, in all processes together. Root only.

    ``frames`` is what ``pagemap().frames`` gives, or any list of frame numbers; 0, no
    frame, has 0. Kernels built without mapcounts give an average for large folios.
    Source: /proc/kpagecount. Raises ``Unreadable`` for whom root's file is closed,
    ``Unsupported`` where there is no such file, ValueError for a frame that this
    machine does not have.
    """
    return _native.kpage("kpagecount", _frame_words(frames), Words)


def kpageflags(frames: Any) -> Words:
    """The kernel's flags of each frame; ``PageFlag(word)`` names them. Root only.

    0, no frame, has ``PageFlag.NOPAGE``. Source: /proc/kpageflags. Arguments and errors
    as for ``kpagecount``.
    """
    return _native.kpage("kpageflags", _frame_words(frames), Words)
