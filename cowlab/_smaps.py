"""Where a process's memory is: maps, smaps and smaps_rollup, as data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from cowlab import _native
from cowlab._errors import Unsupported

__all__ = [
    "MapsEntry",
    "Smaps",
    "SmapsEntry",
    "SmapsRollup",
    "maps",
    "smaps",
    "smaps_rollup",
]

KINDS = (
    "anonymous",
    "heap",
    "stack",
    "file",
    "shared memory",
    "hugetlb",
    "kernel",
)
"""What a mapping is: private memory without a file, named or not; the brk heap; the
main thread's stack; a file; memory shared by way of the kernel's own tmpfs (MAP_SHARED
without a file, memfd, System V, /dev/shm); huge pages from the pool; the kernel's own
pages, as [vdso]."""

_SHARED_MEMORY = ("/memfd:", "/SYSV", "/dev/zero", "/dev/shm/", "[anon_shmem:")
_DELETED = " (deleted)"


def _kind(path: str, has_file: bool) -> str:
    if has_file or path.startswith("[anon_shmem:"):
        if path.startswith("/anon_hugepage"):
            return "hugetlb"
        return "shared memory" if path.startswith(_SHARED_MEMORY) else "file"
    if not path or path.startswith("[anon:"):
        return "anonymous"
    if path == "[heap]":
        return "heap"
    if path == "[stack]" or path.startswith("[stack:"):
        return "stack"
    return "kernel" if path.startswith("[") else "file"


def _add(*parts: int | None) -> int | None:
    """The sum, or None where a part is unknown."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


@dataclass(frozen=True, slots=True)
class MapsEntry:
    """One mapping of a process: a line of /proc/PID/maps.

    ``start`` and ``end`` are addresses, end excluded; ``perms`` is as the kernel writes
    it, ``"rw-p"``; ``offset`` is into the file, in bytes; ``major``, ``minor`` and
    ``inode`` identify the file, all 0 where there is none (a System V segment can be
    inode 0). ``path`` is None where the line has none; it is the kernel's text, with a
    newline in a file name as the four characters ``\\012``; ``os.fsencode`` gives its
    bytes.
    """

    start: int
    end: int
    perms: str
    offset: int
    major: int
    minor: int
    inode: int
    path: str | None

    @property
    def size(self) -> int:
        """Bytes of address space; how many are in memory only smaps and pagemap say."""
        return self.end - self.start

    @property
    def shared(self) -> bool:
        """Whether writes go to every process that maps it (MAP_SHARED).

        Pages of a private mapping can be shared too, until they are written.
        """
        return self.perms[3] == "s"

    @property
    def file(self) -> tuple[int, int, int] | None:
        """(major, minor, inode): the same for every mapping of one file anywhere.

        Paths are not: a deleted file and its successor share one, System V segments
        too.
        """
        key = (self.major, self.minor, self.inode)
        return key if any(key) else None

    @property
    def deleted(self) -> bool:
        """Whether the path is marked as deleted (a name can end so by itself)."""
        return self.file is not None and (self.path or "").endswith(_DELETED)

    @property
    def name(self) -> str | None:
        """The name a program gave to memory without a file; None: it gave none.

        From ``prctl(PR_SET_VMA_ANON_NAME)``; such memory is anonymous all the same.
        """
        path = self.path or ""
        for prefix in ("[anon:", "[anon_shmem:"):
            if path.startswith(prefix) and path.endswith("]"):
                return path[len(prefix) : -1]
        return None

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return _kind(self.path or "", self.file is not None)


@dataclass(frozen=True, slots=True)
class SmapsEntry(MapsEntry):
    """One mapping and what of it is in memory: a record of /proc/PID/smaps.

    Bytes, but for ``thp_eligible``, ``protection_key`` and ``flags`` (VmFlags, two
    letters each; unknown ones are kept). None is a field that this kernel did not
    write, which is not 0. The hugetlb fields are apart from ``rss`` and everything
    else.
    """

    virtual_size: int | None
    kernel_page_size: int | None
    mmu_page_size: int | None
    rss: int | None
    pss: int | None
    pss_dirty: int | None
    pss_anon: int | None
    pss_file: int | None
    pss_shmem: int | None
    shared_clean: int | None
    shared_dirty: int | None
    private_clean: int | None
    private_dirty: int | None
    referenced: int | None
    anonymous: int | None
    ksm: int | None
    lazy_free: int | None
    anon_huge_pages: int | None
    shmem_pmd_mapped: int | None
    file_pmd_mapped: int | None
    shared_hugetlb: int | None
    private_hugetlb: int | None
    swap: int | None
    swap_pss: int | None
    locked: int | None
    thp_eligible: bool | None
    protection_key: int | None
    flags: frozenset[str] | None

    @property
    def uss(self) -> int | None:
        """Private_Clean + Private_Dirty: what goes when this process goes."""
        return _add(self.private_clean, self.private_dirty)

    @property
    def shared_rss(self) -> int | None:
        """Shared_Clean + Shared_Dirty: pages that another process maps too."""
        return _add(self.shared_clean, self.shared_dirty)

    @property
    def kind(self) -> str:
        """One of ``KINDS``; huge pages from the pool are known by their flag ``ht``."""
        if self.flags is not None and "ht" in self.flags:
            return "hugetlb"
        return _kind(self.path or "", self.file is not None)


@dataclass(frozen=True, slots=True)
class SmapsRollup:
    """All of a process's mappings summed up, in bytes.

    ``pss`` divides each page by the number of processes that map it, so that the sum
    over all processes is the memory used; ``rss`` counts it in full in each.
    ``private_dirty`` is what was written and nobody else maps: copies, and memory of
    its own alike. The hugetlb figures are apart from all others. None is a field that
    this kernel did not write, which is not 0.

    ``source`` is ``"smaps_rollup"``, or ``"sum of smaps"`` where this kernel has no
    rollup: the kernel then rounds each mapping down to a kB, so that ``pss`` can be
    lower by up to 1,023 bytes a mapping, and the mappings are not all of one moment.
    """

    pid: int
    source: str
    rss: int | None
    pss: int | None
    pss_dirty: int | None
    pss_anon: int | None
    pss_file: int | None
    pss_shmem: int | None
    shared_clean: int | None
    shared_dirty: int | None
    private_clean: int | None
    private_dirty: int | None
    referenced: int | None
    anonymous: int | None
    ksm: int | None
    lazy_free: int | None
    anon_huge_pages: int | None
    shmem_pmd_mapped: int | None
    file_pmd_mapped: int | None
    shared_hugetlb: int | None
    private_hugetlb: int | None
    swap: int | None
    swap_pss: int | None
    locked: int | None

    @property
    def uss(self) -> int | None:
        """Private_Clean + Private_Dirty: what the machine gets back when it ends.

        Huge pages from the pool are apart: see ``private_hugetlb``.
        """
        return _add(self.private_clean, self.private_dirty)

    @property
    def shared(self) -> int | None:
        """Shared_Clean + Shared_Dirty: pages that another process maps too."""
        return _add(self.shared_clean, self.shared_dirty)


@dataclass(frozen=True, slots=True)
class Smaps(Sequence[SmapsEntry]):
    """The mappings of one process, in the order of their addresses.

    The kernel locks the process for a few mappings at a time: a process that maps and
    unmaps meanwhile can be seen in two states.
    """

    pid: int
    source: str
    entries: tuple[SmapsEntry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> SmapsEntry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[SmapsEntry, ...]: ...

    def __getitem__(self, index: int | slice) -> SmapsEntry | tuple[SmapsEntry, ...]:
        return self.entries[index]

    def __iter__(self) -> Iterator[SmapsEntry]:
        return iter(self.entries)


def maps(pid: int | None = None) -> tuple[MapsEntry, ...]:
    """The mappings of a process, this one by default, in the order of their addresses.

    What is mapped, not what is in memory: that is ``smaps`` and ``pagemap``. Source:
    /proc/PID/maps. Raises ``Gone``, ``Zombie``, ``KernelThread``, ``Unreadable``,
    ``Truncated``.

    >>> from cowlab import maps
    >>> any(mapping.kind == "stack" for mapping in maps())
    True
    """
    return tuple(_native.maps(pid, MapsEntry))


def smaps(pid: int | None = None) -> Smaps:
    """Each mapping of a process, this one by default, and what of it is in memory.

    Costs the kernel about 3 us a mapping and 40 ns a page in memory, during which the
    process cannot map or unmap; ``smaps_rollup`` costs less where the sum is enough.
    Read in this process it counts the buffer it is read into. Source: /proc/PID/smaps.
    Raises ``Gone``, ``Zombie``, ``KernelThread``, ``Unreadable``, ``Truncated``.
    """
    entries = tuple(_native.smaps(pid, SmapsEntry))
    return Smaps(os.getpid() if pid is None else int(pid), "smaps", entries)


def smaps_rollup(pid: int | None = None) -> SmapsRollup:
    """The memory of a process, this one by default, summed up by the kernel.

    Source: /proc/PID/smaps_rollup, or where this kernel has none the sum of
    /proc/PID/smaps; ``source`` says which. Raises ``Gone``, ``Zombie``,
    ``KernelThread``, ``Unreadable``, ``Truncated``.

    >>> from cowlab import smaps_rollup
    >>> memory = smaps_rollup()
    >>> memory.uss <= memory.pss <= memory.rss
    True
    """
    try:
        return _native.smaps_rollup(pid, SmapsRollup)
    except Unsupported:
        return _native.sum_of_smaps(pid, SmapsRollup)
