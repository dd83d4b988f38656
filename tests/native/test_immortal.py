"""immortalize(): what it marks, what it leaves, and what it never runs."""

from __future__ import annotations

import ctypes
import datetime
import gc
import io
import os
import sys
import threading
import weakref

import pytest
from conftest import IMMORTALITY, immortality, requires

import cowlab
from cowlab._immortal import immortalize, prehash

pytestmark = requires("gil")

WORDS = {(3, 12): 0xFFFFFFFF, (3, 13): 0xFFFFFFFF}


class Plain:
    pass


class Counting:
    """Has a __hash__ of its own, which must never run behind the program's back."""

    calls = 0

    def __hash__(self) -> int:
        Counting.calls += 1
        return 7


def is_immortal(thing: object) -> bool:
    before = sys.getrefcount(thing)
    more = [thing] * 10
    return sys.getrefcount(thing) == before and len(more) == 10


def word(thing: object) -> int:
    return ctypes.c_uint64.from_address(id(thing)).value


def new(text: str) -> str:
    """A string that nothing else has."""
    return "".join([text, os.urandom(8).hex()])


@immortality
def test_roots_and_all_they_refer_to() -> None:
    leaf = Plain()
    leaf.name = new("leaf")
    key, number = new("key"), 12345678901234567890
    table = {key: [leaf, number], (key, number): frozenset([new("member")])}
    other = Plain()
    report = immortalize([table])
    for thing in (
        table,
        key,
        number,
        leaf,
        leaf.name,
        table[key],
        Plain,
        *next(value for name, value in table.items() if name != key),
    ):
        assert is_immortal(thing), thing
    assert not is_immortal(other)
    assert report.by_type["list"] >= 1
    assert report.made == sum(report.by_type.values())


@immortality
def test_the_word_is_the_one_that_this_version_tests() -> None:
    thing = Plain()
    immortalize([thing])
    # From 3.14 the flags, in the upper half, count as well as the number.
    expected = WORDS.get(sys.version_info[:2], 0x00010000_C0000000)
    assert word(thing) & expected == expected


@immortality
def test_a_second_time_finds_what_is_new_inside_what_is_old() -> None:
    table: list[object] = [new("first")]
    assert immortalize([table]).made >= 2
    assert immortalize([table]).made == 0
    table.append([new("second")])
    assert immortalize([table]).by_type == {"list": 1, "str": 1}


@immortality
def test_a_deep_graph_needs_no_deep_stack() -> None:
    deep: list[object] = []
    for _ in range(1_000_000):
        deep = [deep]
    assert immortalize([deep]).by_type["list"] == 1_000_001


@immortality
def test_what_is_left_mortal_and_why(tmp_path: object) -> None:
    referent = Plain()

    def suspended():
        yield 1

    def running():
        reports.append(immortalize([holder]))
        yield 1

    owned = bytes([1, 2]) * 500
    reports: list[cowlab.ImmortalReport] = []
    waiting, active = suspended(), running()
    next(waiting)
    plain_ref = weakref.ref(referent)
    with open(os.devnull) as file:
        called_back = weakref.ref(referent, print)
        lock = threading.Lock()
        holder = [
            called_back,
            plain_ref,
            file,
            lock,
            threading.RLock(),
            waiting,
            active,
            sys._getframe(),
            memoryview(owned),
        ]
        next(active)
    left = reports[0].left
    assert set(left) >= {
        "weakref with a callback",
        "file",
        "lock",
        "running generator",
        "frame",
        "memoryview's buffer",
    }
    assert left["weakref with a callback"] == {"weakref.ReferenceType": 1}
    assert sum(left["lock"].values()) == 2
    for thing in (called_back, file, lock, active):
        assert not is_immortal(thing), thing
    for thing in (waiting, plain_ref, owned):
        assert is_immortal(thing), thing


@immortality
def test_keep_mortal_has_its_subclasses_and_what_only_they_hold() -> None:
    class Special(Plain):
        pass

    special, ordinary = Special(), Plain
    special.only_here = [new("kept")]
    report = immortalize([[special, ordinary]], keep_mortal=[Special])
    assert not is_immortal(special)
    assert not is_immortal(special.only_here)
    assert sum(report.left["keep_mortal"].values()) == 1


@immortality
def test_data_does_not_lead_to_the_modules_of_its_code() -> None:
    thing = Plain()
    sys.modules[__name__].marker = marker = Plain()
    immortalize([thing, test_data_does_not_lead_to_the_modules_of_its_code])
    assert is_immortal(test_data_does_not_lead_to_the_modules_of_its_code)
    assert not is_immortal(marker)
    assert not is_immortal(globals())
    assert not is_immortal(sys.modules[__name__])


@immortality
def test_a_tuple_that_is_being_filled_can_still_be_resized() -> None:
    def unfinished() -> list[tuple[object, ...]]:
        return [
            found
            for found in gc.get_objects()
            if type(found) is tuple and found and found[0] is first
        ]

    def items():
        for number in range(100):
            if number == 50:
                # From 3.14 on, tuple() shows nothing before it is whole.
                seen = len(unfinished())
                left = immortalize(unfinished()).left
                assert left == ({"unfinished": {"tuple": seen}} if seen else {})
            yield first

    first = Plain()
    assert len(tuple(items())) == 100


def hash_word(value: bytes) -> int:
    """The cached hash of a bytes object: after its reference count, type and size."""
    return ctypes.c_int64.from_address(id(value) + 24).value


def test_prehash_fills_what_is_kept() -> None:
    value = os.urandom(20)
    assert hash_word(value) == -1
    report = prehash([[value]])
    assert report.made == 0
    assert report.hashed >= 1
    assert hash_word(value) == hash(value)


def test_no_hash_of_anybody_else_is_run() -> None:
    class Zone(datetime.tzinfo):
        def utcoffset(self, moment: object) -> datetime.timedelta:
            Counting.calls += 1
            return datetime.timedelta(0)

    mine = Counting()
    members = frozenset([mine])
    Counting.calls = 0
    prehash(
        [
            mine,
            members,
            (1, (mine, "deep")),
            datetime.datetime(2020, 1, 1, tzinfo=Zone()),
        ]
    )
    assert Counting.calls == 0
    assert hash(members) == hash(frozenset([mine]))


def test_hashes_stay_what_they_were() -> None:
    def things() -> list[object]:
        return [
            b"bytes of a kind",
            frozenset(["a", ("b", 3)]),
            (1, (2.5, "x"), None),
            datetime.datetime(2024, 5, 17, 11),
            datetime.datetime(2024, 5, 17, tzinfo=datetime.UTC),
            datetime.timedelta(3, 7),
            datetime.date(1999, 12, 31),
            datetime.time(1, 2, 3),
        ]

    prepared = things()
    prehash([prepared])
    assert [hash(thing) for thing in prepared] == [hash(thing) for thing in things()]


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match="roots is a list or tuple"):
        prehash({"a": 1})  # type: ignore[arg-type]
    if IMMORTALITY:
        with pytest.raises(TypeError, match="not a type"):
            immortalize([[]], keep_mortal=[io.StringIO()])  # type: ignore[list-item]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this version has immortality")
def test_311_says_so() -> None:
    with pytest.raises(cowlab.Unsupported, match=r"CPython 3\.12|a debug build"):
        immortalize([[]])
