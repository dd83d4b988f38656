"""What the readings give and take, as Python objects."""

from __future__ import annotations

import ctypes
import dataclasses
import doctest
import importlib
import mmap
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import cowlab
from cowlab import (
    Gone,
    MapsEntry,
    PageFlag,
    PageMap,
    Smaps,
    SmapsEntry,
    SmapsRollup,
    Stat,
    Status,
    Unsupported,
    Words,
    _native,
    kpagecount,
    maps,
    page_runs,
    pagemap,
    smaps,
    smaps_rollup,
    stat,
    status,
)

PAGE = mmap.PAGESIZE
SOMEWHERE = [(0x10000, 0x20000)]

READINGS: list[Callable[[Any], Any]] = [
    maps,
    smaps,
    smaps_rollup,
    stat,
    status,
    lambda pid: pagemap(pid, SOMEWHERE),
    lambda pid: page_runs(pid, SOMEWHERE),
    cowlab.memory,
]
each_reading = pytest.mark.parametrize("reading", READINGS)


class Index:
    """An integer that is no int, as numpy's are."""

    def __index__(self) -> int:
        return os.getpid()


# ---- process numbers ----


@each_reading
@pytest.mark.parametrize("pid", [True, False, 1.0, "1", b"1", [], 1j, object()])
def test_what_is_no_number_is_a_type_error(
    reading: Callable[[Any], Any], pid: Any
) -> None:
    with pytest.raises(TypeError, match="pid must be an int, or None") as caught:
        reading(pid)
    assert type(pid).__name__ in str(caught.value)


@each_reading
@pytest.mark.parametrize("pid", [0, -1, -(2**31), -(2**200)])
def test_what_is_not_positive_is_a_value_error(
    reading: Callable[[Any], Any], pid: int
) -> None:
    with pytest.raises(ValueError, match="pid must be positive"):
        reading(pid)


@each_reading
@pytest.mark.parametrize("pid", [2**22 + 1, 2**31 - 1, 2**31, 2**32 + 1, 2**200])
def test_what_no_process_has_is_gone(reading: Callable[[Any], Any], pid: int) -> None:
    try:
        with pytest.raises(Gone):
            reading(pid)
    except Unsupported as error:
        pytest.skip(str(error))


def test_an_index_is_a_number() -> None:
    assert smaps(Index()).pid == os.getpid()  # type: ignore[arg-type]
    assert stat(Index()).pid == os.getpid()  # type: ignore[arg-type]


# ---- data ----


@pytest.mark.parametrize("kind", [MapsEntry, SmapsEntry, SmapsRollup, Stat, Status])
def test_records_are_frozen_and_say_what_they_are(kind: type) -> None:
    reading = {
        MapsEntry: lambda: maps()[0],
        SmapsEntry: lambda: smaps()[0],
        SmapsRollup: smaps_rollup,
        Stat: stat,
        Status: status,
    }[kind]
    record = reading()
    assert type(record) is kind
    for field in dataclasses.fields(record):
        getattr(record, field.name)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, field.name, 1)
    assert not hasattr(record, "__dict__")
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(dataclasses.replace(record))
    assert f"{kind.__name__}(" in repr(record)


def test_smaps_is_a_sequence() -> None:
    entries = smaps()
    assert isinstance(entries, Smaps) and len(entries) == len(list(entries))
    assert entries[0] in entries and entries[-1] is entries.entries[-1]
    assert entries[:2] == entries.entries[:2]
    with pytest.raises(IndexError):
        entries[len(entries)]


@pytest.mark.parametrize("kind", [int, object, str, 3, "x", Stat])
def test_the_private_functions_refuse_classes_that_are_not_theirs(kind: Any) -> None:
    with pytest.raises((TypeError, AttributeError, SystemError)):
        _native.maps(None, kind)


# ---- words ----


def a_page_map() -> PageMap:
    memory = mmap.mmap(-1, 4 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[PAGE] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return pagemap(None, [(start, start + 4 * PAGE)])


def test_words_are_a_read_only_buffer_of_64_bit_numbers() -> None:
    words = a_page_map()
    view = memoryview(words)
    assert (view.format, view.itemsize, view.shape) == ("Q", 8, (4,))
    assert view.readonly and view.contiguous
    assert list(view) == list(words) == [words[i] for i in range(4)]
    assert words[-1] == words[3]
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError, match="not writable"):
        ctypes.c_char.from_buffer(words)
    with pytest.raises(IndexError):
        words[4]
    with pytest.raises(IndexError):
        words.address(4)
    assert words.address(-1) == words.address(3) == words.ranges[0][1] - PAGE


def test_a_view_keeps_the_words() -> None:
    view = memoryview(a_page_map())
    assert view[1] >> 63 == 1
    assert sys.getrefcount(view.obj) >= 2


def test_no_pages() -> None:
    words = pagemap(None, [])
    assert len(words) == 0 and bytes(words) == b"" and list(words) == []
    assert words.count("present") == 0 and words.bits("present").tolist() == []
    assert words.frames is not None and len(words.frames) == 0
    assert page_map_of_an_empty_range() == 0


def page_map_of_an_empty_range() -> int:
    return len(pagemap(None, [(PAGE, PAGE)]))


def test_words_cannot_be_made_up() -> None:
    for kind in (Words, PageMap):
        with pytest.raises(TypeError):
            kind()


def test_numpy_views() -> None:
    numpy = pytest.importorskip("numpy")
    words = a_page_map()
    array = words.numpy()
    assert array.dtype == numpy.uint64 and not array.flags.writeable
    assert array.tolist() == list(words)
    assert numpy.shares_memory(array, numpy.asarray(words))
    assert words.present.tolist() == words.bits("present").tolist()
    assert words.present.dtype == bool
    names = ("swapped", "exclusive", "file", "uffd_wp", "guard")
    for name in names:
        assert getattr(words, name).tolist() == words.bits(name).tolist()
    if words.soft_dirty is None:
        with pytest.raises(Unsupported, match="CONFIG_MEM_SOFT_DIRTY"):
            words.count("soft_dirty")
    else:
        assert words.soft_dirty.tolist() == words.bits("soft_dirty").tolist()


@pytest.mark.parametrize("names", [("presnt",), ("",), (3,), ("present", "PRESENT")])
def test_an_unknown_bit_names_the_known_ones(names: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="there are soft_dirty, exclusive"):
        a_page_map().count(*names)


def test_without_may_be_one_name() -> None:
    words = a_page_map()
    assert words.count("present", without="file") == 1  # a string is one name


# ---- ranges ----


@pytest.mark.parametrize(
    "ranges",
    [5, None, "ab", b"ab", (1, 2), [1, 2], [(1,)], [(1, 2, 3)], [("a", "b")], [None],
     [(1.0, 2.0)], range(3), slice(1, 2)],
)  # fmt: skip
@pytest.mark.parametrize("reading", [pagemap, page_runs])
def test_ranges_of_a_wrong_shape(reading: Callable[..., Any], ranges: Any) -> None:
    with pytest.raises(TypeError, match="ranges must be a list of"):
        reading(None, ranges)


@pytest.mark.parametrize("pair", [(-1, 5), (5, 4), (0, 2**64), (2**70, 2**71)])
@pytest.mark.parametrize("reading", [pagemap, page_runs])
def test_ranges_that_no_memory_has(
    reading: Callable[..., Any], pair: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="0 <= start <= end < 2"):
        reading(None, [pair])


def test_ranges_are_rounded_out_to_whole_pages() -> None:
    words = pagemap(None, [(PAGE + 1, PAGE + 2), (5 * PAGE - 1, 5 * PAGE + 1)])
    assert words.ranges == ((PAGE, 2 * PAGE), (4 * PAGE, 6 * PAGE))
    assert len(words) == 3
    assert [words.address(i) for i in range(3)] == [PAGE, 4 * PAGE, 5 * PAGE]


def test_mappings_are_ranges() -> None:
    entry = maps()[0]
    assert pagemap(None, [entry]).ranges == ((entry.start, entry.end),)
    assert pagemap(None, entry).ranges == ((entry.start, entry.end),)  # type: ignore[arg-type]


def test_more_pages_than_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="pages: give smaller ranges"):
        pagemap(None, [(0, 2**63)] * 8)


# ---- frames ----


@pytest.mark.parametrize("frames", [5, "x", b"x", object(), [1.5], ["a"], [None]])
def test_frames_of_a_wrong_type(frames: Any) -> None:
    with pytest.raises(TypeError):
        kpagecount(frames)


@pytest.mark.parametrize("frames", [[-1], [2**64], [1, -5]])
def test_frames_out_of_range(frames: list[int]) -> None:
    with pytest.raises(ValueError, match="a frame number is negative or beyond 64"):
        kpagecount(frames)


def test_frames_that_were_hidden() -> None:
    with pytest.raises(TypeError, match="the kernel hid them from pagemap"):
        kpagecount(None)


def test_flags_have_the_kernels_names() -> None:
    assert PageFlag(1 << 12 | 1 << 22) == PageFlag.ANON | PageFlag.THP


@pytest.mark.parametrize(
    "name", ["_smaps", "_status", "_pagemap", "_memory", "report._smaps"]
)
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith("report"):
        pytest.importorskip("rich")
    done = doctest.testmod(importlib.import_module(f"cowlab.{name}"))
    assert done.attempted > 0 and done.failed == 0
