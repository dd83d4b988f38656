"""What lies at an address: block, object, field, owner, mapping."""

from __future__ import annotations

import bisect
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cowlab import _native

if TYPE_CHECKING:
    from cowlab._census import Census
    from cowlab._smaps import MapsEntry

__all__ = ["FIELDS", "PLACES", "Address", "whatis", "whatis_many"]

PLACES = (
    "unmapped",
    "mapping",
    "static data",
    "pool header",
    "free block",
    "object",
    "buffer",
    "libc header",
    "libc free",
    "libc chunk",
)
"""What a place can be, in the order of enum cl_place. "mapping" is memory that no
allocator known here manages; "static data" a mapped file's; "buffer" a block in use
that holds no object; the libc ones belong to glibc's malloc."""

FIELDS = (
    None,
    "reference count",
    "type",
    "GC links",
    "dict pointer",
    "weak references",
    "pre-header",
    "payload",
)
"""Which part of an object, in the order of enum cl_field."""

_HOLDS_NO_OBJECT = ("unmapped", "pool header", "free block", "libc header", "libc free")
_TOP = 1 << 64
_KERNEL = 1 << 63


@dataclass(frozen=True, slots=True)
class Address:
    """One answer. ``str()`` of it is a sentence.

    ``place`` is one of PLACES, ``field`` one of FIELDS. ``object`` is where the object
    begins (what id() gives) and ``type_name`` its type; ``block`` where what the
    allocator gave begins, ``block_size`` its bytes. ``offset`` counts from the object,
    or from the block where there is none. ``owner`` is an object that keeps its
    contents in this buffer, if one is known. ``mapping`` is the line of maps.
    None: there is no such thing here, or it cannot be told.
    """

    address: int
    place: str
    field: str | None = None
    object: int | None = None
    type_name: str | None = None
    type_address: int | None = None
    block: int | None = None
    block_size: int | None = None
    offset: int | None = None
    owner: int | None = None
    owner_type: str | None = None
    mapping: MapsEntry | None = None

    def __str__(self) -> str:
        return f"{self.address:#x}: {self._what()}"

    def _what(self) -> str:
        if self.place == "unmapped":
            if self.address < 1 << 16:
                return "near null, never mapped"
            if self.address >= _KERNEL:
                return "the kernel's half of the address space"
            return "not mapped"
        if self.object is not None:
            at = f"object at {self.object:#x} of type {self.type_name}"
            return f"{self.field} (offset {self.offset}) of the {at}"
        where = _name_of(self.mapping)
        if self.block is not None:
            text = (
                f"{self.place} of {self.block_size} bytes at {self.block:#x}, "
                f"offset {self.offset}"
            )
            if self.owner is not None:
                text += f", of the {self.owner_type} at {self.owner:#x}"
            return f"{text} ({where})" if self.place.startswith("libc") else text
        if self.place == "mapping":
            return where
        return f"{self.place} in {where}" if where else self.place


def _name_of(mapping: MapsEntry | None) -> str:
    if mapping is None:
        return ""
    return mapping.path or "anonymous memory"


def _check(address: object) -> int:
    if not isinstance(address, int) or isinstance(address, bool):
        raise TypeError(f"an address is an int, not {type(address).__name__}")
    if not 0 <= address < _TOP:
        raise ValueError(f"an address has 64 bits; {address:#x} does not fit")
    return address


class _Maps:
    """The mappings of a process, found by address."""

    def __init__(self, pid: int | None) -> None:
        from cowlab._smaps import maps

        self._maps = maps(pid)
        self._starts = [entry.start for entry in self._maps]

    def find(self, address: int) -> MapsEntry | None:
        i = bisect.bisect_right(self._starts, address) - 1
        if i >= 0 and address < self._maps[i].end:
            return self._maps[i]
        return None


def _from_row(row: Sequence[Any], maps: _Maps) -> Address:
    address, place, field, obj, type_, block, size, offset, _, name, owner, of = row
    answer = Address(
        address=address,
        place=PLACES[place],
        mapping=None if place == 0 else maps.find(address),
    )
    if not block:
        return answer
    return replace(
        answer,
        block=block,
        block_size=size,
        offset=offset,
        field=FIELDS[field],
        object=obj or None,
        type_name=name or None,
        type_address=type_ or None,
        owner=owner or None,
        owner_type=of or None,
    )


def _read_word(memory: int, address: int) -> int:
    try:
        return int.from_bytes(os.pread(memory, 8, address), "little")
    except OSError:
        return 0


def _field_at(offset: int, known: Address) -> str | None:
    if known.object is not None:
        return known.field
    if 0 <= offset < 16:
        return "reference count" if offset < 8 else "type"
    return "payload" if offset >= 16 else "pre-header"


def _with_census(answer: Address, census: Census, memory: int, own: bool) -> Address:
    """The answer, corrected by what the census knows to be an object."""
    if answer.place in _HOLDS_NO_OBJECT:
        return answer
    if answer.block is not None:
        # In its block an object begins at 0, 16 or 32 bytes, under the debug hooks 16
        # more.
        room = min(48, (answer.block_size or 1) - 1)
        start = census.before(answer.block + room, room + 1)
    elif answer.place == "static data" and own:
        start = census.before(answer.address, 1 << 12)
        if start and answer.address >= start + census.static_size(start):
            start = 0
    else:
        start = 0
    if not start or start == answer.object:
        return answer
    type_address = _read_word(memory, start + 8)
    name = census.type_of(type_address)
    if name is None:
        return answer  # it has been freed since, and the block used again
    offset = answer.address - start
    return replace(
        answer,
        place="object" if answer.block is not None else answer.place,
        object=start,
        type_address=type_address,
        type_name=name,
        offset=offset,
        field=_field_at(offset, replace(answer, object=None)),
        owner=None,
        owner_type=None,
    )


def whatis_many(
    addresses: Iterable[int], census: Census | None = None, pid: int | None = None
) -> list[Address]:
    """``whatis`` for many addresses at once, in their order; much cheaper than singly.

    Some microseconds an address; owners of buffers cost one pass over the whole heap.
    """
    asked = [_check(address) for address in addresses]
    own = pid is None or pid == os.getpid()
    maps = _Maps(pid)
    order = sorted(set(asked))
    rows = _native.where(pid or 0, array("Q", order))
    answers = {row[0]: _from_row(row, maps) for row in rows}
    if census is not None:
        memory = os.open(f"/proc/{pid or 'self'}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for address, answer in answers.items():
                answers[address] = _with_census(answer, census, memory, own)
        finally:
            os.close(memory)
    return [answers[address] for address in asked]


def whatis(
    address: int, census: Census | None = None, pid: int | None = None
) -> Address:
    """What lies at an address of this process, or of another CPython process.

    A pool header, a free block, an object and which field of it, a raw buffer and
    whose, a chunk of glibc's malloc, static data, or just a mapping. Objects are
    recognised by their bytes: a block holds one if what would be its type is one,
    agrees with where in the block the object begins, and fits; a dead object that
    waits in a free list looks alive. A ``census`` of the same process settles it, and
    knows objects in static data too.

    Any address may be asked for: every read is checked, and null, the kernel's half and
    holes are answers, not errors. ``pid`` is a process of the same interpreter image, a
    forked child for example; it had better stand still.

    Raises TypeError and ValueError for what is no 64-bit number, Unsupported on a
    free-threaded build, and Gone or Unreadable as ``smaps`` does.
    """
    return whatis_many([address], census, pid)[0]
