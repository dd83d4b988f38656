"""Every word of the report, planted in a known number of pages and found."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from conftest import requires
from fresh import run_python

import cowlab

PAGE = mmap.PAGESIZE
TOTAL = 2000
"""Pages of the planted mapping, every one written in the parent."""

SLACK = 8 if cowlab.host().gil else 96
"""Pages of its own that a task may copy; only these may come on top. The allocator of
a free-threaded build spreads a few objects over more of them."""


def plant(pages: int = TOTAL, *, write: bool = True) -> mmap.mmap:
    """Private anonymous memory, away from every other mapping's kind."""
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    if write:
        touch(memory, range(pages))
    return memory


def touch(memory: mmap.mmap, pages: range) -> None:
    for page in pages:
        memory[page * PAGE] = 1


def look(memory: mmap.mmap, pages: range) -> int:
    return sum(memory[page * PAGE] for page in pages)


def in_anonymous(report: cowlab.ForkReport) -> cowlab.Pages:
    return report.by_kind["anonymous"]


def assert_identities(report: cowlab.ForkReport) -> None:
    for child in report.children:
        for account in (child.task, child.fork_overhead):
            for pages in (account.pages, *account.by_kind.values()):
                assert pages.inherited == (
                    pages.kept
                    + pages.copied
                    + pages.sole
                    + pages.dropped
                    + pages.unknown
                )
            assert account.pages == sum(account.by_kind.values(), cowlab.Pages())
        grown = child.after.private_dirty - child.before.private_dirty
        expected = child.task.pages.private_growth
        assert abs(grown // PAGE - expected) <= max(4, expected // 100)


def unexpected(report: cowlab.ForkReport) -> list[str]:
    """The warnings, without the one that every measurement before Linux 6.7 has."""
    if cowlab.host().pagemap_scan:
        return list(report.warnings)
    return [text for text in report.warnings if "PAGEMAP_SCAN" not in text]


def assert_planted(found: int, planted: int) -> None:
    assert planted <= found <= planted + SLACK


def test_empty_task_copies_almost_nothing():
    report = cowlab.measure(lambda: None)
    assert report.value is None
    assert 0 <= report.copied <= SLACK
    assert report.sole == report.dropped == report.unknown == 0
    assert unexpected(report) == []
    assert_identities(report)


def test_copied():
    memory = plant()
    report = cowlab.measure(touch, memory, range(700, 1200))
    assert_planted(in_anonymous(report).copied, 500)
    assert in_anonymous(report).dropped == 0
    assert_identities(report)


def test_same_page_twice_is_one_copy():
    memory = plant()

    def twice() -> None:
        touch(memory, range(300))
        touch(memory, range(300))

    report = cowlab.measure(twice)
    assert_planted(in_anonymous(report).copied, 300)
    # A second copy of each would make it 600; code that is mapped takes some, too.
    assert report.minor_faults < 450


@pytest.mark.usefixtures("uncollected")
def test_kept():
    memory = plant()
    idle = in_anonymous(cowlab.measure(lambda: None)).kept
    report = cowlab.measure(look, memory, range(TOTAL))
    assert report.value == TOTAL
    assert abs(in_anonymous(report).kept - idle) <= SLACK
    assert in_anonymous(report).kept >= TOTAL
    assert_identities(report)


def measure_while_parent_writes(
    memory: mmap.mmap, pages: range, then: Callable[[], None]
) -> cowlab.ForkReport:
    """A thread of this process writes while the task waits; then the task goes on."""
    go_read, go_write = os.pipe()
    done_read, done_write = os.pipe()

    def parent_writes() -> None:
        os.read(go_read, 1)
        touch(memory, pages)
        os.write(done_write, b"x")

    def wait_for_parent() -> None:
        os.write(go_write, b"x")
        os.read(done_read, 1)
        then()

    writer = threading.Thread(target=parent_writes, daemon=True)
    writer.start()
    try:
        return cowlab.measure(wait_for_parent, timeout=30)
    finally:
        os.write(go_write, b"x")
        writer.join()
        for fd in (go_read, go_write, done_read, done_write):
            os.close(fd)


def test_sole_is_what_the_parent_wrote():
    memory = plant()
    report = measure_while_parent_writes(memory, range(400), lambda: None)
    assert_planted(in_anonymous(report).sole, 400)
    assert in_anonymous(report).copied <= SLACK
    assert any("the parent wrote them" in text for text in report.warnings)
    assert any("other thread" in text for text in report.warnings)
    assert_identities(report)


def test_written_by_both_sides_is_copied():
    memory = plant()
    report = measure_while_parent_writes(
        memory, range(200), lambda: touch(memory, range(100))
    )
    assert_planted(in_anonymous(report).copied, 100)
    assert_planted(in_anonymous(report).sole, 100)
    assert_identities(report)


def test_fresh():
    report = cowlab.measure(lambda: plant(600) and None)
    # The mapping is gone with its object: nothing fresh is left of it.
    assert in_anonymous(report).fresh <= SLACK
    keep: list[mmap.mmap] = []
    report = cowlab.measure(lambda: keep.append(plant(600)))
    assert_planted(in_anonymous(report).fresh, 600)
    assert in_anonymous(report).copied <= SLACK
    assert_identities(report)


@pytest.mark.usefixtures("uncollected")
def test_memory_just_behind_a_library_is_not_the_librarys():
    """Small mappings go to the gaps between libraries."""
    blocks = [plant(16) for _ in range(64)]
    before = cowlab.measure(lambda: None).by_kind["image"].inherited

    def write() -> None:
        for block in blocks:
            touch(block, range(16))

    report = cowlab.measure(write)
    assert_planted(in_anonymous(report).copied, 64 * 16)
    for block in blocks:
        block.close()
    after = cowlab.measure(lambda: None).by_kind["image"].inherited
    assert abs(before - after) <= SLACK


def test_dropped_by_unmapping():
    memory = plant()
    report = cowlab.measure(memory.close)
    assert_planted(in_anonymous(report).dropped, TOTAL)
    assert_identities(report)


def test_dropped_by_advice():
    memory = plant()
    report = cowlab.measure(memory.madvise, mmap.MADV_DONTNEED, 0, 250 * PAGE)
    assert_planted(in_anonymous(report).dropped, 250)
    assert_identities(report)


@pytest.mark.usefixtures("uncollected")
@requires("pagemap_scan")
def test_zero_pages_are_not_inherited():
    before = in_anonymous(cowlab.measure(lambda: None)).inherited
    memory = plant(write=False)
    look(memory, range(TOTAL))
    report = cowlab.measure(lambda: None)
    assert abs(in_anonymous(report).inherited - before) <= SLACK
    report = cowlab.measure(touch, memory, range(300))
    assert_planted(in_anonymous(report).fresh, 300)
    assert in_anonymous(report).copied <= SLACK
    assert_identities(report)


@requires("pagemap_scan")
def test_dropped_then_read_is_not_kept():
    memory = plant()

    def drop_and_look() -> int:
        memory.madvise(mmap.MADV_DONTNEED, 0, 200 * PAGE)
        return look(memory, range(200))

    report = cowlab.measure(drop_and_look)
    assert report.value == 0
    assert_planted(in_anonymous(report).dropped, 200)
    assert_identities(report)


def test_private_file_pages_count_once_written(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"a" * (64 * PAGE))
    with path.open("rb") as file:
        memory = mmap.mmap(
            file.fileno(),
            0,
            flags=mmap.MAP_PRIVATE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    touch(memory, range(16))
    report = cowlab.measure(touch, memory, range(24))
    image = report.by_kind["image"]
    assert_planted(image.copied, 16)
    assert_planted(image.fresh, 8)
    assert_identities(report)


def test_shared_memory_is_no_private_page():
    memory = mmap.mmap(-1, 500 * PAGE)
    report = cowlab.measure(touch, memory, range(500))
    assert report.fresh <= 4 * SLACK
    assert report.copied <= 4 * SLACK
    assert not any("Private_Dirty" in text for text in report.warnings)


def test_a_huge_page_is_split_and_copied_by_the_page():
    size = 4 << 20
    memory = mmap.mmap(-1, 4 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    pages = 4 * size // PAGE
    touch(memory, range(pages))
    report = cowlab.measure(touch, memory, range(1024, 1224))
    assert in_anonymous(report).copied >= 200
    huge_pages_touched = 200 * PAGE // (2 << 20) + 2
    assert in_anonymous(report).copied <= huge_pages_touched * 512 + SLACK
    assert (
        sum((in_anonymous(report).copied, in_anonymous(report).kept))
        == in_anonymous(report).inherited
    )
    memory.close()


def test_a_large_hole_is_skipped():
    """A terabyte of reserved address space costs neither memory nor minutes."""
    size = 1 << 40
    try:
        memory = mmap.mmap(
            -1,
            size,
            flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000,  # MAP_NORESERVE
        )
    except OSError as error:
        pytest.skip(f"no address space to reserve: {error}")
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory[size // 2] = 1
    memory[size - 1] = 1

    def write_in_the_middle() -> None:
        memory[size // 2] = 2

    report = cowlab.measure(write_in_the_middle, timeout=60)
    assert 1 <= in_anonymous(report).copied <= 1 + SLACK
    assert_identities(report)
    memory.close()


def test_a_guard_is_no_page():
    """glibc 2.42 puts one under every thread's stack; in the page map it looks
    swapped out."""
    memory = plant()
    try:
        memory.madvise(102, 0, 100 * PAGE)  # MADV_GUARD_INSTALL
    except OSError as error:
        pytest.skip(f"this kernel has no guards (Linux 6.13): {error}")
    report = cowlab.measure(lambda: None)
    if report.unknown == 100:
        pytest.skip("this kernel's page map does not show guards (Linux 6.15)")
    assert report.unknown == 0
    assert in_anonymous(report).inherited >= TOTAL - 100


def test_setup_runs_here_before_the_fork():
    pids: list[int] = []
    report = cowlab.measure(lambda: list(pids), setup=lambda: pids.append(os.getpid()))
    assert report.value == [os.getpid()]


def test_children_run_at_once_and_report_apart():
    memory = plant()
    arrived_read, arrived_write = os.pipe()
    gates = [os.pipe() for _ in range(3)]

    def meet(number: int) -> int:
        """Returns only when all three are there: they do run at once."""
        os.write(arrived_write, b"x")
        if number == 0:
            for _ in range(3):
                os.read(arrived_read, 1)
            for _, write in gates:
                os.write(write, b"x")
        os.read(gates[number][0], 1)
        touch(memory, range(100 * (number + 1)))
        return number

    def by_own_number() -> int:
        os.write(number_write, b"")
        return meet(int(os.read(number_read, 1)))

    number_read, number_write = os.pipe()
    os.write(number_write, b"012")
    try:
        report = cowlab.measure(by_own_number, children=3, timeout=60)
    finally:
        for fd in (
            arrived_read,
            arrived_write,
            number_read,
            number_write,
            *(fd for gate in gates for fd in gate),
        ):
            os.close(fd)
    assert sorted(child.value for child in report.children) == [0, 1, 2]
    for child in report.children:
        assert_planted(child.task.by_kind["anonymous"].copied, 100 * (child.value + 1))
    assert_planted(in_anonymous(report).copied, 600)
    assert report.copied == sum(c.task.pages.copied for c in report.children)
    assert_identities(report)


def test_pss_is_read_without_a_witness():
    memory = plant(5000)
    report = cowlab.measure(look, memory, range(5000))
    # Two processes share them, so half of each page is the child's; a witness would
    # make it a third.
    assert report.before.pss > 0.45 * (report.inherited * PAGE)
    assert report.after.pss > 0.45 * (report.inherited * PAGE)


THE_MAIN_CLAIM = """
import gc, mmap
import cowlab

rows = [[i, i + 1, i + 2] for i in range(800_000)]
gc.collect()

def read():
    total = 0
    for row in rows:
        for number in row:
            total += number
    return total

report = cowlab.measure(read, timeout=120)
copied = report.copied
assert report.value == 3 * sum(range(800_000)) + 3 * 800_000
assert abs(report.minor_faults - copied) <= 0.005 * copied, report
grown = (report.after.private_dirty - report.before.private_dirty) / mmap.PAGESIZE
assert abs(grown - report.pages.private_growth) <= 0.01 * copied, report
assert 0.80 <= copied / report.inherited <= 0.97, report
assert report.after.rss - report.before.rss <= 2 << 20, report
assert report.by_kind["pymalloc"].copied >= 0.95 * copied, report
assert not [one for one in report.warnings if "PAGEMAP_SCAN" not in one], report
"""


@requires("gil")  # another collector and allocator copy another share
def test_the_main_claim_on_a_heap_of_lists():
    """In a fresh interpreter: here the heap has the holes of all the tests before."""
    done = subprocess.run(
        [sys.executable, "-c", THE_MAIN_CLAIM],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


OWED = """
import gc
from cowlab import _native
from cowlab._outcome import encode

def task():
    for _ in range(3):
        pass

def copied(left):
    gc.collect()
    kept = [None] * 20_000
    at = 0
    while gc.get_count()[0] < gc.get_threshold()[0] - left:
        kept[at] = []
        at += 1
    (child,) = _native.measure(task, (), {}, 1, -1.0, encode, ())
    return sum(pages[2] for pages in map(tuple, child["task_account"]))

print(*map(copied, range(5)))
"""


@requires("gil")  # another collector counts otherwise
def test_a_collection_that_is_due_at_the_fork_is_not_the_tasks():
    """The arguments may be the allocations that make it due."""
    done = run_python("-c", OWED)
    assert done.returncode == 0, done.stderr
    found = [int(word) for word in done.stdout.split()]
    assert max(found) - min(found) <= SLACK, found


def test_report_as_data_text_and_html():
    import json

    report = cowlab.measure(lambda: object, children=2)
    data = json.loads(json.dumps(report.to_json()))
    assert data["schema"] == report.schema
    assert data["copied"] == report.copied
    assert len(data["children"]) == 2
    assert "value" not in data
    assert "value" not in data["children"][0]
    text = str(report)
    assert f"{report.inherited:,}" in text
    assert f"{report.inherited:,}" in report._repr_html_()


def test_swapped_pages_are_unknown(swap):
    memory = plant()
    memory.madvise(21, 0, 300 * PAGE)  # MADV_PAGEOUT
    entries = cowlab.pagemap(
        None, [(address_of(memory), address_of(memory) + 300 * PAGE)]
    )
    swapped = sum(entry >> 62 & 1 for entry in memoryview(entries))
    if swapped < 100:
        pytest.skip(f"the kernel swapped {swapped} of 300 pages out when asked to")
    report = cowlab.measure(lambda: None)
    assert report.unknown >= swapped - SLACK
    assert any("swapped" in text for text in report.warnings)
    assert_identities(report)


def address_of(memory: mmap.mmap) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.fixture
def swap(tmp_path_factory):
    """Swap space of our own for one test, where root may have it."""
    import subprocess

    with open("/proc/swaps") as file:
        if len(file.readlines()) > 1:
            yield
            return
    path = tmp_path_factory.mktemp("swap") / "file"
    size = 64 << 20
    try:
        path.touch(mode=0o600)
        with path.open("wb") as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
        subprocess.run(["mkswap", str(path)], check=True, capture_output=True)
        subprocess.run(["swapon", str(path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(
            f"no swap, and none can be added ({error}); {size >> 20} MiB needed"
        )
    try:
        yield
    finally:
        subprocess.run(["swapoff", str(path)], check=True, capture_output=True)


def test_the_parent_is_read_at_the_same_two_moments() -> None:
    data = bytearray(64 << 20)

    def write() -> None:
        data[::4096] = bytes(len(data) // 4096)

    report = cowlab.measure(write, children=2)
    before, after = report.parent_before, report.parent_after
    assert before is not None and after is not None
    assert after.rss > len(data)
    # At rest three processes share the buffer. Done, each of them has its own.
    assert before.private_dirty < len(data) / 2
    assert after.private_dirty > len(data)
    group = after.pss + report.after.pss
    assert group > 3 * len(data)
    assert group - (before.pss + report.before.pss) == pytest.approx(
        2 * len(data), rel=0.02
    )
    # What the readings take is no part of it.
    assert after.rss - before.rss < 1 << 20
