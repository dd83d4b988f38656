"""prepare_fork(): each step by the pages that a real child copies.

What it does lasts for the life of a process, so each test has one of its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import FEW_PAGES, immortality, requires
from fresh import HEAP, fresh

import cowlab
from cowlab._prepare import STEPS

pytestmark = requires("gil")

LISTS = HEAP + "table = [[i, i + 1, i + 2] for i in range(%d)]\n"

HOLES = (
    HEAP
    + """
table = [(i, i + 1) for i in range(200_000)]
table = [row for i, row in enumerate(table) if i %% 3]

def tuples():
    return len([(i, i + 1) for i in range(%d)])
"""
)


@immortality
def test_reads_and_collection_copy_next_to_nothing() -> None:
    plain, rest, busy = fresh(
        LISTS % 200_000
        + "plain = cowlab.measure(both).copied\n"
        + "cowlab.prepare_fork()\n"
        + "rest = cowlab.measure(empty).copied\n"
        + "print(json.dumps([plain, rest, cowlab.measure(both).copied]))"
    )
    assert plain > 5_000
    assert busy <= rest + FEW_PAGES


@requires("release_build")
def test_new_objects_do_not_go_into_the_holes_of_shared_pages() -> None:
    measured = "print(json.dumps(cowlab.measure(tuples).copied))"
    holes = HOLES % 60_000
    plain = fresh(holes + measured)
    sealed = fresh(holes + "cowlab.prepare_fork()\n" + measured)
    assert plain > 1_000
    assert sealed <= 128


@requires("release_build")
def test_a_heap_that_is_locked_in_memory_is_not_trimmed() -> None:
    locked, reason, sealed = fresh(
        HOLES % 1_000
        + """
import ctypes
table = table[::100]
pool = ctypes.c_void_p(id(table[len(table) // 2]) & -16384), ctypes.c_size_t(16384)
locked = ctypes.CDLL(None).mlock(*pool) == 0
report = cowlab.prepare_fork()
steps = report.step("trim"), report.step("seal")
print(json.dumps([locked, steps[0].reason, steps[1].done]))
"""
    )
    if not locked:
        pytest.skip("RLIMIT_MEMLOCK is less than 16 KiB")
    assert "locked in memory" in reason
    assert sealed


@requires("release_build")
@pytest.mark.parametrize("seal", [True, False])
def test_what_the_parent_makes_later_is_sealed_before_the_next_fork(seal: bool) -> None:
    copied = fresh(
        HOLES % 20_000
        + f"""
cowlab.prepare_fork()
more = [(i, i + 1) for i in range(100_000)]
more = [row for i, row in enumerate(more) if i % 3]
import cowlab._prepare as prepared
prepared._forks.seal = {seal}
print(json.dumps(cowlab.measure(tuples).copied))
"""
    )
    assert copied <= 128 if seal else copied > 256


@requires("release_build")
def test_seal_finds_the_same_pools_by_list_and_by_scan() -> None:
    sealed, left, open_pools = fresh(
        HEAP
        + """
from cowlab import _native
table = [[(i, i + 1) for i in range(50_000)], [bytes(i % 400) for i in range(9000)]]
table = [row[::3] for row in table]
sealed = _native.seal_pools(True)["pools_sealed"]
left = _native.seal_pools(False)["pools_sealed"]
table.append([(i, i + 1) for i in range(50_000)][::3])
print(json.dumps([sealed, left, _native.seal_pools(False)["pools_sealed"]]))
"""
    )
    assert sealed > 300
    assert left < 40  # the seal's own, and its scan's
    assert open_pools > 100


@immortality
def test_immortal_without_the_hashes_and_the_freeze_is_not_enough() -> None:
    """Each step does its own part: the test of the test."""
    unfrozen, frozen = fresh(
        LISTS % 100_000
        + "cowlab.prepare_fork(freeze=False)\n"
        + "first = cowlab.measure(gc.collect).copied\n"
        + "cowlab.freeze()\n"
        + "print(json.dumps([first, cowlab.measure(gc.collect).copied]))"
    )
    assert unfrozen > 1_000
    assert frozen < unfrozen / 10


def test_hashes_are_filled_on_every_version() -> None:
    code = (
        HEAP
        + "table = [b'%%d' %% i * 3 for i in range(100_000)]\n"
        + "def hashes():\n"
        + "    for value in table:\n"
        + "        hash(value)\n"
        + "if %s:\n"
        + "    cowlab.prepare_fork(immortalize=%s)\n"
        + "print(json.dumps(cowlab.measure(hashes).copied))\n"
    )
    plain = fresh(code % (False, False))
    immortal = bool(cowlab.host().immortality and cowlab.host().release_build)
    prepared = fresh(code % (True, immortal))
    assert plain > 800
    if immortal:
        assert prepared <= plain / 10
    else:  # the reference counts are still written
        assert prepared <= plain + 64


def test_gc_is_off_in_the_parent_and_on_in_each_child() -> None:
    assert fresh(
        HEAP
        + """
import threading, multiprocessing
cowlab.prepare_fork()
cowlab.prepare_fork()
here = gc.isenabled()
def report(results):
    results.put(gc.isenabled())
results = multiprocessing.get_context("fork").SimpleQueue()
child = multiprocessing.get_context("fork").Process(target=report, args=(results,))
child.start(); child.join()
read, write = os.pipe()
if os.fork() == 0:
    # Switched off here on purpose: a grandchild must not undo that.
    first = gc.isenabled()
    gc.disable()
    if os.fork() == 0:
        os.write(write, bytes([first, gc.isenabled()]))
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
print(json.dumps([here, results.get(), *os.read(read, 2)]))
"""
    ) == [False, True, 1, 0]


def test_gc_that_was_off_stays_off() -> None:
    assert (
        fresh(
            HEAP
            + """
gc.disable()
cowlab.prepare_fork()
print(json.dumps(cowlab.measure(gc.isenabled).value))
"""
        )
        is False
    )


def test_hooks_are_installed_once_and_freeze_what_is_new() -> None:
    hooks, before, after, child = fresh(
        HEAP
        + """
installed = []
register = os.register_at_fork
os.register_at_fork = lambda **hooks: (installed.append(1), register(**hooks))
for _ in range(3):
    cowlab.prepare_fork()
more = [[i] for i in range(1000)]
before = gc.get_freeze_count()
if (pid := os.fork()) == 0:
    frozen = gc.get_freeze_count()
    mine = [[i] for i in range(1000)]
    if os.fork() == 0:
        # The child prepared nothing: what it made is not frozen by its forks.
        os._exit(gc.get_freeze_count() > frozen + 500)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps([len(installed), before, gc.get_freeze_count(), child]))
"""
    )
    assert hooks == 1
    assert after >= before + 1000
    assert child == 0


def test_preparation_in_a_child_and_forks_from_there() -> None:
    assert fresh(
        LISTS % 10_000
        + """
cowlab.prepare_fork()
def prepare_again():
    more = [[i] for i in range(10_000)]
    report = cowlab.prepare_fork()
    child = cowlab.measure(reads)
    return report.gc_paused, gc.isenabled(), cowlab.measure(gc.isenabled).value
print(json.dumps(cowlab.measure(prepare_again).value))
"""
    ) == [True, False, True]


def test_under_uwsgi_the_collector_is_not_paused() -> None:
    """Its workers run no hooks: nothing would ever switch it on again."""
    assert fresh(
        LISTS % 1000
        + """
import types
sys.modules["uwsgi"] = types.ModuleType("uwsgi")
report = cowlab.prepare_fork()
print(json.dumps([report.gc_paused, gc.isenabled()]))
"""
    ) == [False, True]


def test_steps_are_in_order_and_each_can_be_left_out() -> None:
    steps = fresh(
        HEAP
        + """
report = cowlab.prepare_fork(collect=False, seal=False, warm=lambda: None)
text = json.dumps(report.to_json())
print(json.dumps([[step.name, step.done, step.reason] for step in report.steps]))
"""
    )
    assert [step[0] for step in steps] == [
        "warm",
        "collect",
        "trim",
        "prehash",
        "fill",
        "immortalize",
        "freeze",
        "seal",
    ]
    by_name = {name: (done, reason) for name, done, reason in steps}
    assert by_name["warm"] == (True, "")
    assert by_name["collect"] == (False, "not asked for")
    assert by_name["seal"] == (False, "not asked for")
    assert by_name["freeze"] == (True, "")


def test_strict_refuses_before_anything_is_done() -> None:
    message, warmed, frozen = fresh(
        HEAP
        + """
import tracemalloc
tracemalloc.start()
warmed = []
try:
    cowlab.prepare_fork(warm=lambda: warmed.append(1), strict=True)
except cowlab.Unsupported as error:
    message = str(error)
print(json.dumps([message, warmed, gc.get_freeze_count()]))
"""
    )
    assert re.search("tracemalloc|no-immortality|debug-build", message)
    assert warmed == []
    assert frozen < 1000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("fill=5", "fill is True, False or names (dicts, utf8, weakrefs), not int"),
        ("fill=[5]", "fill: there is no 5. There are: dicts, utf8, weakrefs."),
        ("keep_mortal=dict", "keep_mortal is a list of types, not <class 'dict'>"),
        ("keep_mortal=[5]", "keep_mortal: 5 is not a type"),
        ("roots={}", "prepare_fork: roots is a list or tuple of objects, not dict"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_done(
    wrong: str, message: str
) -> None:
    said, warmed = fresh(
        HEAP
        + f"""
warmed = []
try:
    cowlab.prepare_fork(lambda: warmed.append(1), {wrong})
except (TypeError, cowlab.UsageError) as error:
    print(json.dumps([str(error), warmed]))
"""
    )
    assert said.startswith(message)
    assert not warmed


def test_a_table_in_place_of_warm_is_named() -> None:
    from cowlab._prepare import prepare_fork

    with pytest.raises(TypeError, match=r"not list; for one table.*roots=\[table\]"):
        prepare_fork([1])  # type: ignore[arg-type]


@immortality
def test_fill_is_left_out_where_nothing_becomes_immortal() -> None:
    reason = fresh(
        HEAP
        + """
report = cowlab.prepare_fork(fill=True, immortalize=False)
print(json.dumps(report.step("fill").reason))
"""
    )
    assert "goes with immortalize" in reason


@pytest.mark.parametrize("error", ["LookupError", "MemoryError", "cowlab.Unsupported"])
def test_what_warm_raises_is_passed_on(error: str) -> None:
    assert fresh(
        HEAP
        + f"""
def warm():
    raise {error}("cold")
try:
    cowlab.prepare_fork(warm)
except {error} as error:
    print(json.dumps([str(error), gc.isenabled(), gc.get_freeze_count() < 1000]))
"""
    ) == ["cold", True, True]


def test_a_report_reads_as_a_page_and_not_as_its_fields() -> None:
    lines = fresh(
        HEAP
        + """
import threading, time
threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
log = open("/dev/null")
report = cowlab.prepare_fork(freeze=False)
print(json.dumps(str(report).splitlines()))
"""
    )
    assert re.match(r"Prepared in [\d.]+ s on CPython 3\.", lines[0])
    assert [line.split()[0] for line in lines[1:9]] == list(STEPS)
    assert lines[7].split(None, 1)[1] == "left out: not asked for"
    assert lines[-1].startswith("Warning: threads: 1 other thread")
    assert all(len(line) < 200 for line in lines)


@immortality
def test_no_memory_for_the_walk_says_what_was_done() -> None:
    said, on = fresh(
        HEAP
        + """
import resource
table = [[i] for i in range(600_000)]
cowlab.conditions(), cowlab.seal(True), cowlab.trim(True)
spare = [[i] for i in range(50_000)]
del spare[::2]
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * 4096 + (4 << 20)  # the walk takes more
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    cowlab.prepare_fork(seal=False)
except MemoryError as error:
    print(json.dumps([str(error), gc.isenabled()]))
"""
    )
    assert said.startswith("immortalize: no memory for the walk")
    assert on


@immortality
def test_a_memoryview_is_released_when_the_collector_knows_none_of_it() -> None:
    """From 3.14 a full collection takes immortal objects off its lists."""
    length = fresh(
        HEAP
        + """
import io
array, stream = bytearray(1000), io.BytesIO(bytes(1000))
views = [memoryview(array), stream.getbuffer()]
cowlab.immortalize()
gc.collect()
for view in views:
    view.release()
array.append(1)
print(json.dumps(len(array) + stream.seek(0, 2)))
"""
    )
    assert length == 2001


@immortality
def test_a_tuple_that_is_filled_meanwhile_can_still_grow() -> None:
    """Full at its tenth item, say, it is still to be resized by tuple()."""
    lengths = fresh(
        HEAP
        + """
kept = [([],) for _ in range(100)]
grown = tuple([cowlab.prepare_fork(), []] for _ in range(12))
counts = [sys.getrefcount(row) for row in kept]
more = list(kept)
print(json.dumps([len(grown), counts == [sys.getrefcount(row) for row in kept]]))
"""
    )
    assert lengths == [12, True]


@pytest.mark.parametrize(
    "how",
    ["prepare_fork()", pytest.param("immortalize()", marks=immortality)],
)
def test_files_that_immortals_hold_are_flushed_at_exit(
    how: str, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fresh(
        HEAP
        + f"""
class Log:
    def __init__(self, path):
        self.file = open(path, "w")
log = Log({str(old)!r})
log.file.write("before, ")
cowlab.{how}
log.file.write("after")
log.more = open({str(new)!r}, "w")
log.more.write("made later")
"""
    )
    assert old.read_text() == "before, after"
    assert new.read_text() == "made later"


def test_what_lies_about_its_class_does_not_stop_the_flush(tmp_path: Path) -> None:
    """A proxy answers __class__ with code that can raise; a file's flush can, too."""
    path = tmp_path / "log"
    fresh(
        HEAP
        + f"""
import io
class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("working outside of a request")
class Broken(io.RawIOBase):
    def writable(self):
        raise RuntimeError("no")
broken = [Broken()]
log = [open({str(path)!r}, "w")]
cowlab.prepare_fork()
log[0].write("kept")
proxies = [Proxy(), Broken()]
"""
    )
    assert path.read_text() == "kept"


@pytest.mark.parametrize("status", [0, 3])
def test_exit_codes_and_streams(status: int) -> None:
    assert (
        fresh(
            HEAP
            + f"""
import atexit, threading
class Noisy:
    def __del__(self):
        pass
noisy = Noisy()
noisy.self = noisy
def waiting():
    try:
        yield
    finally:
        pass
generator = waiting()
next(generator)
cowlab.prepare_fork()
atexit.register(lambda: print(json.dumps("last words")))
threading.Thread(target=empty).start()
sys.exit({status})
""",
            status=status,
        )
        == "last words"
    )


def jit_is_here() -> bool:
    jit = getattr(sys, "_jit", None)
    return jit is not None and jit.is_available()


@requires("release_build")
@pytest.mark.skipif(not jit_is_here(), reason="this CPython has no JIT built in")
def test_with_the_jit_its_executors_stay_mortal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHON_JIT", "1")
    enabled, left, child = fresh(
        LISTS % 10_000
        + """
def other():
    return sum(number % 7 for number in range(10_000))
for _ in range(40):
    reads()
report = cowlab.prepare_fork(warm=reads)
pid = os.fork()
for _ in range(40):
    reads(), other()
gc.collect()
if pid:
    child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps([sys._jit.is_enabled(), report.immortal.left, child]))
"""
    )
    assert enabled
    assert left["executor"]["uop_executor"] >= 1
    assert child == 0
