"""Where a process's memory is, by kind and by file; and what two processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cowlab._errors import ReadingError, Unsupported, needs
from cowlab._pagemap import (
    BITS,
    PAGE,
    PageFlag,
    PageMap,
    kpageflags,
    page_runs,
    pagemap,
)
from cowlab._smaps import MapsEntry, Smaps, SmapsEntry, smaps
from cowlab._status import stat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.uint64]

__all__ = [
    "MemoryGroup",
    "MemoryReport",
    "SharedGroup",
    "SharedReport",
    "memory",
    "shared_memory",
]

SCHEMA = 1

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """Mappings that belong together: those of one file, or of one kind.

    Bytes. ``name`` is the file's path, or the name that a program gave to anonymous
    memory. ``private`` is the USS, ``shared`` what another process maps too;
    ``hugetlb`` is apart from all of these. None: some mapping has no such figure.
    """

    kind: str
    name: str | None
    file: tuple[int, int, int] | None
    mappings: int
    size: int
    rss: int | None
    pss: int | None
    private: int | None
    shared: int | None
    swap: int | None
    hugetlb: int | None

    @property
    def weight(self) -> int:
        """What it costs this machine: its share of memory, swap, and huge pages."""
        resident = self.rss if self.pss is None else self.pss
        return (resident or 0) + (self.swap or 0) + (self.hugetlb or 0)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Where one process's memory is. ``groups`` and ``by_kind`` begin with the largest.

    Everything is a sum over the mappings of one reading of ``source``.
    """

    pid: int
    comm: str
    source: str
    total: MemoryGroup
    by_kind: tuple[MemoryGroup, ...]
    groups: tuple[MemoryGroup, ...]
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {"report": "smaps", **asdict(self)}


@dataclass(frozen=True, slots=True)
class SharedGroup:
    """One file, or one kind of memory, and what of it two processes have in common.

    Bytes. ``a`` and ``b`` are each process's RSS (None: it maps none of it); ``shared``
    is pages that both map, None where that cannot be known here.
    """

    kind: str
    name: str | None
    file: tuple[int, int, int] | None
    a: int | None
    b: int | None
    shared: int | None


@dataclass(frozen=True, slots=True)
class SharedReport:
    """What two processes share, page by page.

    ``shared`` bytes are certain. With ``source`` ``"frames"`` that is all there is;
    with ``"file offsets"`` only pages of files and shared memory can be told, and of
    anonymous pages ``unknown`` bytes at most are shared besides, for the reason in
    ``why``.
    """

    a: MemoryReport
    b: MemoryReport
    source: str
    shared: int
    unknown: int
    why: str | None
    groups: tuple[SharedGroup, ...]
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "report": "smaps of two",
            **asdict(self),
            "a": self.a.to_json(),
            "b": self.b.to_json(),
        }


# ---- one process ----


def _key(entry: MapsEntry) -> Key:
    """Of one file by device and inode; the rest by kind and name."""
    return entry.file or (entry.kind, entry.name)


def _total(
    entries: Iterable[SmapsEntry], figure: Callable[[SmapsEntry], int | None]
) -> int | None:
    """The sum of one figure, None where a mapping lacks it."""
    total = 0
    for entry in entries:
        value = figure(entry)
        if value is None:
            return None
        total += value
    return total


def _hugetlb(entry: SmapsEntry) -> int | None:
    if entry.shared_hugetlb is None or entry.private_hugetlb is None:
        return None
    return entry.shared_hugetlb + entry.private_hugetlb


def _group(
    entries: list[SmapsEntry], kind: str, name: str | None, file: Any
) -> MemoryGroup:
    return MemoryGroup(
        kind=kind,
        name=name,
        file=file,
        mappings=len(entries),
        size=sum(entry.size for entry in entries),
        rss=_total(entries, lambda e: e.rss),
        pss=_total(entries, lambda e: e.pss),
        private=_total(entries, lambda e: e.uss),
        shared=_total(entries, lambda e: e.shared_rss),
        swap=_total(entries, lambda e: e.swap),
        hugetlb=_total(entries, _hugetlb),
    )


def _name(entry: SmapsEntry) -> str | None:
    return entry.path if entry.file else entry.name


def _grouped(
    entries: Iterable[SmapsEntry], key: Callable[[SmapsEntry], Any]
) -> dict[Any, list[SmapsEntry]]:
    groups: dict[Any, list[SmapsEntry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def _report(entries: Smaps, comm: str) -> MemoryReport:
    kinds = _grouped(entries, lambda e: e.kind)
    groups = _grouped(entries, _key)
    return MemoryReport(
        pid=entries.pid,
        comm=comm,
        source=entries.source,
        total=_group(list(entries), "all", None, None),
        by_kind=_largest(_group(e, kind, None, None) for kind, e in kinds.items()),
        groups=_largest(
            _group(e, e[0].kind, _name(e[0]), e[0].file) for e in groups.values()
        ),
    )


def _largest(groups: Iterable[MemoryGroup]) -> tuple[MemoryGroup, ...]:
    return tuple(sorted(groups, key=lambda g: (-g.weight, -(g.rss or 0), -g.size)))


def memory(pid: int | None = None) -> MemoryReport:
    """Where a process's memory is, this one's by default, grouped by kind and file.

    Files are told apart by device and inode, not by name. Source: one reading of
    /proc/PID/smaps. Raises what ``smaps`` raises.

    >>> from cowlab import memory
    >>> report = memory()
    >>> report.total.rss == sum(group.rss for group in report.groups)
    True
    """
    entries = smaps(pid)
    return _report(entries, stat(pid).comm)


# ---- two processes ----


class _Pages:
    """The pages that a process has in memory, as columns: entry, address, bits."""

    def __init__(self, entries: Smaps) -> None:
        with needs("What two processes share", "numpy"):
            import numpy

        ranges, owners = _resident(entries)
        words: PageMap = pagemap(entries.pid, ranges)
        self.entries = entries
        self.frames_known = words.frames is not None
        self.bits: Array = words.numpy()
        counts = [(end - start) // PAGE for start, end in ranges]
        self.owner = numpy.repeat(numpy.array(owners, dtype=numpy.intp), counts)
        starts = numpy.array([start for start, _ in ranges], dtype=numpy.uint64)
        first = numpy.cumsum([0, *counts[:-1]])[: len(counts)].astype(numpy.uint64)
        page = numpy.uint64(PAGE)
        within = numpy.arange(len(self.bits), dtype=numpy.uint64)
        self.address: Array = (
            numpy.repeat(starts, counts) + (within - numpy.repeat(first, counts)) * page
        )

    def has(self, name: str) -> NDArray[np.bool_]:
        """Which pages have a bit of the page map."""
        found: NDArray[np.bool_] = (self.bits & self.bits.dtype.type(BITS[name])) != 0
        return found

    def groups(self) -> dict[Key, NDArray[np.bool_]]:
        """For each group of mappings, which pages are its own."""
        import numpy

        members: dict[Key, list[int]] = {}
        for at, entry in enumerate(self.entries):
            members.setdefault(_key(entry), []).append(at)
        return {key: numpy.isin(self.owner, owned) for key, owned in members.items()}

    def frames(self, which: NDArray[np.bool_]) -> Array:
        """The distinct frames behind some pages."""
        import numpy

        known = self.bits[which & self.has("present")]
        frames: Array = numpy.unique(known & known.dtype.type((1 << 55) - 1))
        return frames

    def offsets(self, which: NDArray[np.bool_]) -> Array:
        """The distinct file offsets of those pages that are still the file's."""
        import numpy

        which = which & self.has("present") & self.has("file")
        starts = numpy.array([e.start for e in self.entries], dtype=numpy.uint64)
        offsets = numpy.array([e.offset for e in self.entries], dtype=numpy.uint64)
        owner = self.owner[which]
        found: Array = self.address[which] - starts[owner] + offsets[owner]
        return numpy.unique(found)

    def perhaps_shared(self) -> int:
        """Anonymous pages that this process is not alone to map."""
        mask = self.has("present") & ~self.has("file") & ~self.has("exclusive")
        return int(mask.sum())


def _resident(entries: Smaps) -> tuple[list[tuple[int, int]], list[int]]:
    """Ranges that are in memory, the shared zero page aside, and whose they are.

    A mapping can be a thousand times what it holds: holes are skipped where the
    kernel can, and mappings without a page everywhere.
    """
    ranges: list[tuple[int, int]] = []
    owners: list[int] = []
    for at, entry in enumerate(entries):
        empty = entry.rss == 0 and not _hugetlb(entry)
        if empty or entry.kind == "kernel":
            continue
        for start, end in _runs(entries.pid, entry):
            ranges.append((start, end))
            owners.append(at)
    return ranges, owners


def _runs(pid: int, entry: SmapsEntry) -> list[tuple[int, int]]:
    try:
        runs = page_runs(pid, [entry])
    except Unsupported:
        return [(entry.start, entry.end)]
    return [(run.start, run.end) for run in runs if run.present and not run.zero]


def _without_zero_pages(frames: Array) -> Array:
    """The shared zero page is memory of nobody's."""
    try:
        flags = kpageflags(frames).numpy()
    except (ReadingError, Unsupported):
        return frames
    real: Array = frames[(flags & flags.dtype.type(PageFlag.ZERO_PAGE)) == 0]
    return real


def _by_frames(a: _Pages, b: _Pages) -> dict[Key, int]:
    import numpy

    everywhere = numpy.ones(len(b.bits), dtype=bool)
    others = _without_zero_pages(b.frames(everywhere))
    return {
        key: len(numpy.intersect1d(a.frames(which), others, assume_unique=True)) * PAGE
        for key, which in a.groups().items()
    }


def _by_offsets(a: _Pages, b: _Pages) -> dict[Key, int]:
    import numpy

    others = b.groups()
    files = {entry.file for entry in a.entries if entry.file}
    return {
        key: len(numpy.intersect1d(a.offsets(which), b.offsets(others[key]))) * PAGE
        for key, which in a.groups().items()
        if key in files and key in others
    }


WHY = (
    "only frame numbers tell which anonymous pages two processes share, and the kernel "
    "shows them to root (CAP_SYS_ADMIN)"
)


def shared_memory(a: int | None, b: int | None) -> SharedReport:
    """What two processes share, page by page; None is this one.

    With CAP_SYS_ADMIN by frame number, which is exact for memory of every kind.
    Without, pages of the same file or shared memory at the same offset are the same
    page, and of anonymous memory only an upper bound is known. Needs numpy. Sources:
    /proc/PID/smaps and pagemap, PAGEMAP_SCAN where this kernel has it; both processes
    go on running, and what changes meanwhile is seen before or after. Raises what
    ``smaps`` raises.
    """
    first, second = smaps(a), smaps(b)
    report_a = _report(first, stat(a).comm)
    report_b = _report(second, stat(b).comm)
    pages_a, pages_b = _Pages(first), _Pages(second)
    exact = pages_a.frames_known and pages_b.frames_known
    shared = (_by_frames if exact else _by_offsets)(pages_a, pages_b)
    unknown = min(pages_a.perhaps_shared(), pages_b.perhaps_shared()) * PAGE
    if exact:
        unknown = 0
    return SharedReport(
        a=report_a,
        b=report_b,
        source="frames" if exact else "file offsets",
        shared=sum(shared.values()),
        unknown=unknown,
        why=WHY if unknown else None,
        groups=_side_by_side(report_a, report_b, shared, exact),
    )


def _most_in_common(row: SharedGroup) -> tuple[int, int]:
    """For sorting; what is not known counts as the most it can be."""
    sides = row.a or 0, row.b or 0
    return (min(sides) if row.shared is None else row.shared, max(sides))


def _in_memory(group: MemoryGroup) -> int:
    return (group.rss or 0) + (group.hugetlb or 0)


def _group_key(group: MemoryGroup) -> Key:
    return group.file or (group.kind, group.name)


def _side_by_side(
    a: MemoryReport, b: MemoryReport, shared: dict[Key, int], exact: bool
) -> tuple[SharedGroup, ...]:
    """Every group of either, those that share most first."""
    sides = [{_group_key(g): _in_memory(g) for g in report.groups} for report in (a, b)]
    rows = []
    for key, group in {_group_key(g): g for g in (*b.groups, *a.groups)}.items():
        in_a, in_b = (side.get(key) for side in sides)
        common: int | None = shared.get(key, 0)
        anonymous = group.file is None and group.kind != "kernel"
        if anonymous and not exact and in_a and in_b:
            common = None
        rows.append(SharedGroup(group.kind, group.name, group.file, in_a, in_b, common))
    rows.sort(key=_most_in_common, reverse=True)
    return tuple(rows)
