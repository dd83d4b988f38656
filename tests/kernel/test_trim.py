"""trim() and seal: obmalloc's invariants hold, contents stay, memory comes back."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from conftest import requires
from heap_machine import check_every_pool
from heap_programs import COMPARE, run

import cowlab
from cowlab import _native

pytestmark = requires("gil", "release_build")


def holes(step: int = 10, count: int = 100_000) -> list[tuple[int, int]]:
    made = [(i, i + 1) for i in range(1_000, count + 1_000)]
    kept = made[::step]
    made.clear()
    return kept


def test_pages_come_back_and_the_report_adds_up() -> None:
    kept = holes(100, 300_000)
    check_every_pool()
    report = cowlab.trim()
    check_every_pool()
    assert report.pages > 500
    assert report.bytes == report.pages * os.sysconf("SC_PAGE_SIZE")
    assert report.blocks_retired > 0
    assert report.pools_trimmed + report.pools_reset + report.pools_left <= report.pools
    assert report.libc_bytes is None
    assert kept == [(i, i + 1) for i in range(1_000, 301_000, 100)]


def test_the_kernel_says_what_the_report_says() -> None:
    """In a fresh process: what a scan allocates lands in memory that is there.

    In one that has run for long it takes fresh arenas or grows the heap of libc, and
    both stay in RSS.
    """
    program = """
    import cowlab
    made = [(i, i + 1) for i in range(1_000, 301_000)]
    kept = made[::100]
    del made
    cowlab.trim(), cowlab.smaps_rollup()
    made = [(i, i + 1, i + 2) for i in range(1_000, 301_000)]
    kept += made[::100]
    del made
    before = cowlab.smaps_rollup().rss
    report = cowlab.trim()
    after = cowlab.smaps_rollup().rss
    assert report.pages > 500, report
    assert abs(before - after - report.bytes) <= 256 << 10, (before, after, report)
    """
    run(textwrap.dedent(program))


def test_a_second_trim_finds_next_to_nothing() -> None:
    kept = holes()
    cowlab.trim()
    report = cowlab.trim()
    assert report.pages < 50
    assert len(kept) == 10_000


def test_retired_blocks_are_reported_and_come_back() -> None:
    """By way of a child: nothing else may allocate in these pools."""
    program = """
    import cowlab
    made = [(i, i + 1, i + 2) for i in range(1_000, 200_000)]
    kept = made[::100]
    del made
    first = cowlab.trim()
    retired = sum(p.retired for p in cowlab.pools())
    assert 0 < first.blocks_retired <= retired + 1_000, (first, retired)
    del kept
    import gc; gc.collect()
    second = cowlab.trim()
    assert second.blocks_restored > 0, second
    left = sum(p.retired for p in cowlab.pools())
    assert left < retired / 2, (left, retired)
    """
    run(textwrap.dedent(program))


def test_arenas_go_back_to_the_system_when_they_empty() -> None:
    program = """
    import cowlab, gc
    before = len(cowlab.arenas())
    made = [(i, i + 1, i + 2) for i in range(1_000, 300_000)]
    kept = made[::100]
    del made
    full = len(cowlab.arenas())
    cowlab.trim()
    del kept
    gc.collect()
    after = len(cowlab.arenas())
    assert full > before + 40, (before, full)
    # Modules that came meanwhile, and the lists of free objects, hold a few.
    assert after <= before + 8, (before, full, after)
    """
    run(textwrap.dedent(program))


@pytest.mark.parametrize("act", ["cowlab.trim()", "_native.seal_pools()"])
def test_the_allocator_still_agrees_in_every_size_class(act: str) -> None:
    program = f"""
    import random
    import cowlab
    rng = random.Random(7)
    kept = []
    for round in range(4):
        kept += [[i] * rng.randrange(40) for i in range(30_000)]
        kept += [str(i) * rng.randrange(30) for i in range(20_000)]
        rng.shuffle(kept)
        del kept[len(kept) // 5:]
        print({act})
        compare(f"round {{round}}")
    """
    out = run(COMPARE + textwrap.dedent(program))
    assert out.count("equal") == 4


def test_a_sealed_heap_sends_new_objects_elsewhere() -> None:
    program = """
    import cowlab
    from cowlab import _native
    kept = [(i, i + 1, i + 2) for i in range(1_000, 200_000)][::10]
    print(_native.seal_pools())
    old = {p.address: p.used for p in cowlab.pools() if p.used}
    new = [(i, i + 1, i + 2) for i in range(1_000, 50_000)]
    grown = [p for p in cowlab.pools() if p.used > old.get(p.address, 1 << 20)]
    assert len(grown) < 40, len(grown)
    assert kept == [(i, i + 1, i + 2) for i in range(1_000, 200_000)][::10]
    figures = _native.seal_pools()
    assert figures["pools_sealed"] <= figures["pools"]
    """
    run(textwrap.dedent(program))


def test_seal_leaves_pools_with_one_block_alone() -> None:
    """Such a pool, sealed, would pin its arena for good once its block is freed."""
    kept = holes(400, 200_000)
    figures = _native.seal_pools()
    assert figures["pools_left"] > 0
    check_every_pool()
    del kept
    gc.collect()
    check_every_pool()


def test_trim_with_threads_that_allocate() -> None:
    stop = threading.Event()
    wrong: list[object] = []

    def churn(seed: int) -> None:
        rng = random.Random(seed)
        kept: dict[int, list[str]] = {}
        while not stop.is_set():
            key = rng.randrange(3_000)
            old = kept.pop(key, None)
            if old is not None and old != [str(key)] * len(old):
                wrong.append(old)
            kept[key] = [str(key)] * rng.randrange(1, 60)

    threads = [threading.Thread(target=churn, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            cowlab.trim()
            _native.seal_pools()
            check_every_pool()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_trim_in_a_forked_child_leaves_the_parent_alone() -> None:
    kept = holes()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            cowlab.trim()
            check_every_pool()
            made = [[i] for i in range(50_000)]
            good = kept == [(i, i + 1) for i in range(1_000, 101_000, 10)]
            code = 0 if good and len(made) == 50_000 else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    check_every_pool()
    assert kept == [(i, i + 1) for i in range(1_000, 101_000, 10)]


def test_libc_is_reported_apart() -> None:
    blocks = [bytearray(5_000) for _ in range(20_000)]
    del blocks[::2], blocks[:-1]  # the last holds up those below it
    report = cowlab.trim(libc=True)
    if _native.trim_libc() is None:
        assert report.libc_bytes is None
    else:
        assert report.libc_bytes is not None
        assert report.libc_bytes > 10 << 20


@pytest.mark.parametrize("allocator", ["malloc", "debug", "malloc_debug"])
@pytest.mark.parametrize("act", ["cowlab.trim()", "_native.seal_pools()"])
def test_refused_where_objects_are_not_in_plain_pools(allocator: str, act: str) -> None:
    program = f"""
    import cowlab
    from cowlab import _native
    try:
        {act}
    except cowlab.Unsupported as error:
        print(error)
    """
    out = run(textwrap.dedent(program), {"PYTHONMALLOC": allocator})
    assert "unset PYTHONMALLOC" in out


def test_works_while_tracemalloc_watches() -> None:
    program = """
    import tracemalloc
    tracemalloc.start()
    import cowlab
    kept = [(i, i + 1, i + 2) for i in range(1_000, 100_000)][::100]
    assert cowlab.trim().pages > 100

    assert kept[5] == (1_500, 1_501, 1_502)
    """
    run(textwrap.dedent(program))


def test_any_order_of_work() -> None:
    """In a fresh interpreter: the fewer pools it has, the sooner all are checked."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("heap_machine.py"))],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    "COWLAB_SOAK" not in os.environ,
    reason="an hour of random work runs on request: COWLAB_SOAK=SECONDS",
)
def test_soak() -> None:
    program = f"""
    import random, time
    import cowlab
    from cowlab import _native
    seed = {os.environ.get("COWLAB_SOAK_SEED", "1")}
    rng = random.Random(seed)
    end = time.monotonic() + {os.environ.get("COWLAB_SOAK", "3600")}
    kept, rounds = {{}}, 0
    while time.monotonic() < end:
        rounds += 1
        for _ in range(rng.randrange(20_000)):
            key = rng.randrange(200_000)
            kept[key] = [key, str(key) * rng.randrange(1, 70), (key,) * (key % 40)]
        drop = rng.random() ** 2
        for key in [k for k in kept if rng.random() < drop]:
            del kept[key]
        rng.choice((cowlab.trim, cowlab.trim, _native.seal_pools, int))()
        for key, (same, text, items) in kept.items():
            assert same == key and text.startswith(str(key)), key
            assert items == (key,) * (key % 40), key
    compare(f"after {{rounds}} rounds")
    """
    seconds = float(os.environ["COWLAB_SOAK"])
    print(run(COMPARE + textwrap.dedent(program), timeout=seconds + 600))
