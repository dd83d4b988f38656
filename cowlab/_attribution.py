"""From a record and a heap to causes: what each copied page was copied for."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cowlab import _errors
from cowlab._blame import (
    ALLOCATION,
    ALLOCATOR,
    BUFFER,
    CODE,
    FREE,
    GC,
    KERNEL,
    LIBC,
    PAYLOAD,
    REFCOUNT,
    STACK,
    STATIC,
    UNKNOWN,
    UNRECORDED,
    Blame,
    BlamedPage,
)
from cowlab._fields import OWNED, payload_field
from cowlab._recorder import Fault, Record, read_record
from cowlab._symbols import Symbolizer, parse_maps

__all__ = ["blame_children", "blame_record", "explain"]

# enum cl_place and enum cl_field
(
    _UNMAPPED,
    _OTHER,
    _IMAGE,
    _POOL_HEADER,
    _BLOCK_FREE,
    _OBJECT,
    _BLOCK_BUFFER,
    _CHUNK_HEADER,
    _CHUNK_FREE,
    _CHUNK,
) = range(10)
_FIELDS = (
    None,
    "reference count",
    "type pointer",
    "GC links",
    "dict or values",
    "weak references",
    "before the object",
    None,
)
_F_REFCOUNT, _F_GC, _F_PAYLOAD = 1, 3, 7


def type_names() -> dict[int, str]:
    """The types of this process by address, with their modules' names."""
    names: dict[int, str] = {}
    todo: list[type] = [object]
    while todo:
        kind = todo.pop()
        if id(kind) in names:
            continue
        module = kind.__dict__.get("__module__", kind.__module__)
        name = kind.__qualname__
        known = isinstance(module, str) and module != "builtins"
        names[id(kind)] = f"{module}.{name}" if known else name
        todo.extend(type.__subclasses__(kind))
    return names


def module_names() -> dict[str, str]:
    """The modules of this process by the file that a code object of theirs names."""
    names: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            names.setdefault(file, name)
    return names


class _Explainer:
    """What every page needs to be explained, looked up once."""

    def __init__(
        self,
        record: Record,
        rest: Iterable[Sequence[Any]],
        done: Iterable[Sequence[Any]],
        counts: Mapping[int, tuple[int, int]],
        stacks: Sequence[tuple[int, int]],
    ) -> None:
        maps = {m.start: m for m in parse_maps(record.maps_start)}
        for mapping in parse_maps(record.maps_stop):
            maps.setdefault(mapping.start, mapping)
        self._symbols = Symbolizer(maps.values())
        self._rest = {row[0]: row for row in rest}
        self._done = {row[0]: row for row in done}
        self._counts = counts
        self._stacks = stacks
        # The types of another program have other addresses.
        ours = os.getpid() in (record.pid, record.parent)
        self._types = type_names() if ours else {}
        self._modules = module_names()
        self._stack = next(
            ((m.start, m.end) for m in maps.values() if m.path == "[stack]"), (0, 0)
        )

    def page(self, fault: Fault | None, page: int) -> BlamedPage:
        if fault is None or not fault.recorded or fault.address is None:
            return BlamedPage(page, UNRECORDED)
        symbol = library = None
        if fault.instruction is not None:
            symbol, library = self._symbols.function(fault.instruction)
        cause, field, kind, freed = self._cause(fault, fault.address, symbol)
        return BlamedPage(
            page,
            cause,
            field,
            kind,
            fault.file,
            fault.line,
            fault.function,
            self._module(fault.file),
            symbol,
            library,
            fault.address,
            freed,
        )

    def _module(self, file: str | None) -> str | None:
        if file is None:
            return None
        name = self._modules.get(file)
        return name or os.path.splitext(os.path.basename(file))[0]

    def _name(self, address: int, name: str) -> str:
        return self._types.get(address, name)

    def _cause(
        self, fault: Fault, address: int, symbol: str | None
    ) -> tuple[str, str | None, str | None, bool]:
        row = self._rest.get(address)
        cause, field, kind = self._by_place(address, row, symbol)
        freed = self._freed(address)
        if fault.kernel:
            cause = KERNEL
        elif (
            freed and cause in (REFCOUNT, GC, BUFFER, LIBC, PAYLOAD) and _frees(symbol)
        ):
            cause = FREE
        return cause, field, kind, freed

    def _freed(self, address: int) -> bool:
        """Whether what lay there at rest was gone when the task was done."""
        rest, done = self._rest.get(address), self._done.get(address)
        if rest is None or done is None:
            return False
        if rest[1] == _OBJECT:
            return done[1] != _OBJECT or done[3:5] != rest[3:5]
        if rest[1] in (_BLOCK_BUFFER, _CHUNK):
            return done[1] in (_BLOCK_FREE, _CHUNK_FREE)
        return False

    def _by_place(
        self, address: int, row: Sequence[Any] | None, symbol: str | None
    ) -> tuple[str, str | None, str | None]:
        if self._stack[0] <= address < self._stack[1]:
            return STACK, "C stack", None
        if any(start <= address < end for start, end in self._stacks):
            return STACK, "Python frames", None
        place = _UNMAPPED if row is None else row[1]
        if place == _IMAGE or (place == _OTHER and self._symbols.is_static(address)):
            return STATIC, self._symbols.variable(address), None
        if row is None or place == _UNMAPPED:
            return UNKNOWN, None, None
        if place == _OBJECT:
            return self._by_field(address, row)
        if place == _POOL_HEADER:
            return self._allocator(address, symbol), "pool header", None
        if place == _BLOCK_FREE:
            return ALLOCATION, "free block", None
        if row[10]:  # a buffer whose owner is known
            owner = row[11]
            return PAYLOAD, OWNED.get(owner, "dict or values"), owner
        if place == _BLOCK_BUFFER:
            return BUFFER, None, None
        if place in (_CHUNK, _CHUNK_FREE, _CHUNK_HEADER):
            return LIBC, _CHUNK_FIELDS[place], None
        return UNKNOWN, None, None

    def _by_field(
        self, address: int, row: Sequence[Any]
    ) -> tuple[str, str | None, str | None]:
        _, _, field, _, type_at, _, _, offset, basicsize, name, _, _ = row
        kind = self._name(type_at, name)
        if field == _F_REFCOUNT:
            return REFCOUNT, REFCOUNT, kind
        if field == _F_GC:
            return GC, GC, kind
        if field != _F_PAYLOAD:
            return PAYLOAD, _FIELDS[field], kind
        meaning = payload_field(kind, offset, basicsize)
        if kind == "code":
            return CODE, meaning, kind
        if kind == "type" or name == "type":
            return STATIC, "type object", kind
        return PAYLOAD, meaning, kind

    def _allocator(self, address: int, symbol: str | None) -> str:
        """A pool's header: what the C function says, or how its count has changed."""
        if symbol is not None:
            if _frees(symbol):
                return FREE
            if "alloc" in symbol.lower() or "_New" in symbol:
                return ALLOCATION
        before, after = self._counts.get(address, (-1, -1))
        if before < 0 or after < 0 or before == after:
            return ALLOCATOR
        return ALLOCATION if after > before else FREE


_FREEABLE = (REFCOUNT, GC, BUFFER, LIBC, PAYLOAD)

_CHUNK_FIELDS = {
    _CHUNK: "chunk in use",
    _CHUNK_FREE: "free memory",
    _CHUNK_HEADER: "bookkeeping",
}


def _frees(symbol: str | None) -> bool:
    """Whether the C function is one that lets go of objects or memory."""
    if symbol is None:
        return False
    name = symbol.lower()
    return any(word in name for word in ("dealloc", "free", "clear", "untrack"))


def limits_of(record: Record, heap: str) -> tuple[str, ...]:
    """What the figures cannot say, as sentences."""
    counts = record.counts
    said = ["A page belongs to its first writer; later ones are not seen."]
    if record.mode == "pages":
        said.append('Recorded "pages": which were copied, not by whom.')
    elif record.mode == "addresses":
        said.append('Recorded "addresses": no Python lines.')
    elif record.mode == "protect":
        said.append(
            'Recorded "protect": only pages of small objects; system calls that wrote '
            "into them failed."
        )
    if record.mode in ("addresses", "lines") and not record.kernel_seen:
        said.append(
            "The kernel may not be looked at here: what system calls wrote has no "
            "record."
        )
    if record.mode in ("lines", "protect") and sys.version_info < (3, 13):
        said.append("CPython 3.11 and 3.12: a line can be one statement early.")
    if heap == "own":
        said.append(
            "Addresses were explained from this process's own memory, as it is now."
        )
    for name, text in _LOSSES.items():
        if counts.get(name):
            said.append(f"{counts[name]:,} {text}")
    if counts.get("hits"):
        said.append(
            f"The recorder took {counts['hits']:,} faults, "
            f"{counts['nanoseconds'] / 1e6:,.1f} ms in its signal handler (the "
            "kernel's delivery of the signals is not in that), and "
            f"{record.memory / (1 << 20):.1f} MiB for the record."
        )
    return tuple(said)


_LOSSES = {
    "late": "records came late (the thread had blocked SIGTRAP): they have no line.",
    "lost": "samples were lost in the kernel's ring.",
    "code_full": "records have no line: too many code objects.",
    "text_full": "records have no line: no room for their code's text.",
    "unprotected": "times protection was given up: too many mappings.",
    "replaced": "time the program took the recorder's signal handler away: what came "
    "after it is unrecorded.",
}


def explain(
    record: Record,
    copied: Iterable[int],
    rest: Iterable[Sequence[Any]],
    done: Iterable[Sequence[Any]] = (),
    counts: Mapping[int, tuple[int, int]] | None = None,
    stacks: Sequence[tuple[int, int]] = (),
    heap: str = "witness",
) -> Blame:
    """Blame from its parts: a record, the pages that were copied, what lay at the
    recorded addresses at rest and when done, how many blocks their pools had in use
    then, and where Python's frames are."""
    explainer = _Explainer(record, rest, done, counts or {}, stacks)
    faults = {fault.page: fault for fault in record.faults}
    return Blame(
        pages=tuple(explainer.page(faults.get(page), page) for page in copied),
        inherited=record.inherited,
        page_size=record.page_size,
        mode=record.mode,
        heap=heap,
        counts=record.counts,
        record_bytes=record.memory,
        limits=limits_of(record, heap),
    )


def blame_children(
    raw: Sequence[Mapping[str, Any]], recorders: Sequence[Any], inherited: int
) -> Blame:
    """Blame for the children of one measure(), one recorder each, as one."""
    native = _errors.native("blame")
    stacks = native.frame_stacks()
    each = []
    for child, recorder in zip(raw, recorders, strict=True):
        copied, rest, done, counts, by_parent = child["evidence"]
        record = read_record(native.recorder_fd(recorder))
        heap = "parent" if by_parent else "witness"
        each.append(explain(record, copied, rest, done, counts, stacks, heap))
    return Blame(
        pages=tuple(page for blame in each for page in blame.pages),
        inherited=inherited,
        page_size=each[0].page_size,
        mode=each[0].mode,
        heap=each[0].heap,
        counts={
            name: sum(blame.counts[name] for blame in each) for name in each[0].counts
        },
        record_bytes=sum(blame.record_bytes for blame in each),
        limits=tuple(dict.fromkeys(text for b in each for text in b.limits)),
    )


def blame_record(record: Record) -> Blame:
    """Blame for a record of this process, or of another that is still there.

    The addresses are explained from the parent's memory, which is as it was at the fork
    as long as the parent does nothing, or from the process's own where the parent's may
    not be read. "Copied" are the pages that are exclusive and have a record, and those
    that are exclusive without one: of these some may have been left alone by the other
    processes, which cannot be told from outside without a witness.
    """
    native = _errors.native("blame")
    copied = [
        f.page
        for f in record.faults
        # Read from outside, nobody has looked at the page map yet.
        if f.end == "exclusive" or (f.recorded and f.end == "unseen")
    ]
    addresses = array("Q", sorted(f.address for f in record.faults if f.address))
    done = native.where(record.pid, addresses)
    heap, rest = "own", done
    if _same_image(record):
        try:
            rest = native.where(record.parent, addresses)
            heap = "parent"
        except OSError:
            pass
    source = record.parent if heap == "parent" else record.pid
    before = native.pool_counts(source, addresses)
    after = native.pool_counts(record.pid, addresses)
    return explain(
        record,
        copied,
        rest,
        done,
        dict(zip(addresses, zip(before, after, strict=True), strict=True)),
        native.frame_stacks() if record.pid == os.getpid() else (),
        heap,
    )


def _same_image(record: Record) -> bool:
    """Whether the parent is still the process that this one was forked from: then it
    has the same file at the same first address."""
    try:
        with open(f"/proc/{record.parent}/maps", "rb") as file:
            return file.readline() == record.maps_start.split(b"\n", 1)[0] + b"\n"
    except OSError:
        return False
