"""whatis(): against a census, on hostile addresses, and in another process."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import signal
import sys
import textwrap
import time
from array import array

import pytest
from conftest import requires
from heap_programs import run
from processes import address_of

import cowlab
from cowlab import _native
from cowlab._address import PLACES

pytestmark = requires("gil")


class Slotted:
    __slots__ = ("__weakref__", "x")


class Plain:
    def __init__(self) -> None:
        self.x = 1


def test_against_a_census() -> None:
    """Every object of a heap with many types: none wrong, hardly any missed."""
    program = """
    import asyncio, collections, dataclasses, datetime, decimal, email.message
    import fractions, functools, os, random, re, weakref
    from array import array
    from cowlab import _native

    @dataclasses.dataclass
    class Data:
        a: int
        b: str

    class Slots:
        __slots__ = ("x", "__weakref__")

    def count(n):
        yield from range(n)

    kept = []
    for i in range(400):
        s = Slots()
        s.x = i * 1.5
        kept.append([
            Data(i, str(i)), s, weakref.ref(s), {i: str(i)}, {"a": i},
            set(range(i % 9)), frozenset((i, i + 7)), collections.deque([i]),
            bytearray(i), b"x" * i, chr(233) * (i % 99), chr(20013) * (i % 99),
            count(i), lambda: i, range(i, i * 10**6), slice(1, i), complex(i, 1),
            decimal.Decimal(i), datetime.datetime.now(datetime.timezone.utc),
            datetime.time(1), fractions.Fraction(i + 1, 7), memoryview(b"abc"),
            iter([1]), enumerate([1]), zip([1], [2]), 10**i,
            collections.OrderedDict(a=1), functools.partial(print, i),
            re.compile("a%d" % (i % 50)), [int, float, str][: i % 4],
            [float] * (i % 5), (int,) * (i % 6), type("T%d" % i, (), {}),
            ValueError(i), asyncio.Event(), os.stat("/"),
        ])
        next(kept[-1][12], None)

    objects = _native.census(None)[0]
    addresses = objects.addresses(_native)
    answers = _native.where(0, addresses)
    # What has died meanwhile is no object: this program makes and drops some, too.
    alive = set(array("Q", bytes(_native.census(None)[0].addresses(_native))))
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    right, missed, wrong = 0, [], []
    for address, place, field, found, type_, *rest in answers:
        if place in (1, 2) or address not in alive:
            continue  # static: a census is needed to know where it begins
        true = int.from_bytes(os.pread(memory, 8, address + 8), "little")
        if place != 5:
            missed.append((place, rest))
        elif (found, type_, field) != (address, true, 1):
            wrong.append((address, found, rest))
        else:
            right += 1
    assert not wrong, wrong[:10]
    assert len(missed) <= 5, missed[:10]
    assert right > 30_000
    print(right, len(missed))
    """
    run(textwrap.dedent(program))


@pytest.mark.parametrize("hooks", ["pymalloc", "debug", "malloc", "malloc_debug"])
def test_fields_of_objects(hooks: str) -> None:
    program = """
    import cowlab
    class Plain:
        pass
    made = [Plain() for _ in range(50)]
    made[7].x = 3
    text, number = "".join(["so", "me"]), 10**40
    pair = (text, number)
    large = bytes(2_000)  # from the C library
    asked = [
        (id(large), "reference count", "bytes"), (id(large) + 50, "payload", "bytes"),
        (id(Plain), "reference count", "type"),
        (id(text), "reference count", "str"), (id(text) + 8, "type", "str"),
        (id(text) + 40, "payload", "str"), (id(number) + 3, "reference count", "int"),
        (id(pair) - 16, "GC links", "tuple"), (id(pair) - 1, "GC links", "tuple"),
        (id(pair) + 24, "payload", "tuple"),
        (id(made[7]) - 24, "dict pointer", "Plain"),
    ]
    answers = cowlab.whatis_many(a for a, _, _ in asked)
    for answer, (address, field, name) in zip(answers, asked):
        assert answer.place == "object", answer
        assert (answer.field, answer.type_name) == (field, name), answer
        assert answer.address == address == answer.object + answer.offset
        assert answer.block <= address < answer.block + answer.block_size
        assert name in str(answer) and field in str(answer)
    """
    run(textwrap.dedent(program), {"PYTHONMALLOC": hooks})


def test_whose_buffer() -> None:
    owner = list(range(40))
    where = int.from_bytes(ctypes.string_at(id(owner) + 24, 8), "little")
    answer = cowlab.whatis(where + 16)
    assert answer.place == "buffer"
    assert (answer.owner, answer.owner_type) == (id(owner), "list")
    assert "of the list" in str(answer)


def test_pool_header_and_free_block() -> None:
    # More than all holes take, so that there are new pools, the last of which have room
    # to give for long. Only pools of these sizes are looked at: one that is full of the
    # rows of pools() empties when they go, and becomes one of another size.
    kept = [bytes(size) for size in range(200, 440, 30) for _ in range(6_000)]
    used = [p for p in cowlab.pools() if p.block_size >= 240 and p.used >= 10]
    pool = max(used, key=lambda p: p.virgin)
    assert pool.virgin >= 8
    end = pool.address + 48 + pool.capacity * pool.block_size
    header, virgin = cowlab.whatis_many([pool.address + 20, end - 8])
    assert header.place == "pool header"
    assert virgin.place == "free block", (virgin, pool)
    assert virgin.block_size == pool.block_size
    assert len(kept) == 48_000


def test_a_census_knows_static_objects() -> None:
    census = cowlab.census()
    name = cowlab.whatis(id(int) + 24, census)
    assert (name.place, name.object, name.type_name) == ("static data", id(int), "type")
    assert cowlab.whatis(id(None), census).type_name == "NoneType"
    assert cowlab.whatis(id(int)).object is None


def test_a_census_settles_every_object() -> None:
    gc.collect()  # what earlier tests left would go at any time from here on
    kept = [Slotted() for _ in range(300)] + [Plain() for _ in range(300)]
    census = cowlab.census()
    addresses = [a for a in census.addresses() if a in census][::37]
    answers = [
        answer
        for answer in cowlab.whatis_many(addresses, census)
        if answer.place != "mapping"
    ]
    # The heap goes on: a few were freed since, and their blocks are used again.
    gone = [a for a in answers if a.object != a.address]
    assert len(gone) <= 20, gone
    assert all(a.field == "reference count" for a in answers if a not in gone)
    assert len(kept) == 600


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (0, "near null"),
        (4_096, "near null"),
        ((1 << 47) + 5, "not mapped"),
        ((1 << 63) - 1, "not mapped"),
        (1 << 63, "the kernel's half"),
        ((1 << 64) - 1, "the kernel's half"),
    ],
)
def test_addresses_that_nobody_has(address: int, sentence: str) -> None:
    answer = cowlab.whatis(address)
    assert answer.place == "unmapped"
    assert answer.mapping is None
    assert sentence in str(answer)


def test_any_address_has_an_answer() -> None:
    rng = random.Random(5)
    asked = [rng.randrange(1 << 64) for _ in range(200)]
    asked += [rng.randrange(1 << 47) for _ in range(200)]
    for entry in cowlab.maps():
        asked += [entry.start, entry.end - 1, entry.end]
        asked += [rng.randrange(entry.start, entry.end) for _ in range(5)]
    for answer in cowlab.whatis_many(asked):
        assert answer.place in PLACES
        assert str(answer).startswith(hex(answer.address))


@pytest.mark.parametrize("address", ["0", 1.5, None, True])
def test_what_is_no_address(address: object) -> None:
    with pytest.raises(TypeError, match="an address is an int"):
        cowlab.whatis(address)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", [-1, 1 << 64])
def test_numbers_that_do_not_fit(address: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        cowlab.whatis(address)


def test_in_a_forked_child() -> None:
    kept = [[i] for i in range(100)]
    census = cowlab.census(kept)
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        # A collection, which an at-fork handler may set off, uses the GC links.
        while cowlab.stat(pid).state != "S":
            time.sleep(0.001)
        for answer in cowlab.whatis_many([id(x) for x in kept], census, pid):
            assert (answer.object, answer.type_name) == (answer.address, "list")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with pytest.raises(cowlab.Gone):
        cowlab.whatis(id(kept), pid=pid)


def test_a_stack_and_a_file() -> None:
    stack = next(m for m in cowlab.maps() if m.path == "[stack]")
    assert "[stack]" in str(cowlab.whatis(stack.end - 64))
    image = cowlab.whatis(
        ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value or 0
    )
    assert image.place == "static data"
    assert image.mapping is not None
    assert sys.platform == "linux"


def test_a_large_hole_is_neither_searched_nor_filled() -> None:
    size = 64 << 30
    area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    area[size - 1] = 1
    before = cowlab.status().vm_pte
    answer = cowlab.whatis(address_of(area) + size - 1)
    after = cowlab.status().vm_pte
    assert answer.place in ("mapping", "libc chunk")
    assert before is not None and after is not None
    assert after - before < 1 << 20


def test_a_hundred_thousand_in_one_call() -> None:
    kept = [[i] for i in range(50_000)]
    asked = array(
        "Q", sorted(id(x) + 8 * (i % 2) for i, x in enumerate(kept) for _ in "ab")
    )
    rows = _native.where(0, asked)
    assert len(rows) == len(asked)
    assert all(row[9] == "list" for row in rows)
