"""The census: every object that can be reached, by type, and the pages they lie on."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

from cowlab import _native

__all__ = ["Census", "CensusRow", "census"]

_ROW = struct.Struct("=8Q2I")


class CensusRow(NamedTuple):
    """All objects of one type.

    ``bytes`` is what the objects themselves occupy as the allocator rounds it, GC head
    and what else lies before them included, buffers that they own not. ``pages`` are
    those that at least one of them lies on, wholly or in part; ``foreign`` is the bytes
    on these pages that belong to objects of other types. ``foreign / pages`` is then
    what a page of this type shares with others: writing to this type alone copies them.
    """

    type_name: str
    objects: int
    bytes: int
    tracked: int
    frozen: int
    immortal: int
    pages: int
    foreign: int
    type_address: int


class Census(Sequence[CensusRow]):
    """Rows by type, the most bytes first, and which addresses were objects.

    ``address in census`` asks whether an object began there when it was taken; the
    addresses are kept in a mapping of their own, and keep no object alive.
    """

    __slots__ = ("_objects", "_rows", "_types", "seconds", "walk_seconds")

    def __init__(
        self, objects: Any, rows: list[CensusRow], walk: float, sums: float
    ) -> None:
        self._objects = objects
        self._rows = rows
        self._types: dict[int, str] | None = None
        self.walk_seconds = walk
        self.seconds = walk + sums

    @overload
    def __getitem__(self, index: int) -> CensusRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[CensusRow]: ...

    def __getitem__(self, index: int | slice) -> CensusRow | list[CensusRow]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[CensusRow]:
        return iter(self._rows)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, int):
            return item in self._objects
        return item in self._rows

    def __repr__(self) -> str:
        return f"<census of {self.total:,} objects of {len(self):,} types>"

    @property
    def total(self) -> int:
        """How many objects."""
        return len(self._objects)

    def find(self, type_name: str) -> CensusRow:
        """The row of a type, by its name as repr() has it. KeyError if it has none."""
        for row in self._rows:
            if row.type_name == type_name:
                return row
        raise KeyError(type_name)

    def before(self, address: int, within: int = 1 << 16) -> int:
        """The object that begins last at or before an address, or 0.

        ``within`` is how far to look back, bytes.
        """
        found: int = self._objects.before(address, within)
        return found

    def type_of(self, address: int) -> str | None:
        """The name of a type that lies at an address and had instances."""
        if self._types is None:
            self._types = {row.type_address: row.type_name for row in self._rows}
        return self._types.get(address)

    def static_size(self, address: int) -> int:
        """The bytes of an object that lies in a mapped file, never to be freed."""
        size: int = self._objects.static_size(address)
        return size

    def addresses(self) -> memoryview:
        """The addresses of all objects, ascending, as unsigned 64-bit numbers."""
        return memoryview(self._objects.addresses(_native)).cast("Q")


def census(roots: Iterable[object] | None = None) -> Census:
    """Count every object that can be reached, without writing to any of them.

    With ``roots`` only what these reach, they included. Without: what the garbage
    collector tracks, the frozen included, the local variables of running functions,
    everything reached from there, and interned strings. ``tp_traverse`` leaves much out
    (str keys of dicts, the fields of code objects, a range's members, tzinfo, what
    static types hold); that is included too.
    Not found are objects that only a C extension's own variables refer to, and that the
    collector does not track.

    No reference is taken: in a forked child it copies no page that was inherited.
    Depth does not matter. The GIL is held for the whole walk, some 100 ns an object.

    Raises Unsupported on a free-threaded build.
    """
    objects, rows, names, walk, sums = _native.census(
        None if roots is None else tuple(roots)
    )
    made = []
    for address, *figures, name, size in _ROW.iter_unpack(rows):
        if figures[0]:
            text = names[name : name + size].decode()
            made.append(CensusRow._make((text, *figures, address)))
    made.sort(key=lambda row: row.bytes, reverse=True)
    return Census(objects, made, walk, sums)
