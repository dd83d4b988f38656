"""The catalogue of reads-that-write: everyday operations on inherited objects.

Each has a name, what it does in words, ``make(n)``, which builds ``n`` objects in the
parent, and ``use(data)``, which the child does with them.
"""

from __future__ import annotations

import base64
import bisect
import copy
import csv
import dataclasses
import datetime
import fractions
import functools
import gc
import hashlib
import heapq
import io
import itertools
import json
import marshal
import math
import operator
import os
import pickle
import re
import struct
import sys
import threading
import uuid
import weakref
import zlib
from array import array
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sized
from typing import Any, NamedTuple

from cowlab.experiments._objects import (
    Colour,
    Data,
    Frozen,
    Plain,
    Shape,
    Square,
    bytearrays,
    byteses,
    closures,
    colours,
    datas,
    decimals,
    dicts,
    digits,
    floats,
    functions,
    holes,
    ints,
    lists,
    numbers,
    of,
    paths,
    plains,
    points,
    referred,
    remembering,
    rows,
    sets,
    slotted,
    specials,
    table,
    texts,
    times,
    tuples,
    unicodes,
    warm_functions,
)

__all__ = ["OPERATIONS", "READS", "WRITES", "Operation"]


class Operation(NamedTuple):
    name: str
    about: str
    make: Callable[[int], Any]
    use: Callable[[Any], Any]

    def warm(self) -> None:
        """Done with a few objects, which are let go of: its code has run then."""
        self.use(self.make(50))


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


def look_up_nested(data: Any) -> None:
    for i in range(len(data)):
        data[f"key {i}"]["price"]


def ask_again(data: Any) -> None:
    remembered, keys = data
    for key in keys:
        remembered(key)


def in_groups(data: Any) -> None:
    for _, group in itertools.groupby(data, key=len):
        iterate(group)


def write_csv(data: Any) -> None:
    csv.writer(io.StringIO()).writerows(data)


def entered(one: Any) -> None:
    with one:
        pass


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

READS = (
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
    Operation("list-comprehension", "makes a list of lengths", lists, lambda d: [len(x) for x in d]),
    Operation("list-all", "asks whether all are true", lists, all),
    Operation("list-min-key", "finds the shortest", lists, lambda d: min(d, key=len)),
    Operation("list-sorted-key", "sorts by length", lists, lambda d: sorted(d, key=len)),
    Operation("list-copy", "copies the list", lists, lambda d: d.copy()),
    Operation("list-add", "adds it to itself", lists, lambda d: d + d),
    Operation("list-find", "finds where the last float is", floats, lambda d: d.index(d[-1])),
    Operation("list-tuple", "makes a tuple of it", lists, tuple),
    Operation("list-set", "makes a set of ints", ints, set),
    Operation("list-dict", "makes a dict with texts as keys", texts, dict.fromkeys),
    Operation("list-arguments", "passes all as arguments", ints, lambda d: max(*d)),
    Operation("list-bisect", "searches sorted ints", ints, lambda d: [bisect.bisect(d, x) for x in d]),
    Operation("list-largest", "takes the ten largest", ints, lambda d: heapq.nlargest(10, d)),
    Operation("list-chain", "goes through all rows as one", lists, lambda d: iterate(itertools.chain.from_iterable(d))),
    Operation("list-group", "groups rows by length", lists, in_groups),
    Operation("list-reduce", "multiplies floats", floats, lambda d: functools.reduce(operator.mul, d)),
    Operation("list-fsum", "adds up floats exactly", floats, math.fsum),
    Operation("list-repr", "prints each list", lists, each(repr)),
    Operation("list-copy-each", "copies each list", lists, each(copy.copy)),
    Operation("list-deepcopy", "copies each list and its ints", lists, each(copy.deepcopy)),
    Operation("tuple-iterate", "goes through a list of tuples", tuples, iterate),
    Operation("tuple-index", "takes the first of each", tuples, each(lambda x: x[0])),
    Operation("tuple-unpack", "unpacks each", tuples, unpack),
    Operation("tuple-slice", "takes the end of each", tuples, each(lambda x: x[1:])),
    Operation("tuple-in", "looks for an absent int in each", tuples, each(lambda x: -1 in x)),
    Operation("tuple-less", "compares each with a tuple", tuples, each(lambda x: x < (5, 6))),
    Operation("tuple-itemgetter", "takes two of each", tuples, each(operator.itemgetter(0, 2))),
    Operation("tuple-sorted", "sorts them", tuples, sorted),
    Operation("set-iterate", "goes through a list of sets", sets, iterate),
    Operation("set-in", "asks each set for 1", sets, each(lambda x: 1 in x)),
    Operation("set-union", "unites each with itself", sets, each(lambda x: x | x)),
    Operation("set-difference", "subtracts from each", sets, each(lambda x: x - {1})),
    Operation("set-subset", "compares each with a set", sets, each(lambda x: x <= {1, 2})),
    Operation("frozenset-in", "asks each frozenset for 1", lambda n: [frozenset([i]) for i in range(n)], each(lambda x: 1 in x)),
    Operation("dict-iterate", "goes through the keys of a dict", table, iterate),
    Operation("dict-values", "goes through its values", table, lambda d: iterate(d.values())),
    Operation("dict-items", "goes through its items", table, lambda d: iterate(d.items())),
    Operation("dict-lookup", "looks up every key", table, look_up),
    Operation("dict-miss", "looks up absent keys", table, miss),
    Operation("dict-copy", "copies a dict", table, dict),
    Operation("dict-each-key", "takes a key of each dict", dicts, each(lambda x: x["a"])),
    Operation("dict-get", "asks each for an absent key", dicts, each(lambda x: x.get("c"))),
    Operation("dict-in", "asks whether each has a key", dicts, each(lambda x: "a" in x)),
    Operation("dict-merge", "joins each with another", dicts, each(lambda x: x | {"c": 1})),
    Operation("dict-equal", "compares each with a dict", dicts, each(lambda x: x == {"a": -1, "b": 1})),
    Operation("dict-nested", "looks up a field of every row", rows, look_up_nested),
    Operation("dict-comprehension", "makes a dict of fields", rows, lambda d: {k: v["price"] for k, v in d.items()}),
    Operation("dict-sorted", "sorts the keys", table, sorted),
    Operation("dict-max-key", "finds the row with the highest price", rows, lambda d: max(d, key=lambda k: d[k]["price"])),
    Operation("ordered-dict", "goes through an OrderedDict", lambda n: OrderedDict(table(n)), lambda d: iterate(d.items())),
    Operation("default-dict", "looks up keys of a defaultdict", lambda n: defaultdict(list, table(n)), look_up),
    Operation("counter", "takes the most common", lambda n: Counter(texts(n)), lambda d: d.most_common(10)),
    Operation("chain-map", "looks up keys through a ChainMap", lambda n: ChainMap({}, table(n)), look_up),
    Operation("deque-iterate", "goes through a deque", lambda n: deque(lists(n)), iterate),
    Operation("array-sum", "adds up an array", lambda n: array("d", range(n)), sum),
    # numbers, text, bytes
    Operation("int-add", "adds 1 to each int", ints, each(lambda x: x + 1)),
    Operation("int-compare", "compares each int", ints, each(lambda x: x > 5)),
    Operation("int-str", "prints each int", ints, each(str)),
    Operation("int-format", "prints each with separators", ints, each(lambda x: f"{x:,}")),
    Operation("int-hash", "hashes each int", ints, each(hash)),
    Operation("int-bytes", "makes bytes of each int", ints, each(lambda x: x.to_bytes(8, "little"))),
    Operation("int-parse", "makes ints of texts", digits, each(int)),
    Operation("float-add", "adds 1 to each float", floats, each(lambda x: x + 1.0)),
    Operation("float-str", "prints each float", floats, each(str)),
    Operation("float-parse", "makes floats of texts", digits, each(float)),
    Operation("float-round", "rounds each", floats, each(round)),
    Operation("float-sqrt", "takes the root of each", floats, each(math.sqrt)),
    Operation("fraction-add", "adds 1 to each Fraction", lambda n: [fractions.Fraction(i, 7) for i in range(n)], each(lambda x: x + 1)),
    Operation("decimal-str", "prints each Decimal", decimals, each(str)),
    Operation("decimal-add", "adds 1 to each Decimal", decimals, each(lambda x: x + 1)),
    Operation("str-len", "asks for each length", texts, each(len)),
    Operation("str-hash", "hashes each str", texts, each(hash)),
    Operation("str-equal", "compares each with a str", texts, each(lambda x: x == "no")),
    Operation("str-format", "formats each", texts, each(lambda x: f"<{x}>")),
    Operation("str-upper", "makes each upper case", texts, each(str.upper)),
    Operation("str-strip", "strips each", texts, each(str.strip)),
    Operation("str-replace", "replaces in each", texts, each(lambda x: x.replace("text", "word"))),
    Operation("str-find", "finds a word in each", texts, each(lambda x: x.find("number"))),
    Operation("str-starts", "asks how each begins", texts, each(lambda x: x.startswith("text"))),
    Operation("str-slice", "takes a part of each", texts, each(lambda x: x[5:11])),
    Operation("str-iterate", "goes through the characters of each", texts, each(iterate)),
    Operation("str-add", "adds a word to each", texts, each(lambda x: x + " and more")),
    Operation("str-percent", "formats each with %", texts, each(lambda x: "<%s>" % x)),  # noqa: UP031
    Operation("str-sorted", "sorts them", texts, sorted),
    Operation("str-intern", "interns a copy of each", texts, each(lambda x: sys.intern(x[:4]))),
    Operation("str-regex-sub", "replaces in each by a pattern", texts, each(lambda x: _WORD.sub("", x))),
    Operation("str-split", "splits each", texts, each(str.split)),
    Operation("str-in", "looks for a word in each", texts, each(lambda x: "no" in x)),
    Operation("str-join", "joins them all", texts, "".join),
    Operation("str-encode", "encodes each", texts, each(str.encode)),
    Operation("str-encode-wide", "encodes each that is not ASCII", unicodes, each(str.encode)),
    Operation("str-regex", "searches each", texts, each(_WORD.search)),
    Operation("bytes-len", "asks for each length", byteses, each(len)),
    Operation("bytes-index", "takes a byte of each", byteses, each(lambda x: x[0])),
    Operation("bytes-slice", "takes a part of each", byteses, each(lambda x: x[:5])),
    Operation("bytes-equal", "compares each with bytes", byteses, each(lambda x: x == b"no")),
    Operation("bytes-hex", "prints each as hex", byteses, each(bytes.hex)),
    Operation("bytes-base64", "encodes each in base 64", byteses, each(base64.b64encode)),
    Operation("bytes-sha256", "digests each", byteses, each(lambda x: hashlib.sha256(x).digest())),
    Operation("bytes-crc32", "takes the checksum of each", byteses, each(zlib.crc32)),
    Operation("bytes-memoryview", "views each bytes", byteses, each(memoryview)),
    Operation("bytes-hash", "hashes each bytes", byteses, each(hash)),
    Operation("bytes-hash-all", "hashes a tuple of them", of(byteses), hash),
    Operation("bytes-decode", "decodes each", byteses, each(bytes.decode)),
    Operation("bytearray-index", "takes a byte of each", bytearrays, each(lambda x: x[0])),
    Operation("memoryview", "views each bytearray", bytearrays, each(memoryview)),
    Operation("struct-unpack", "unpacks each bytes", byteses, each(functools.partial(struct.unpack_from, "<q"))),
    # hashes
    Operation("tuple-hash", "hashes each tuple", tuples, each(hash)),
    Operation("tuple-hash-all", "hashes a tuple of them", of(tuples), hash),
    Operation("frozenset-hash", "hashes each frozenset", lambda n: [frozenset([i]) for i in range(n)], each(hash)),
    Operation("datetime-hash", "hashes each datetime", times, each(hash)),
    Operation("datetime-compare", "compares each datetime", times, each(lambda x: x == 1)),
    Operation("datetime-format", "prints each datetime", times, each(str)),
    Operation("datetime-field", "takes the year of each", times, each(lambda x: x.year)),
    Operation("datetime-subtract", "subtracts a datetime from each", times, each(lambda x: x - datetime.datetime(2024, 1, 1))),
    Operation("datetime-strftime", "prints each in a format", times, each(lambda x: x.strftime("%H:%M"))),
    Operation("namedtuple-hash", "hashes each named tuple", points, each(hash)),
    Operation("dataclass-hash", "hashes each frozen dataclass", lambda n: [Frozen(i, i) for i in range(n)], each(hash)),
    Operation("uuid-hash", "hashes each UUID", lambda n: [uuid.UUID(int=i) for i in range(n)], each(hash)),
    Operation("path-str", "prints each path", paths, each(str)),
    # instances
    Operation("attribute", "reads an attribute", plains, each(lambda x: x.value)),
    Operation("attribute-slot", "reads a slot", slotted, each(lambda x: x.value)),
    Operation("attribute-getattr", "reads it by name", plains, each(lambda x: getattr(x, "value"))),  # noqa: B009
    Operation("attribute-hasattr", "asks for an absent one", plains, each(lambda x: hasattr(x, "absent"))),
    Operation("property", "reads a property", plains, each(lambda x: x.prop)),
    Operation("method", "calls a method", plains, each(lambda x: x.method())),
    Operation("method-super", "calls a method that calls super", plains, each(lambda x: x.inherited())),
    Operation("method-static", "calls a static method", plains, each(lambda x: x.static())),
    Operation("method-class", "calls a class method", plains, each(lambda x: x.of_class())),
    Operation("attribute-class", "reads an attribute of the class", plains, each(lambda x: x.kind)),
    Operation("attrgetter", "reads it by attrgetter", plains, each(operator.attrgetter("value"))),
    Operation("cached-property", "asks for a cached property", plains, each(lambda x: x.cached)),
    Operation("special-len", "asks for __len__", specials, each(len)),
    Operation("special-bool", "asks for __bool__", specials, each(bool)),
    Operation("special-iter", "goes through __iter__", specials, each(iterate)),
    Operation("special-item", "asks for __getitem__", specials, each(lambda x: x[0])),
    Operation("special-in", "asks for __contains__", specials, each(lambda x: 0 in x)),
    Operation("special-equal", "asks for __eq__", specials, each(lambda x: x == 0)),
    Operation("special-sorted", "sorts by __lt__", specials, sorted),
    Operation("special-hash", "asks for __hash__", specials, each(hash)),
    Operation("special-str", "asks for __str__", specials, each(str)),
    Operation("special-call", "asks for __call__", specials, each(lambda x: x())),
    Operation("special-with", "enters and leaves each", specials, each(entered)),
    Operation("bound-method", "takes a method, uncalled", plains, each(lambda x: x.method)),
    Operation("isinstance", "asks for the class", plains, each(lambda x: isinstance(x, Plain))),
    Operation("isinstance-abc", "asks for an abstract class", lambda n: [Square() for _ in range(n)], each(lambda x: isinstance(x, Shape))),
    Operation("isinstance-protocol", "asks whether each is Sized", lists, each(lambda x: isinstance(x, Sized))),
    Operation("callable", "asks whether each can be called", specials, each(callable)),
    Operation("sizeof", "asks for the size of each", lists, each(sys.getsizeof)),
    Operation("type", "takes the type", plains, each(type)),
    Operation("id", "takes the id", plains, each(id)),
    Operation("repr", "prints each", plains, each(repr)),
    Operation("instance-dict", "takes __dict__", plains, each(lambda x: x.__dict__)),
    Operation("weakref", "makes a weak reference", plains, each(weakref.ref)),
    Operation("weakref-call", "follows weak references", referred, lambda d: [x() for x in d[1]]),
    Operation("copy", "copies each", plains, each(copy.copy)),
    Operation("deepcopy", "copies each and what it holds", plains, each(copy.deepcopy)),
    Operation("pickle", "pickles each", plains, each(pickle.dumps)),
    Operation("pickle-list", "pickles each list", lists, each(pickle.dumps)),
    Operation("pickle-dict", "pickles each dict", dicts, each(pickle.dumps)),
    Operation("marshal", "marshals each list", lists, each(marshal.dumps)),
    Operation("csv", "writes rows as CSV", tuples, write_csv),
    Operation("pickle-text", "pickles each str that is not ASCII", unicodes, each(pickle.dumps)),
    Operation("json", "writes each dict as JSON", dicts, each(json.dumps)),
    Operation("json-parse", "parses each number as JSON", digits, each(json.loads)),
    Operation("dataclass-equal", "compares dataclasses", datas, each(lambda x: x == Data(1, 1))),
    Operation("dataclass-repr", "prints each dataclass", datas, each(repr)),
    Operation("dataclass-asdict", "makes a dict of each", datas, each(dataclasses.asdict)),
    Operation("dataclass-replace", "makes a changed copy of each", datas, each(lambda x: dataclasses.replace(x, a=0))),
    Operation("namedtuple", "reads a named field", points, each(lambda x: x.x)),
    Operation("namedtuple-asdict", "makes a dict of each", points, each(lambda x: x._asdict())),
    Operation("enum-value", "takes the value of each member", colours, each(lambda x: x.value)),
    Operation("enum", "compares enum members", colours, each(lambda x: x is Colour.BLUE)),
    Operation("match", "matches a sequence pattern", lists, each(matched)),
    Operation("getrefcount", "asks for the count", lists, each(sys.getrefcount)),
    # code
    Operation("call-first", "calls each function once", functions, each(lambda f: f(1))),
    Operation("call-again", "calls each that was called before", warm_functions, each(lambda f: f(1))),
    Operation("call-partial", "calls partials", lambda n: [functools.partial(int, i) for i in range(n)], each(lambda f: f())),
    Operation("call-closure", "calls closures", closures, each(lambda f: f())),
    Operation("call-remembered", "asks a full lru_cache again", remembering, ask_again),
    Operation("generator-next", "advances generators", lambda n: [numbers() for _ in range(n)], each(next)),
    Operation("generator-all", "advances them by zip", lambda n: zip(*[numbers() for _ in range(n)]), next),  # noqa: B905
    Operation("raise", "raises inherited exceptions", lambda n: [ValueError(i) for i in range(n)], each(caught)),
    Operation("lock", "takes and releases locks", lambda n: [threading.Lock() for _ in range(n)], each(entered)),
)  # fmt: skip
"""What changes nothing that a program could see."""

WRITES = (
    Operation("attribute-write", "sets an attribute", plains, each(set_value)),
    Operation("slot-write", "sets a slot", slotted, each(set_value)),
    Operation("list-write", "sets an item of each", lists, each(set_first)),
    Operation("list-append", "appends to each list", lists, each(lambda x: x.append(None))),
    Operation("dict-write", "sets a key that is there", dicts, each(set_a)),
    Operation("dict-new-key", "sets a new key", dicts, each(set_new)),
    Operation("set-add", "adds to each set", sets, each(lambda x: x.add(None))),
    Operation("bytearray-write", "writes a byte of each", bytearrays, each(lambda x: x.__setitem__(0, 1))),
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
"""What changes the objects, or the heap and the collector's lists around them."""

OPERATIONS = (*READS, *WRITES)
