"""Arenas and pools against the allocator's own figures, and from outside."""

from __future__ import annotations

import gc
import os
import signal
import sys
import textwrap
import time

import pytest
from conftest import requires
from heap_programs import COMPARE, run

import cowlab
from cowlab._pools import BLOCK_USED, scan

pytestmark = requires("gil")

LOAD = """
lists = [[i] for i in range(60_000)]
texts = [str(i) * (i % 31) for i in range(40_000)]
dicts = [dict.fromkeys(range(i % 9)) for i in range(5_000)]
compare("full")
del lists[::3], texts[1::2], dicts[:2_500]
compare("with holes")
del lists, texts, dicts
compare("emptied")
"""


@pytest.mark.parametrize("allocator", ["pymalloc", "debug"])
def test_equal_to_the_allocator_in_every_size_class(allocator: str) -> None:
    out = run(COMPARE + LOAD, {"PYTHONMALLOC": allocator})
    assert out.count("equal") == 3


def test_equal_while_threads_allocate() -> None:
    program = """
    import threading
    stop = False
    def churn(seed):
        kept = []
        while not stop:
            kept.append([str(seed + len(kept))] * (len(kept) % 40))
            if len(kept) > 5_000:
                del kept[::2]
    threads = [threading.Thread(target=churn, args=(i,)) for i in range(2)]
    sys.setswitchinterval(0.03)
    for thread in threads:
        thread.start()
    import time
    for i in range(3):
        time.sleep(0.02)
        compare(f"under load {i}", tries=20)
    stop = True
    """
    assert run(COMPARE + textwrap.dedent(program)).count("equal") == 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="one allocator for all in 3.11")
def test_a_subinterpreter_has_its_own_arenas() -> None:
    program = """
    try:
        import _interpreters as interpreters
        sub = interpreters.create()
        execute = lambda text: interpreters.exec(sub, text)
    except ImportError:
        import _xxsubinterpreters as interpreters
        sub = interpreters.create(isolated=True)
        execute = lambda text: interpreters.run_string(sub, text)
    execute("kept = [[i] for i in range(50_000)]")
    compare("main")
    both = {a.interpreter for a in cowlab.arenas()}
    assert both == {0, 1}, both
    error = execute("kept_too = [str(i) for i in range(9_999)]" + chr(10) + COMPARE
        + 'compare("sub")')
    assert not error, error
    """
    lead = f"import cowlab\nCOMPARE = {COMPARE!r}\n"
    out = run(lead + COMPARE + textwrap.dedent(program))
    assert out.count("equal") == 2


def test_a_stopped_child_read_from_outside_equals_its_own_figures() -> None:
    kept = [[i, str(i)] for i in range(30_000)]
    del kept[::7]
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # garbage of other tests would go after it was counted
            own = [(i,) for i in range(20_000)]
            del own[::2]
            me, stop, native = os.getpid(), signal.SIGSTOP, cowlab._native
            rows = native.scan_heap(None, False)
            text = repr(
                [
                    tuple(c)
                    for c in cowlab._pools.Pools(rows[0], rows[2]).by_size_class()
                ]
            ).encode()
            del rows
            os.write(write_end, len(text).to_bytes(4, "big") + text)
            os.kill(me, stop)
        finally:
            os._exit(0)
    try:
        os.waitpid(pid, os.WUNTRACED)
        size = int.from_bytes(os.read(read_end, 4), "big")
        inside = eval(os.read(read_end, size))
        outside = cowlab.pools(pid)
        by_class = [tuple(c) for c in outside.by_size_class()]
        # The child allocated its report after it had counted: a few blocks.
        assert len(outside) > 100
        assert [c[0] for c in by_class] == [c[0] for c in inside]
        differing = sum(abs(a[3] - b[3]) for a, b in zip(by_class, inside, strict=True))
        assert differing < 300
        assert outside.column("address") == cowlab.pools(pid).column("address")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read_end)
        os.close(write_end)


def test_a_running_process_is_read_without_harm() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            kept: list[object] = []
            while True:
                kept.append([len(kept)])
                if len(kept) > 50_000:
                    del kept[::3]
        finally:
            os._exit(0)
    try:
        for _ in range(10):
            heap = scan(pid)
            for arena in heap.arenas:
                parts = arena.live + arena.free + arena.retired + arena.overhead
                assert parts == arena.size == 1 << 20
            assert {p.arena for p in heap.pools} == set(heap.arenas.column("address"))
            time.sleep(0.01)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_reading_a_process_populates_nothing_in_it() -> None:
    """A child with a large mapping it never touched has no more pages afterwards."""
    import mmap

    with mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        try:
            while cowlab.stat(pid).state != "S":  # until it waits, it touches pages
                time.sleep(0.001)
            before = cowlab.smaps_rollup(pid).rss
            tables = cowlab.status(pid).vm_pte
            cowlab.arenas(pid)
            assert cowlab.smaps_rollup(pid).rss == before
            assert cowlab.status(pid).vm_pte == tables
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert len(area) == 64 << 20


def test_counting_allocates_nothing_on_the_heap_that_is_counted() -> None:
    """Two scans in a row differ at most by the few objects that hold the first."""
    gc.collect()  # or the collector frees garbage of other tests between the two
    cowlab.pools()
    first = cowlab.pools()
    second = cowlab.pools()
    used = [sum(p.used for p in table) for table in (first, second)]
    assert abs(used[1] - used[0]) < 100


def test_states_of_blocks_agree_with_the_counts() -> None:
    kept = [object() for _ in range(5_000)]
    del kept[::2]
    table = cowlab.pools(blocks=True)
    for pool in table:
        states = bytes(table.states(pool))
        assert len(states) == pool.capacity
        assert states.count(BLOCK_USED) == pool.used + pool.retired
    assert len(table.states(table[0])) == table[0].capacity
    without = cowlab.pools()
    assert len(without.states(without[0])) == 0


def test_a_table_is_a_structured_array_on_request() -> None:
    numpy = pytest.importorskip("numpy")
    table = cowlab.pools()
    array = numpy.asarray(table)
    assert array["used"].tolist() == table.column("used")
    assert array.dtype.names == table[0]._fields
    assert not array.flags.writeable
    assert tuple(array[-1]) == tuple(table[-1])


def test_a_copy_of_a_pool_is_not_taken_for_one() -> None:
    """Whole pools of this process, copied to memory that is aligned like theirs, where
    an arena was before: a table of arenas that was freed may still have it."""
    import ctypes
    import mmap
    import struct

    kept = [(i,) for i in range(50_000)]
    full = [p for p in cowlab.pools() if p.used == p.capacity][-20:]
    area = mmap.mmap(-1, 65 * 16384, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    to = (base + 16383) & ~16383
    for i, pool in enumerate(full):
        ctypes.memmove(to + i * 16384, pool.address, 16384)
    arena = struct.pack("QQIIQQQ", to, to + (1 << 20), 0, 64, 0, 0, 0)
    freed_table = arena * 100
    heap = scan()
    assert len(freed_table) == 4800
    assert heap.strays >= len(full) > 10
    assert not {to + i * 16384 for i in range(20)} & {p.address for p in heap.pools}
    assert len(kept) == 50_000


def test_many_that_are_no_table_do_not_hide_it() -> None:
    """More places where a table could begin than are looked at together, each with
    an arena that has copies of pools, and the table behind them."""
    program = """
    import ctypes, mmap, signal, struct
    import cowlab
    kept = [(i,) for i in range(50_000)]
    full = [p for p in cowlab.pools() if p.used == p.capacity][-20:]
    area = mmap.mmap(-1, 65 * 16384, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    to = (ctypes.addressof(ctypes.c_char.from_buffer(area)) + 16383) & ~16383
    for i, pool in enumerate(full):
        ctypes.memmove(to + i * 16384, pool.address, 16384)
    arena = struct.pack("QQIIQQQ", to, to + (1 << 20), 0, 64, 0, 0, 0)
    tables = [arena * 100 for _ in range(20)]
    more = [(i,) for i in range(600_000)]  # the table grows, and moves
    compare("grown")
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        outside = cowlab.arenas(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    missing = {a.address for a in cowlab.arenas()} - {a.address for a in outside}
    print("missing", len(missing))
    """
    out = run(COMPARE + textwrap.dedent(program))
    assert "grown" in out and "missing 0" in out, out


def test_a_table_that_moved_to_a_mapping_of_its_own() -> None:
    """What it was before, freed, comes first in memory and still has its arenas."""
    program = """
    import ctypes
    import cowlab
    kept = [(i,) for i in range(50_000)]
    while len(cowlab.arenas()) < 60:
        kept.append([(i,) for i in range(10_000)])
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    while malloc(6_100) % 4096 != 16:  # until it has no hole for a larger table
        pass
    kept.append([(i,) for i in range(500_000)])
    compare("moved")
    """
    env = {"MALLOC_TOP_PAD_": "0", "MALLOC_MMAP_THRESHOLD_": "3000"}
    assert "moved" in run(COMPARE + textwrap.dedent(program), env)


@pytest.mark.parametrize("allocator", ["malloc", "malloc_debug"])
def test_another_allocator_says_that_there_are_none(allocator: str) -> None:
    program = """
    import cowlab
    try:
        cowlab.arenas()
    except cowlab.Unsupported as error:
        print(error)
    """
    out = run(textwrap.dedent(program), {"PYTHONMALLOC": allocator})
    assert f"its allocator is {allocator}" in out


def test_what_is_no_python_process_says_so() -> None:
    import subprocess

    with subprocess.Popen(["sleep", "60"]) as other:
        time.sleep(0.1)
        try:
            with pytest.raises(cowlab.Unsupported, match="not CPython"):
                cowlab.arenas(other.pid)
        finally:
            other.kill()


def test_a_pid_that_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(cowlab.Zombie):
        cowlab.pools(pid)
    os.waitpid(pid, 0)
    with pytest.raises(cowlab.Gone):
        cowlab.pools(pid)


@pytest.mark.parametrize("pid", [0, -1])
def test_a_pid_that_cannot_be(pid: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        cowlab.pools(pid)
