"""A master and its workers as one thing, read from outside."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cowlab._errors import Gone, Unreadable, Unsupported, Zombie
from cowlab._pagemap import PAGE, page_runs, pagemap
from cowlab._smaps import MapsEntry, SmapsRollup, maps, smaps_rollup
from cowlab._status import Stat, stat

__all__ = ["Group", "Inheritance", "Member", "group", "inheritance"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a group. Sizes are bytes.

    ``uss`` is Private_Clean + Private_Dirty: what the machine gets back when this
    process ends; huge pages of hugetlb are in none of these. ``swap_pss`` is None where
    this kernel writes none.
    ``sources`` says where each figure was read.

    ``copied``, ``copied_or_sole`` and ``fresh`` are None unless ``group`` was given
    what the workers inherited. ``copied`` was inherited, is this process's own now, and
    is shared by others of the group still: it wrote it. Of ``copied_or_sole`` no other
    member has the page as it was: this process wrote it, or was left alone with it by
    the others. ``fresh`` was not inherited.
    """

    pid: int
    parent: int
    name: str
    rss: int
    pss: int
    uss: int
    private_dirty: int
    swap_pss: int | None
    minor_faults: int
    major_faults: int
    sources: Mapping[str, str] = field(repr=False)
    copied: int | None = None
    copied_or_sole: int | None = None
    fresh: int | None = None


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The private pages that a process had at one moment, for its children to inherit.

    ``pages`` has a byte of 1 for each page of ``ranges`` that was in memory and no
    file's. ``source`` is the page map.
    """

    pid: int
    ranges: tuple[tuple[int, int], ...] = field(repr=False)
    pages: bytes = field(repr=False)
    page_size: int = PAGE
    source: str = "pagemap"

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.pages.count(1) * self.page_size


@dataclass(frozen=True, slots=True)
class Group:
    """Processes that belong together, read one after the other.

    ``pss`` is what the group takes: the sum of the members' shares, in which a page
    that all of them map counts once. ``uss`` sums what only one of them has. ``rss``
    counts a page again for each member that maps it: it is no size of anything, and
    does not grow when a shared page is copied. ``gone`` are processes that ended before
    they were read: they are in no sum, and were not 0.
    """

    members: tuple[Member, ...]
    gone: tuple[int, ...] = ()

    def _sum(self, figure: str) -> int:
        total: int = sum(getattr(member, figure) for member in self.members)
        return total

    @property
    def master(self) -> Member:
        """The first member: the process that was asked for."""
        return self.members[0]

    @property
    def workers(self) -> tuple[Member, ...]:
        """The members after the first."""
        return self.members[1:]

    @property
    def pss(self) -> int:
        return self._sum("pss")

    @property
    def uss(self) -> int:
        return self._sum("uss")

    @property
    def rss(self) -> int:
        return self._sum("rss")

    @property
    def private_dirty(self) -> int:
        return self._sum("private_dirty")

    @property
    def minor_faults(self) -> int:
        return self._sum("minor_faults")

    @property
    def major_faults(self) -> int:
        return self._sum("major_faults")

    def to_json(self) -> dict[str, Any]:
        """The reading as plain data, the sums with it."""
        sums = ("rss", "pss", "uss", "private_dirty", "minor_faults", "major_faults")
        return {
            "report": "group",
            "schema": SCHEMA,
            **{name: self._sum(name) for name in sums},
            "members": [asdict(member) for member in self.members],
            "gone": list(self.gone),
        }


def inheritance(pid: int | None = None) -> Inheritance:
    """What a fork of a process, this one by default, would inherit now.

    Take it right before the workers are forked, and give it to ``group`` later: it
    tells pages that a worker copied from those that are fresh. The shared zero page
    (memory that was read and never written) counts where the kernel cannot tell it
    (before Linux 6.7). Raises what ``pagemap`` raises.
    """
    ranges = tuple(
        (entry.start, entry.end) for entry in maps(pid) if _is_private(entry)
    )
    own = pagemap(pid, ranges).bits("present", without=["file"])
    pages = int.from_bytes(own, "little") & ~_zero_pages(pid, ranges)
    return Inheritance(
        os.getpid() if pid is None else pid, ranges, pages.to_bytes(len(own), "little")
    )


def _is_private(entry: MapsEntry) -> bool:
    return entry.perms.endswith("p") and entry.kind != "kernel"


def _zero_pages(pid: int | None, ranges: tuple[tuple[int, int], ...]) -> int:
    """A byte of 1 for each page of the ranges that is the shared zero page."""
    try:
        runs = [run for run in page_runs(pid, ranges) if run.zero]
    except Unsupported:
        return 0
    found = bytearray(sum(end - start for start, end in ranges) // PAGE)
    at = 0
    for start, end in ranges:
        for run in runs:
            if start <= run.start < end:
                first = at + (run.start - start) // PAGE
                found[first : first + run.size // PAGE] = b"\1" * (run.size // PAGE)
        at += (end - start) // PAGE
    return int.from_bytes(found, "little")


def _with_pages(found: Group, since: Inheritance) -> Group:
    """The group with what became of the inherited pages in each member."""
    inherited = int.from_bytes(since.pages, "little")
    alone: dict[int, tuple[int, int]] = {}
    shared = 0
    gone = list(found.gone)
    for member in found.members:
        try:
            words = pagemap(member.pid, since.ranges)
            own = int.from_bytes(words.bits("present", without=["file"]), "little")
            mine = int.from_bytes(
                words.bits("present", "exclusive", without=["file"]), "little"
            )
            ranges = [entry for entry in maps(member.pid) if _is_private(entry)]
            now = pagemap(member.pid, ranges)
        except Gone:
            gone.append(member.pid)
            continue
        shared |= own & ~mine
        private = now.count("present", "exclusive", without=["file"])
        alone[member.pid] = mine & inherited, private
    members = []
    for member in found.members:
        if member.pid not in alone:
            continue
        if member.pid == since.pid:
            members.append(member)
            continue
        mine, private = alone[member.pid]
        certain = (mine & shared).bit_count()
        members.append(
            replace(
                member,
                copied=certain * PAGE,
                copied_or_sole=(mine.bit_count() - certain) * PAGE,
                fresh=(private - mine.bit_count()) * PAGE,
                sources={
                    **member.sources,
                    **dict.fromkeys(("copied", "copied_or_sole", "fresh"), "pagemap"),
                },
            )
        )
    return Group(tuple(members), tuple(gone))


def group(
    pid: int | Iterable[int] | None = None, since: Inheritance | None = None
) -> Group:
    """Read a process and all that descend from it; None is this one.

    With a list of process numbers, exactly these are read. Members are read in turn
    while they run, so that a page which is copied meanwhile can be counted twice or not
    at all: read a group that rests. A process whose parent has ended belongs to another
    parent, and is found by its own number only.

    ``since`` is what ``inheritance`` gave of the master before it forked: then each
    worker has its copied and fresh pages.

    A member that ends meanwhile is in ``gone``; ``Gone`` is raised where the master has
    ended, or all of a list. ``Unreadable`` where a member may not be read: a sum
    without it would be wrong. Sources: /proc/PID/stat and smaps_rollup.

    >>> from cowlab import group
    >>> reading = group()
    >>> reading.uss <= reading.pss <= reading.rss
    True
    """
    found = _of_list(pid) if isinstance(pid, Iterable) else _of_tree(pid)
    return found if since is None else _with_pages(found, since)


def _of_tree(pid: int | None) -> Group:
    master = stat(os.getpid() if pid is None else pid)
    members, gone = [_read(master)], []
    for seen in _below(master.pid):
        try:
            members.append(_read(seen))
        except Gone:
            gone.append(seen.pid)
    return Group(tuple(members), tuple(gone))


def _of_list(pids: Iterable[int]) -> Group:
    members, gone = [], []
    for pid in dict.fromkeys(pids):
        try:
            members.append(_read(stat(pid)))
        except Gone as error:
            gone.append(pid)
            last = error
    if members:
        return Group(tuple(members), tuple(gone))
    if gone:
        raise last
    raise ValueError("the list of processes is empty: name at least one")


def _below(master: int) -> list[Stat]:
    """All that descend from a process, parents first, then by number."""
    children: dict[int, list[Stat]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            seen = stat(int(name))
        except Gone:
            continue  # between the listing and now; whose it was is not known
        children.setdefault(seen.ppid, []).append(seen)
    found: list[Stat] = []
    parents = [master]
    for parent in parents:
        below = sorted(children.get(parent, ()), key=lambda child: child.pid)
        found += below
        parents += [child.pid for child in below]
    return found


def _read(seen: Stat) -> Member:
    """The member that was seen; Gone, too, where its number is another's by now."""
    memory = smaps_rollup(seen.pid)
    counters = stat(seen.pid)
    if counters.start_ticks != seen.start_ticks:
        raise Gone(errno.ESRCH, "the process has ended", f"/proc/{seen.pid}")
    if counters.state in "ZX":
        raise Zombie(errno.ESRCH, "the process has ended", f"/proc/{seen.pid}")
    return Member(
        pid=seen.pid,
        parent=counters.ppid,
        name=counters.comm,
        rss=_figure(memory, "rss"),
        pss=_figure(memory, "pss"),
        uss=_figure(memory, "uss"),
        private_dirty=_figure(memory, "private_dirty"),
        swap_pss=memory.swap_pss,
        minor_faults=counters.minor_faults,
        major_faults=counters.major_faults,
        sources={
            **dict.fromkeys(
                ("rss", "pss", "uss", "private_dirty", "swap_pss"), memory.source
            ),
            **dict.fromkeys(("minor_faults", "major_faults"), counters.source),
        },
    )


def _figure(memory: SmapsRollup, name: str) -> int:
    value: int | None = getattr(memory, name)
    if value is None:
        raise Unreadable(
            errno.ENODATA,
            f"this kernel writes no figure for {name}",
            f"/proc/{memory.pid}/{memory.source}",
        )
    return value
