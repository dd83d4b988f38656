"""Blame: for each page that was copied, why, and which line did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CAUSES", "Blame", "BlamedPage", "Row"]

SCHEMA = 1

REFCOUNT = "reference count"
GC = "GC links"
ALLOCATION = "allocation"
FREE = "free"
ALLOCATOR = "allocator"
PAYLOAD = "payload"
CODE = "code object"
STATIC = "type or static data"
LIBC = "libc heap"
BUFFER = "raw buffer"
STACK = "stack"
KERNEL = "kernel write"
UNRECORDED = "unrecorded"
UNKNOWN = "unknown"

CAUSES = {
    REFCOUNT: "an object was used: its reference count was written",
    GC: "a collection, or the death of a neighbour, wrote an object's GC head",
    ALLOCATION: "a new object was put in a free block on an inherited page",
    FREE: "an inherited object or buffer was freed",
    ALLOCATOR: "pymalloc's own bookkeeping; allocation or free cannot be told",
    PAYLOAD: "the contents of an object were written; the field says which",
    CODE: "a code object's inline caches or counters were written by running it",
    STATIC: "a type, or static data of the interpreter or of a library",
    LIBC: "memory of the C library's allocator",
    BUFFER: "a block in use that holds no object and has no known owner",
    STACK: "a stack: the C one, or that of Python frames",
    KERNEL: "a system call wrote into the process's memory",
    UNRECORDED: "copied, and nobody saw by whom",
    UNKNOWN: "recorded, but what lies there cannot be told",
}
"""Every cause, and what it means."""

REMEDIES = {
    REFCOUNT: "make what is only read immortal before the fork: cowlab.prepare_fork()",
    GC: "gc.freeze() before the fork (prepare_fork does), and no gc.collect() after it",
    ALLOCATION: "seal the inherited pools before the fork: prepare_fork() does",
    FREE: "let go of it before the fork, or keep it; immortal objects are not freed",
    ALLOCATOR: "seal the inherited pools before the fork: prepare_fork() does",
    PAYLOAD: "write it once before the fork, or keep what changes apart",
    CODE: "call these functions once before the fork (warm up, then fork)",
    STATIC: "mostly a one-time cost of the first use: warm up before the fork",
    LIBC: "few pages are normal; large buffers: allocate them after the fork",
    BUFFER: "data that is written in place belongs in memory of each worker's own",
    STACK: "none needed: a few pages for each process",
    KERNEL: "read into buffers that were made after the fork",
    UNRECORDED: "root and CAP_PERFMON see system calls; SIGTRAP must not be blocked",
    UNKNOWN: "",
}

_FIELD_REMEDIES = {
    "hash cache": "hash them once before the fork: prepare_fork() does",
    "UTF-8 cache": "pickle or encode them once before the fork",
    "dict or values": "o.__dict__ makes a dict: use attributes, or __slots__",
    "weak references": "make the weak references before the fork",
    "generator state": "make generators after the fork",
    "exports": "make the memoryview before the fork and keep it, or use bytes",
}


@dataclass(frozen=True, slots=True)
class BlamedPage:
    """One copied page, and its first writer.

    ``type`` is that of the object on which the write fell, ``field`` what of it was
    written. ``symbol`` is the C function that wrote, None where its file has no sized
    symbol there. ``freed``: the object was gone when the task was done.
    """

    page: int
    cause: str
    field: str | None = None
    type: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    module: str | None = None
    symbol: str | None = None
    library: str | None = None
    address: int | None = None
    freed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Pages that have something in common. ``causes`` and ``types`` split them.

    The name is a cause in parentheses where what the rows are by does not apply: writes
    to a stack have no type, pages without a record no line.
    """

    name: str
    pages: int
    bytes: int
    share: float
    causes: Mapping[str, int]
    types: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Blame:
    """Every page that was copied, each with its first writer.

    A page belongs to whoever wrote to it first; what later writers did is not seen, and
    would have copied it as well. ``heap`` says in whose memory the addresses were
    looked up. ``counts`` are the recorder's own, ``limits`` what these figures cannot
    say.
    """

    pages: tuple[BlamedPage, ...]
    inherited: int
    page_size: int
    mode: str
    heap: str
    counts: Mapping[str, int]
    record_bytes: int
    limits: tuple[str, ...]
    schema: int = SCHEMA

    @property
    def copied(self) -> int:
        """Pages."""
        return len(self.pages)

    def _rows(self, key: Callable[[BlamedPage], str | None]) -> tuple[Row, ...]:
        groups: dict[str, list[BlamedPage]] = {}
        for page in self.pages:
            groups.setdefault(key(page) or f"({page.cause})", []).append(page)
        rows = [
            Row(
                name,
                len(pages),
                len(pages) * self.page_size,
                len(pages) / len(self.pages),
                _counted(page.cause for page in pages),
                _counted(page.type for page in pages if page.type),
            )
            for name, pages in groups.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-row.pages, row.name)))

    def by_cause(self) -> tuple[Row, ...]:
        """Rows by cause, largest first; the names are keys of ``CAUSES``."""
        return self._rows(lambda page: page.cause)

    def by_field(self) -> tuple[Row, ...]:
        """Rows by the field that was written, largest first."""
        return self._rows(lambda page: page.field)

    def by_type(self) -> tuple[Row, ...]:
        """Rows by the type of the object written to, largest first."""
        return self._rows(lambda page: page.type)

    def by_line(self) -> tuple[Row, ...]:
        """Rows by "file:line", largest first."""
        return self._rows(
            lambda page: f"{page.file}:{page.line}" if page.file else None
        )

    def by_function(self) -> tuple[Row, ...]:
        """Rows by "file:qualified name", largest first."""
        return self._rows(
            lambda page: f"{page.file}:{page.function}" if page.file else None
        )

    def by_module(self) -> tuple[Row, ...]:
        """Rows by module, largest first."""
        return self._rows(lambda page: page.module)

    def by_package(self) -> tuple[Row, ...]:
        """Rows by the first part of the module's name, largest first."""
        return self._rows(
            lambda page: page.module.partition(".")[0] if page.module else None
        )

    def by_symbol(self) -> tuple[Row, ...]:
        """Rows by the C function that wrote, largest first."""
        return self._rows(lambda page: page.symbol)

    def advice(self) -> tuple[tuple[str, int, str], ...]:
        """(finding, pages, remedy), for findings of at least a twentieth of all."""
        groups: Counter[tuple[str, str | None]] = Counter()
        for page in self.pages:
            field = page.field if page.field in _FIELD_REMEDIES else None
            groups[page.cause, field] += 1
        return tuple(
            (
                f"{cause}: {field}" if field else cause,
                pages,
                _FIELD_REMEDIES[field] if field else REMEDIES[cause],
            )
            for (cause, field), pages in groups.most_common()
            if pages * 20 >= len(self.pages) and (field or REMEDIES[cause])
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: the rows of every table, the advice, and each page."""
        tables = ("cause", "field", "type", "line", "function", "module", "symbol")
        return {
            "schema": self.schema,
            "mode": self.mode,
            "heap": self.heap,
            "page_size": self.page_size,
            "inherited": self.inherited,
            "copied": self.copied,
            "counts": dict(self.counts),
            "record_bytes": self.record_bytes,
            "limits": list(self.limits),
            "advice": [
                {"finding": finding, "pages": pages, "remedy": remedy}
                for finding, pages, remedy in self.advice()
            ],
            **{
                f"by_{name}": [asdict(row) for row in getattr(self, f"by_{name}")()]
                for name in tables
            },
            "pages": [asdict(page) for page in self.pages],
        }

    def __str__(self) -> str:
        from cowlab.report._blame import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from cowlab.report._blame import as_fragment

        return as_fragment(self)


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
