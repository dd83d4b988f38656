"""Rows that C has written, read without a copy, with numpy or without it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from cowlab._errors import needs

Row = TypeVar("Row", bound=tuple[Any, ...])

_NUMPY = {"B": "u1", "H": "<u2", "I": "<u4", "Q": "<u8", "q": "<i8"}


class Table(Sequence[Row], Generic[Row]):
    """A sequence of named tuples over memory outside the Python heap.

    ``numpy.asarray(table)`` is the same memory as a structured array, read-only;
    ``column`` is one field of every row, without numpy.
    """

    __slots__ = ("_data", "_format", "_type")

    def __init__(self, data: Any, row: type[Row], codes: str) -> None:
        """``codes`` has a struct letter for each field of the named tuple ``row``."""
        self._data = memoryview(data)
        self._format = struct.Struct("=" + codes)
        self._type = row

    def __len__(self) -> int:
        return self._data.nbytes // self._format.size

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        count = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(count))]
        if not -count <= index < count:
            raise IndexError(f"row {index} of a table of {count}")
        at = index % count * self._format.size
        return self._type(*self._format.unpack_from(self._data, at))

    def __iter__(self) -> Iterator[Row]:
        return map(self._type._make, self._format.iter_unpack(self._data))  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self._type.__name__}>"

    def column(self, name: str) -> list[int]:
        """One field of every row."""
        index = self._fields.index(name)
        return [row[index] for row in self._format.iter_unpack(self._data)]

    @property
    def _fields(self) -> tuple[str, ...]:
        fields: tuple[str, ...] = self._type._fields  # type: ignore[attr-defined]
        return fields

    @property
    def dtype(self) -> Any:
        """The rows' type, as numpy names it."""
        with needs("A type of numpy's", "numpy"):
            import numpy as np

        codes = self._format.format[1:]
        pairs = zip(self._fields, codes, strict=True)
        return np.dtype([(name, _NUMPY[code]) for name, code in pairs])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        array = np.frombuffer(self._data, dtype=self.dtype)
        if dtype is not None and dtype != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array


class PoolRow(NamedTuple):
    """One 16 KiB pool of pymalloc. Bytes, except where a field counts blocks."""

    address: int
    arena: int
    first: int
    size_class: int
    block_size: int
    capacity: int
    used: int
    free: int
    virgin: int
    retired: int
    resident: int
    arena_index: int
    interpreter: int
    pages: int


class ArenaRow(NamedTuple):
    """One arena of pymalloc; ``size`` is live + free + retired + overhead, bytes."""

    address: int
    size: int
    live: int
    free: int
    retired: int
    overhead: int
    resident: int
    table: int
    table_index: int
    interpreter: int
    pools: int
    pools_used: int
    pools_empty: int
    blocks_used: int
