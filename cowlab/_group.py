"""A master and its workers as one thing."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from cowlab._errors import Gone

__all__ = ["Group", "Member", "group"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a group. Bytes, from its smaps_rollup; faults, from its stat.

    ``uss`` is Private_Clean + Private_Dirty + Private_Hugetlb: what would be free if it
    ended.
    """

    pid: int
    parent: int
    rss: int
    pss: int
    uss: int
    private_dirty: int
    swap_pss: int
    minor_faults: int
    major_faults: int


@dataclass(frozen=True, slots=True)
class Group:
    """A process and those that descend from it, read one after the other.

    ``pss`` is the sum of the members' PSS: what the group takes, each shared page once.
    ``uss`` is the sum of what only one of them has. ``rss`` counts a page once for each
    member that maps it: not a size of anything, given because other tools give it.
    ``gone`` processes ended before they were read, and are in no sum.
    """

    members: tuple[Member, ...]
    gone: tuple[int, ...] = ()

    @property
    def master(self) -> Member:
        """The process that was asked for."""
        return self.members[0]

    @property
    def workers(self) -> tuple[Member, ...]:
        """The others."""
        return self.members[1:]

    @property
    def pss(self) -> int:
        return sum(member.pss for member in self.members)

    @property
    def uss(self) -> int:
        return sum(member.uss for member in self.members)

    @property
    def rss(self) -> int:
        return sum(member.rss for member in self.members)

    @property
    def private_dirty(self) -> int:
        return sum(member.private_dirty for member in self.members)

    @property
    def minor_faults(self) -> int:
        return sum(member.minor_faults for member in self.members)

    def to_json(self) -> dict[str, Any]:
        """The reading as plain data."""
        return {
            "schema": SCHEMA,
            "pss": self.pss,
            "uss": self.uss,
            "rss": self.rss,
            "members": [asdict(member) for member in self.members],
            "gone": list(self.gone),
        }


def group(pid: int | None = None) -> Group:
    """Read a process and all that descend from it, as it is now.

    ``pid`` is the master; None is this process. Members are read in turn, so that a
    page which is copied meanwhile can be missing or be counted twice: read a group that
    rests, or read it again. The first member is the master.

    Raises ``Gone`` where the master has ended, ``Unreadable`` where a member may not be
    read. Source: /proc/PID/stat of all processes for the descent, smaps_rollup.
    """
    master = os.getpid() if pid is None else pid
    members, gone = [], []
    for member in descendants(master):
        try:
            members.append(_member(member))
        except Gone:
            if member == master:
                raise
            gone.append(member)
    return Group(tuple(members), tuple(gone))


def descendants(pid: int) -> list[int]:
    """``pid`` itself, then its children and theirs, in order of their numbers."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _parent(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for one in found:
        found += sorted(children.get(one, []))
    return found


def _parent(pid: int) -> int | None:
    """None where it has ended, or is a zombie: that has no memory."""
    from cowlab._status import stat

    try:
        reading = stat(pid)
    except Gone:
        return None
    return None if reading.state == "Z" else reading.ppid


def _member(pid: int) -> Member:
    from cowlab._smaps import smaps_rollup
    from cowlab._status import stat

    memory, counters = smaps_rollup(pid), stat(pid)
    private = (memory.private_clean, memory.private_dirty, memory.private_hugetlb)
    return Member(
        pid=pid,
        parent=counters.ppid,
        rss=memory.rss or 0,
        pss=memory.pss or 0,
        uss=sum(size or 0 for size in private),
        private_dirty=memory.private_dirty or 0,
        swap_pss=memory.swap_pss or 0,
        minor_faults=counters.minor_faults,
        major_faults=counters.major_faults,
    )
