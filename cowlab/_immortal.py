"""immortalize() and freeze(): stop counting references, stop collecting."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

__all__ = [
    "FILLS",
    "FreezeReport",
    "ImmortalReport",
    "freeze",
    "immortalize",
    "prehash",
]

SCHEMA = 2

FILLS = ("dicts", "utf8", "weakrefs")
"""Caches that cost memory once they are filled, in the order of their bits in C."""


@dataclass(frozen=True, slots=True)
class ImmortalReport:
    """What one walk over the objects did.

    ``made`` objects became immortal, by type in ``by_type``; those that were immortal
    before are not counted. ``left`` says what was found and left mortal: reason, then
    type, then how many. ``hashed`` objects had their hash computed and kept.
    ``filled`` counts the caches of ``FILLS`` that were filled, which took
    ``filled_bytes``. ``seconds`` is wall time, with the interpreter held.
    """

    made: int
    by_type: Mapping[str, int]
    left: Mapping[str, Mapping[str, int]]
    hashed: int
    seconds: float
    filled: Mapping[str, int] = field(default_factory=dict)
    filled_bytes: int = 0
    schema: int = field(default=SCHEMA, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "schema": self.schema,
            "made": self.made,
            "by_type": dict(self.by_type),
            "left": {reason: dict(types) for reason, types in self.left.items()},
            "hashed": self.hashed,
            "filled": dict(self.filled),
            "filled_bytes": self.filled_bytes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class FreezeReport:
    """``frozen`` objects are in the permanent generation now, ``added`` of them new."""

    frozen: int
    added: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {"frozen": self.frozen, "added": self.added, "seconds": self.seconds}


Stop = tuple[type, str, bool]


def given_types(keep_mortal: Iterable[type]) -> tuple[type, ...]:
    """``keep_mortal`` as a tuple of types; ``TypeError`` if it is anything else."""
    if isinstance(keep_mortal, type) or not isinstance(keep_mortal, Iterable):
        raise TypeError(
            f"keep_mortal is a list of types, not {keep_mortal!r}: keep_mortal=[dict]"
        )
    kept = tuple(keep_mortal)
    for kind in kept:
        if not isinstance(kind, type):
            raise TypeError(
                f"keep_mortal: {kind!r} is not a type; give the types whose"
                " instances are to stay mortal"
            )
    return kept


def check_roots(what: str, roots: object) -> None:
    """``TypeError`` for what is no list or tuple: it could be one root or many."""
    if roots is not None and not isinstance(roots, (list, tuple)):
        raise TypeError(
            f"{what}: roots is a list or tuple of objects, not"
            f" {type(roots).__name__}: [table] for one object, None for everything"
        )


def stops(keep_mortal: Iterable[type]) -> tuple[Stop, ...]:
    """The types whose instances stay mortal, each with its reason.

    The third member says whether the walk gives the instances back.
    """
    found: list[Stop] = [(FrameType, "frame", False)]
    # Looked up, not imported: what is not loaded has no instances.
    for module, name, reason in (
        ("_io", "_IOBase", "file"),
        ("_socket", "socket", "socket"),
        ("_thread", "lock", "lock"),
        ("_thread", "LockType", "lock"),
        ("_thread", "RLock", "lock"),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            found.append((kind, reason, reason == "file"))
    kept = given_types(keep_mortal)
    # The caller's own come first: their reason is the one to report.
    return (*((kind, "keep_mortal", False) for kind in kept), *found)


def zones() -> tuple[type, ...]:
    """The time zone types that are C code, so that hashing a datetime runs no other."""
    found = []
    for module, name in (("_datetime", "timezone"), ("_zoneinfo", "ZoneInfo")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            found.append(kind)
    return tuple(found)


def name_of(kind: type) -> str:
    """The type's name as a person would import it."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def walk(
    roots: Sequence[object] | None,
    keep_mortal: Iterable[type],
    *,
    prehash: bool,
    immortal: bool,
    fill: Iterable[str] = (),
) -> tuple[ImmortalReport, list[Any]]:
    """One walk; the report, and the files that were met and stay mortal.

    ``fill`` names caches of ``FILLS``.
    """
    from cowlab import _native

    check_roots("immortalize" if immortal else "prehash", roots)
    start = time.perf_counter()
    rows, files, (*counts, filled_bytes) = _native.immortalize(
        None if roots is None else tuple(roots),
        stops(keep_mortal),
        zones(),
        prehash,
        immortal,
        sum(1 << FILLS.index(name) for name in set(fill)),
    )
    seconds = time.perf_counter() - start
    by_type: dict[str, int] = {}
    left: dict[str, dict[str, int]] = {}
    made = hashed = 0
    for kind, reason, made_here, left_here, hashed_here in sorted(
        rows, key=lambda row: -row[2]
    ):
        name = name_of(kind)
        if made_here:
            by_type[name] = by_type.get(name, 0) + made_here
        if left_here:
            types = left.setdefault(reason, {})
            types[name] = types.get(name, 0) + left_here
        made += made_here
        hashed += hashed_here
    filled = dict(zip(FILLS, counts, strict=True))
    report = ImmortalReport(made, by_type, left, hashed, seconds, filled, filled_bytes)
    return report, files


def immortalize(
    roots: Sequence[object] | None = None, *, keep_mortal: Iterable[type] = ()
) -> ImmortalReport:
    """Make objects immortal: no read of one writes its reference count again (PEP 683).

    ``roots`` is a list or tuple of objects: they and all they refer to, except modules
    and their dicts. None is everything that lives. Hash caches of strings, bytes,
    frozensets, tuples and datetimes are filled on the way, as far as no Python code has
    to run for it. Instances of the types in ``keep_mortal`` stay mortal, and so do
    frames, running generators and coroutines, files, sockets, locks, weak references
    with a callback, the buffers of memoryviews, and the JIT's executors; the walk does
    not go on from these.

    There is no way back. An immortal object is never freed: its ``__del__``, the
    ``finally`` of a suspended generator and the callbacks of weak references to it
    never run, and what only it holds is held until the process ends; files are flushed
    then, by an ``atexit`` handler. ``sys.getrefcount`` shows a constant.

    Raises ``Unsupported`` where objects cannot be immortal (before CPython 3.12,
    free-threaded builds) or must not (debug builds), ``TypeError`` for roots that are
    not a list or tuple. About 5 million objects a second, with the interpreter held.
    """
    from cowlab._errors import Unsupported

    if hasattr(sys, "gettotalrefcount"):
        raise Unsupported(
            "immortalize: a debug build asserts on immortal strings:"
            " use a release build of CPython"
        )
    from cowlab._files import flush_at_exit

    report, files = walk(roots, keep_mortal, prehash=True, immortal=True)
    flush_at_exit(files)
    return report


def prehash(roots: Sequence[object] | None = None) -> ImmortalReport:
    """Fill hash caches only; ``made`` is 0. Works on every version with a GIL.

    A str, bytes, frozenset, datetime and (from 3.14) tuple keeps its hash once it is
    asked for, which is a write. Where a hash would run anybody's ``__hash__``, it is
    left.
    """
    return walk(roots, (), prehash=True, immortal=False)[0]


def freeze() -> FreezeReport:
    """``gc.freeze()``, counted: a full collection then writes no header of these.

    Everything the collector tracks now moves to the permanent generation, at once and
    whatever the number, and is never examined again: garbage in it is never found. So
    collect first. It does nothing about reads. A free-threaded build has no generations
    and marks each object, with the same effect.
    """
    before = gc.get_freeze_count()
    start = time.perf_counter()
    gc.freeze()
    seconds = time.perf_counter() - start
    after = gc.get_freeze_count()
    return FreezeReport(after, after - before, seconds)
