"""The catalogue of reads-that-write: everyday operations on inherited objects.

Each has a name, what it does in words, ``make(n)``, which builds ``n`` objects in the
parent, and ``use(data)``, which the child does with them.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import json
import os
import pickle
import re
import struct
import sys
import threading
import weakref
from array import array
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["OPERATIONS", "Operation"]

Point = namedtuple("Point", "x y")


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = "a name"

    def method(self) -> Any:
        return self.value

    @property
    def prop(self) -> Any:
        return self.value


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass
class Data:
    a: int
    b: float


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Operation(NamedTuple):
    name: str
    about: str
    make: Callable[[int], Any]
    use: Callable[[Any], Any]


# ---- what is built -------------------------------------------------------------------


def lists(n: int) -> list[Any]:
    return [[i, i + 1, i + 2] for i in range(n)]


def tuples(n: int) -> list[Any]:
    return [(i, i + 1, i + 2) for i in range(1000, 1000 + n)]


def dicts(n: int) -> list[Any]:
    return [{"a": i, "b": i} for i in range(n)]


def sets(n: int) -> list[Any]:
    return [{i, i + 1} for i in range(n)]


def floats(n: int) -> list[float]:
    return [float(i) for i in range(n)]


def ints(n: int) -> list[int]:
    return list(range(10**6, 10**6 + n))


def texts(n: int) -> list[str]:
    return [f"text number {i}" for i in range(n)]


def unicodes(n: int) -> list[str]:
    return [f"t\u00ebxt \u2013 {i}" for i in range(n)]


def byteses(n: int) -> list[bytes]:
    return [b"bytes number %d" % i for i in range(n)]


def bytearrays(n: int) -> list[bytearray]:
    return [bytearray(b"bytes number %d" % i) for i in range(n)]


def plains(n: int) -> list[Any]:
    return [Plain(float(i)) for i in range(n)]


def slotted(n: int) -> list[Any]:
    return [Slots(float(i)) for i in range(n)]


def table(n: int) -> dict[str, Any]:
    return {f"key {i}": [i] for i in range(n)}


def times(n: int) -> list[Any]:
    first = datetime.datetime(2024, 1, 1)
    return [first + datetime.timedelta(seconds=i) for i in range(n)]


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def functions(n: int) -> list[Any]:
    space: dict[str, Any] = {}
    exec("\n".join(f"def f{i}(x):\n return x" for i in range(n)), space)
    return [space[f"f{i}"] for i in range(n)]


def warm_functions(n: int) -> list[Any]:
    made = functions(n)
    for function in made:
        function(1)
    return made


def closures(n: int) -> list[Any]:
    def make(value: int) -> Callable[[], int]:
        return lambda: value

    return [make(i) for i in range(10**6, 10**6 + n)]


def referred(n: int) -> Any:
    """Objects, and weak references to them."""
    made = plains(n)
    return made, [weakref.ref(one) for one in made]


def holes(n: int) -> list[Any]:
    """Free blocks between objects in use."""
    made: list[Any] = [bytes(40) + b"%d" % i for i in range(2 * n)]
    del made[::2]
    return made


def of(build: Callable[[int], list[Any]]) -> Callable[[int], tuple[Any, ...]]:
    """In a tuple, whose hash asks each for its own without counting references."""
    return lambda n: tuple(build(n))


# ---- what is done --------------------------------------------------------------------


def each(action: Callable[[Any], Any]) -> Callable[[Any], None]:
    """The action on every object, its result let go of at once."""

    def use(data: Any) -> None:
        for one in data:
            action(one)

    return use


def iterate(data: Any) -> None:
    for _ in data:
        pass


def by_index(data: Any) -> None:
    for i in range(len(data)):
        data[i]


def unpack(data: Any) -> None:
    for a, b, c in data:
        del a, b, c


def look_up(data: Any) -> None:
    for i in range(len(data)):
        data[f"key {i}"]


def miss(data: Any) -> None:
    for i in range(len(data)):
        data.get(f"no key {i}")


def matched(one: Any) -> Any:
    match one:
        case [a, *_]:
            return a
        case {"a": a}:
            return a


def caught(one: Any) -> None:
    try:
        raise one
    except ValueError:
        pass


def set_value(one: Any) -> None:
    one.value = None


def set_first(one: Any) -> None:
    one[0] = None


def set_a(one: Any) -> None:
    one["a"] = None


def set_new(one: Any) -> None:
    one["new"] = None


def locked(one: Any) -> None:
    with one:
        pass


def clear(data: Any) -> None:
    data.clear()


def make_new(data: Any) -> list[bytes]:
    return [bytes(40) + b"%d" % i for i in range(len(data))]


def read_zeroes(data: Any) -> None:
    source = os.open("/dev/zero", os.O_RDONLY)
    for one in data:
        os.readv(source, [one])
    os.close(source)


def collect_young(data: Any) -> int:
    return gc.collect(0)


_WORD = re.compile(r"number (\d+)")

OPERATIONS: tuple[Operation, ...] = (
    Operation("nothing", "does nothing with inherited lists", lists, lambda data: None),
    # looking through containers
    Operation("list-iterate", "goes through a list of lists", lists, iterate),
    Operation("list-index", "takes each list by its index", lists, by_index),
    Operation("list-len", "asks each list for its length", lists, each(len)),
    Operation("list-unpack", "unpacks rows of three ints", lists, unpack),
    Operation("list-slice", "takes all rows in one slice", lists, lambda d: d[:]),
    Operation("list-sum", "adds up floats", floats, sum),
    Operation("list-max", "finds the largest int", ints, max),
    Operation("list-sorted", "sorts ints into a new list", ints, sorted),
    Operation("list-in", "looks for an absent int", ints, lambda d: -1 in d),
    Operation("list-count", "counts an absent float", floats, lambda d: d.count(-1.0)),
    Operation("list-reversed", "goes backwards", lists, lambda d: iterate(reversed(d))),
    Operation("list-enumerate", "enumerates", lists, lambda d: iterate(enumerate(d))),
    Operation("list-zip", "zips it with itself", lists, lambda d: iterate(zip(d, d))),  # noqa: B905
    Operation("list-map", "maps len over it", lists, lambda d: iterate(map(len, d))),
    Operation("list-filter", "filters it", lists, lambda d: [x for x in d if x]),
    Operation("list-equal", "compares each list with itself", lists, lambda d: d == d[:]),
    Operation("tuple-iterate", "goes through a list of tuples", tuples, iterate),
    Operation("tuple-index", "takes the first of each", tuples, each(lambda x: x[0])),
    Operation("set-iterate", "goes through a list of sets", sets, iterate),
    Operation("set-in", "asks each set for 1", sets, each(lambda x: 1 in x)),
    Operation("set-union", "unites each with itself", sets, each(lambda x: x | x)),
    Operation("dict-iterate", "goes through the keys of a dict", table, iterate),
    Operation("dict-values", "goes through its values", table, lambda d: iterate(d.values())),
    Operation("dict-items", "goes through its items", table, lambda d: iterate(d.items())),
    Operation("dict-lookup", "looks up every key", table, look_up),
    Operation("dict-miss", "looks up absent keys", table, miss),
    Operation("dict-copy", "copies a dict", table, dict),
    Operation("dict-each-key", "takes a key of each dict", dicts, each(lambda x: x["a"])),
    Operation("deque-iterate", "goes through a deque", lambda n: deque(lists(n)), iterate),
    Operation("array-sum", "adds up an array", lambda n: array("d", range(n)), sum),
    # numbers, text, bytes
    Operation("int-add", "adds 1 to each int", ints, each(lambda x: x + 1)),
    Operation("float-add", "adds 1 to each float", floats, each(lambda x: x + 1.0)),
    Operation("float-str", "prints each float", floats, each(str)),
    Operation("decimal-add", "adds 1 to each Decimal", lambda n: [decimal.Decimal(i) for i in range(n)], each(lambda x: x + 1)),
    Operation("str-len", "asks for each length", texts, each(len)),
    Operation("str-hash", "hashes each str", texts, each(hash)),
    Operation("str-equal", "compares each with a str", texts, each(lambda x: x == "no")),
    Operation("str-format", "formats each", texts, each(lambda x: f"<{x}>")),
    Operation("str-upper", "makes each upper case", texts, each(str.upper)),
    Operation("str-split", "splits each", texts, each(str.split)),
    Operation("str-in", "looks for a word in each", texts, each(lambda x: "no" in x)),
    Operation("str-join", "joins them all", texts, "".join),
    Operation("str-encode", "encodes each", texts, each(str.encode)),
    Operation("str-encode-wide", "encodes each that is not ASCII", unicodes, each(str.encode)),
    Operation("str-regex", "searches each", texts, each(_WORD.search)),
    Operation("bytes-len", "asks for each length", byteses, each(len)),
    Operation("bytes-hash", "hashes each bytes", byteses, each(hash)),
    Operation("bytes-hash-all", "hashes a tuple of them", of(byteses), hash),
    Operation("bytes-decode", "decodes each", byteses, each(bytes.decode)),
    Operation("bytearray-index", "takes a byte of each", bytearrays, each(lambda x: x[0])),
    Operation("bytearray-write", "writes a byte of each", bytearrays, each(lambda x: x.__setitem__(0, 1))),
    Operation("memoryview", "views each bytearray", bytearrays, each(memoryview)),
    Operation("struct-unpack", "unpacks each bytes", byteses, each(functools.partial(struct.unpack_from, "<q"))),
    # hashes
    Operation("tuple-hash", "hashes each tuple", tuples, each(hash)),
    Operation("tuple-hash-all", "hashes a tuple of them", of(tuples), hash),
    Operation("frozenset-hash", "hashes each frozenset", lambda n: [frozenset([i]) for i in range(n)], each(hash)),
    Operation("datetime-hash", "hashes each datetime", times, each(hash)),
    Operation("datetime-compare", "compares each datetime", times, each(lambda x: x == 1)),
    Operation("datetime-format", "prints each datetime", times, each(str)),
    # instances
    Operation("attribute", "reads an attribute", plains, each(lambda x: x.value)),
    Operation("attribute-slot", "reads a slot", slotted, each(lambda x: x.value)),
    Operation("attribute-getattr", "reads it by name", plains, each(lambda x: getattr(x, "value"))),  # noqa: B009
    Operation("attribute-hasattr", "asks for an absent one", plains, each(lambda x: hasattr(x, "absent"))),
    Operation("property", "reads a property", plains, each(lambda x: x.prop)),
    Operation("method", "calls a method", plains, each(lambda x: x.method())),
    Operation("bound-method", "takes a method, uncalled", plains, each(lambda x: x.method)),
    Operation("isinstance", "asks for the class", plains, each(lambda x: isinstance(x, Plain))),
    Operation("type", "takes the type", plains, each(type)),
    Operation("id", "takes the id", plains, each(id)),
    Operation("repr", "prints each", plains, each(repr)),
    Operation("instance-dict", "takes __dict__", plains, each(lambda x: x.__dict__)),
    Operation("weakref", "makes a weak reference", plains, each(weakref.ref)),
    Operation("weakref-call", "follows weak references", referred, lambda d: [x() for x in d[1]]),
    Operation("copy", "copies each", plains, each(copy.copy)),
    Operation("deepcopy", "copies each and what it holds", plains, each(copy.deepcopy)),
    Operation("pickle", "pickles each", plains, each(pickle.dumps)),
    Operation("pickle-text", "pickles each str that is not ASCII", unicodes, each(pickle.dumps)),
    Operation("json", "writes each dict as JSON", dicts, each(json.dumps)),
    Operation("dataclass-equal", "compares dataclasses", lambda n: [Data(i, i) for i in range(n)], each(lambda x: x == Data(1, 1))),
    Operation("namedtuple", "reads a named field", lambda n: [Point(float(i), i) for i in range(n)], each(lambda x: x.x)),
    Operation("enum", "compares enum members", lambda n: [Colour.RED] * n, each(lambda x: x is Colour.BLUE)),
    Operation("match", "matches a sequence pattern", lists, each(matched)),
    Operation("getrefcount", "asks for the count", lists, each(sys.getrefcount)),
    # code
    Operation("call-first", "calls each function once", functions, each(lambda f: f(1))),
    Operation("call-again", "calls each that was called before", warm_functions, each(lambda f: f(1))),
    Operation("call-partial", "calls partials", lambda n: [functools.partial(int, i) for i in range(n)], each(lambda f: f())),
    Operation("call-closure", "calls closures", closures, each(lambda f: f())),
    Operation("generator-next", "advances generators", lambda n: [numbers() for _ in range(n)], each(next)),
    Operation("generator-all", "advances them by zip", lambda n: zip(*[numbers() for _ in range(n)]), next),  # noqa: B905
    Operation("raise", "raises inherited exceptions", lambda n: [ValueError(i) for i in range(n)], each(caught)),
    Operation("lock", "takes and releases locks", lambda n: [threading.Lock() for _ in range(n)], each(locked)),
    # writes that are meant
    Operation("attribute-write", "sets an attribute", plains, each(set_value)),
    Operation("slot-write", "sets a slot", slotted, each(set_value)),
    Operation("list-write", "sets an item of each", lists, each(set_first)),
    Operation("list-append", "appends to each list", lists, each(lambda x: x.append(None))),
    Operation("dict-write", "sets a key that is there", dicts, each(set_a)),
    Operation("dict-new-key", "sets a new key", dicts, each(set_new)),
    Operation("set-add", "adds to each set", sets, each(lambda x: x.add(None))),
    Operation("readv", "reads a file into each", bytearrays, read_zeroes),
    # the heap
    Operation("delete", "lets go of all", lists, clear),
    Operation("new", "makes as many new objects", lists, make_new),
    Operation("new-in-holes", "makes new ones where old ones were freed", holes, make_new),
    Operation("gc-collect", "collects garbage", lists, lambda d: gc.collect()),
    Operation("gc-collect-young", "collects the youngest only", lists, collect_young),
    Operation("gc-freeze", "freezes", lists, lambda d: gc.freeze()),
    Operation("gc-get-objects", "lists what the collector knows", lists, lambda d: gc.get_objects()),
)  # fmt: skip
