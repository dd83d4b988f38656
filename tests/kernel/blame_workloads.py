"""Workloads whose copied pages have a cause, a type and a line that are known.

Run with a name, in an interpreter of its own (immortality lasts for its life); prints
what blame says of the planted pages as JSON. A workload returns the task, the addresses
whose pages it plants, and what blame must say; its line is the one marked ``# NAME``.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import sys
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cowlab
from cowlab._symbols import Symbolizer, parse_maps

N = 10_000
IMMORTAL = sys.version_info >= (3, 12) and not hasattr(sys, "gettotalrefcount")
# Whether the interpreter's own functions have names: distributions strip them.
HAS_SYMBOLS = Symbolizer(parse_maps(Path("/proc/self/maps").read_bytes())).names(
    "list_dealloc"
)


@dataclass
class Plant:
    task: Callable[[], Any]
    addresses: Iterable[int]
    causes: tuple[str, ...]
    types: tuple[str | None, ...]
    marks: tuple[str, ...]
    least: int = 50  # pages
    keep: Any = None  # alive until the end


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def still(root: Any) -> tuple[str, ...]:
    """Make the objects immortal, so that using them writes no reference count before
    what is planted. Where there is no immortality, the count may come first."""
    if not IMMORTAL:
        return ("reference count",)
    cowlab.immortalize([root])
    return ()


def before(first: tuple[str, ...]) -> tuple[str, ...]:
    """Where counts come first, the line before is right too: the ``for``."""
    return ("-1",) if first else ()


def iterate() -> Plant:
    data = [[i, i + 1, i + 2] for i in range(2 * N)]

    def task() -> None:
        for _ in data:  # iterate
            pass

    return Plant(task, map(id, data), ("reference count",), ("list",), ("iterate",))


def attribute() -> Plant:
    values = [float(i) for i in range(2 * N)]
    owners = [Slots(value) for value in values]

    def task() -> None:
        for owner in owners:
            owner.value  # noqa: B018  # attribute

    return Plant(
        task, map(id, values), ("reference count",), ("float",), ("attribute",)
    )


def collect() -> Plant:
    # Enough that the few pages shared with other objects of the GC do not matter.
    data = [[i] for i in range(6 * N)]

    def task() -> None:
        gc.collect()  # collect

    return Plant(task, map(id, data), ("GC links",), ("list",), ("collect",), keep=data)


def hash_bytes() -> Plant:
    data = tuple(b"%030d" % i for i in range(2 * N))

    def task() -> None:
        hash(data)  # hash_bytes

    return Plant(task, map(id, data), ("payload",), ("bytes",), ("hash_bytes",))


def hash_frozenset() -> Plant:
    data = tuple(frozenset([i]) for i in range(N))

    def task() -> None:
        hash(data)  # hash_frozenset

    return Plant(task, map(id, data), ("payload",), ("frozenset",), ("hash_frozenset",))


def instance_dict() -> Plant:
    data = [Plain(i) for i in range(N)]
    first = still(data)

    def task() -> None:
        for one in data:
            one.__dict__  # noqa: B018  # instance_dict

    return Plant(
        task,
        map(id, data),
        ("payload", *first),
        ("Plain",),
        ("instance_dict", *before(first)),
    )


def weak_reference() -> Plant:
    data = [Plain(i) for i in range(N)]
    first = still(data)
    kept: list[Any] = []

    def task() -> None:
        for one in data:
            kept.append(weakref.ref(one))  # weak_reference

    return Plant(
        task,
        map(id, data),
        ("payload", *first),
        ("Plain",),
        ("weak_reference", *before(first)),
    )


def generator() -> Plant:
    def numbers() -> Any:
        yield 1
        yield 2

    data = [numbers() for _ in range(N)]
    together = zip(*data, strict=False)

    def task() -> None:
        next(together)  # generator

    return Plant(
        task,
        map(id, data),
        ("payload",),
        ("generator",),
        ("generator", "yield"),
    )


def first_calls() -> Plant:
    space: dict[str, Any] = {}
    exec("\n".join(f"def f{i}(x):\n return x" for i in range(N)), space)
    data = [space[f"f{i}"] for i in range(N)]
    first = still(data)

    def task() -> None:
        for one in data:
            one(1)  # first_calls

    where = [id(one.__code__) for one in data]
    # 3.12 writes nothing until a function has been called a few times.
    least = 50 if sys.version_info[:2] != (3, 12) else 0
    return Plant(
        task,
        where,
        ("code object", *first),
        # A function and its code lie side by side, and either is counted first.
        ("code", "function") if first else ("code",),
        ("exec",),
        least,
    )


def exports() -> Plant:
    data = [bytearray(8) for _ in range(N)]
    first = still(data)

    def task() -> None:
        for one in data:
            memoryview(one)  # exports

    return Plant(
        task,
        map(id, data),
        ("payload", *first),
        ("bytearray",),
        ("exports", *before(first)),
    )


def storage_of(data: Iterable[bytearray]) -> list[int]:
    return [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in data]


def kernel_write() -> Plant:
    data = [bytearray(1000) for _ in range(N)]
    where = [address + 500 for address in storage_of(data)]
    source = os.open("/dev/zero", os.O_RDONLY)

    def task() -> None:
        for one in data:
            os.readv(source, [one])  # kernel_write

    return Plant(
        task,
        where,
        ("kernel write", "unrecorded"),
        ("bytearray", "bytes", None),  # 3.15 keeps its storage in a bytes
        ("kernel_write", None),
    )


def deletion() -> Plant:
    data = [[i] for i in range(2 * N)]
    addresses = [id(one) for one in data]

    def task() -> None:
        data.clear()  # deletion

    # Without symbols only the field is known.
    return Plant(
        task,
        addresses,
        ("free", *(() if HAS_SYMBOLS else ("reference count", "GC links"))),
        ("list", None),
        ("deletion",),
    )


def holes() -> Plant:
    data = [b"%040d" % i for i in range(4 * N)]
    freed = [id(one) for one in data[::2]]
    del data[::2]
    kept: list[bytes] = []

    def task() -> None:
        for _ in range(3 * N // 2):
            kept.append(bytes(41))  # holes

    task.data = data  # type: ignore[attr-defined]
    return Plant(task, freed, ("allocation",), (None,), ("holes",))


def numpy_in_place() -> Plant:
    import numpy

    data = numpy.ones(200_000)
    where = range(data.ctypes.data, data.ctypes.data + data.nbytes, 4096)

    def task() -> None:
        data[:] = 2.0  # numpy_in_place

    return Plant(task, where, ("payload",), ("numpy.ndarray",), ("numpy_in_place",))


def extension_write() -> Plant:
    data = array("q", range(100_000))
    start, count = data.buffer_info()
    where = range(start, start + count * 8, 4096)

    def task() -> None:
        data.byteswap()  # extension_write

    return Plant(task, where, ("payload",), ("array.array",), ("extension_write",))


def two_threads() -> Plant:
    one = [[i] for i in range(2 * N)]
    other = [{i} for i in range(N)]

    def walk_lists() -> None:
        for _ in one:  # walk_lists
            pass

    def walk_sets() -> None:
        for _ in other:  # walk_sets
            pass

    def task() -> None:
        threads = [threading.Thread(target=f) for f in (walk_lists, walk_sets)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return Plant(
        task,
        [*map(id, one), *map(id, other)],
        ("reference count",),
        ("list", "set"),
        ("walk_lists", "walk_sets"),
    )


def prepared() -> Plant:
    data = [[float(i), str(i), (i, i)] for i in range(2 * N)]
    addresses = [id(one) for one in data]
    cowlab.prepare_fork()

    def task() -> int:
        return sum(len(one[1]) for one in data)  # prepared

    return Plant(task, addresses, (), (), (), 0)


WORKLOADS = {
    f.__name__: f
    for f in (
        iterate, attribute, collect, hash_bytes, hash_frozenset, instance_dict,
        weak_reference, generator, first_calls, exports, kernel_write, deletion,
        holes, numpy_in_place, extension_write, two_threads, prepared,
    )
}  # fmt: skip


def line_of(mark: str) -> int:
    for number, text in enumerate(Path(__file__).read_text().splitlines(), 1):
        if text.endswith(f"# {mark}") and not text.lstrip().startswith("#"):
            return number
    raise LookupError(mark)


def lines_of(marks: Iterable[str | None]) -> list[int | None]:
    """The lines that may be blamed; "-1" adds the ones before them, "yield" and "exec"
    leave the line open."""
    marks = tuple(marks)
    lines: list[int | None] = [
        line_of(mark) for mark in marks if mark and mark not in ("-1", "yield", "exec")
    ]
    early = "-1" in marks or sys.version_info < (3, 13)
    return lines + [line - 1 for line in lines if early and line is not None]


def run(name: str, mode: str) -> dict[str, Any]:
    gc.disable()
    plant = WORKLOADS[name]()
    planted = {address & -mmap.PAGESIZE for address in plant.addresses}
    report = cowlab.measure(plant.task, record=mode)
    blame = report.blame
    pages = [page for page in blame.pages if page.page in planted]
    lines = lines_of(plant.marks)
    any_line = {"yield", "exec", None} & set(plant.marks)

    def right(page: Any) -> bool:
        mine = page.file == __file__ and page.line in lines
        return (
            page.cause in plant.causes
            and page.type_tail in plant.types
            and (mine or bool(any_line))
        )

    class View:
        def __init__(self, page: Any) -> None:
            self.cause, self.file, self.line = page.cause, page.file, page.line
            kind = page.type
            self.type_tail = kind.rpartition("__main__.")[2] if kind else None

    views = [View(page) for page in pages]
    wrong = Counter(
        (v.cause, v.type_tail, v.file and os.path.basename(v.file), v.line)
        for v in views
        if not right(v)
    )
    unsure = [p for p in blame.pages if p.cause in ("unrecorded", "unknown")]
    return {
        "copied": report.copied,
        "blamed": blame.copied,
        "planted": len(pages),
        "of": len(planted),
        "least": plant.least,
        "right": len(pages) - sum(wrong.values()),
        "wrong": [[*key, n] for key, n in wrong.most_common(8)],
        "unsure": len(unsure),
        "unsure_kernel": "kernel write" in plant.causes,
        "causes": {row.name: row.pages for row in blame.by_cause()},
        "symbols": {row.name: row.pages for row in blame.by_symbol()[:6]},
        "fields": {row.name: row.pages for row in blame.by_field()[:6]},
        "counts": dict(blame.counts),
        "warnings": list(report.warnings),
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "lines")))
