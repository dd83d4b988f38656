"""The seal of glibc's malloc, by the pages that a real child copies."""

from __future__ import annotations

import os

import pytest
from conftest import requires
from fresh import fresh

pytestmark = requires("gil")

HEAP = """
import json
import cowlab
"""

BUFFERS = (
    HEAP
    + """
table = [bytearray(600 + i % 3000) for i in range(10_000)]
del table[::2]

def buffers():
    return len([bytearray(600 + i % 2000) for i in range(300)])
"""
)


@requires("release_build")
def test_buffers_do_not_go_into_the_holes_of_shared_pages() -> None:
    plain, sealed, blocks, again = fresh(
        BUFFERS
        + """
cowlab.trim(libc=True)
cowlab.seal()
plain = cowlab.measure(buffers).copied
first = cowlab.seal(libc=True)
sealed = cowlab.measure(buffers).copied
again = cowlab.seal(libc=True)
assert [len(row) for row in table] == [600 + i % 3000 for i in range(1, 10_000, 2)]
print(json.dumps([plain, sealed, first.libc_blocks, again.libc_blocks]))
"""
    )
    if blocks is None:
        pytest.skip("this malloc is not glibc's")
    assert plain > 100
    assert sealed <= 64
    assert blocks > 4000
    # What the first held was given back: there is about as much to hold.
    assert abs(again - blocks) < 1000


@requires("release_build")
def test_libc_is_sealed_in_a_child_whose_heap_grew() -> None:
    assert fresh(
        BUFFERS
        + """
def grow():
    more = [bytearray(4000 + i % 3000) for i in range(10_000)]  # in no hole of table
    del more[::2]
    return cowlab.seal(libc=True).libc_blocks, len(more)

print(json.dumps(cowlab.measure(grow).value[0]))
"""
    ) in (None, pytest.approx(10_000, abs=4000))


@requires("release_build")
def test_what_a_seal_of_libc_holds_does_not_grow_from_one_to_the_next() -> None:
    """Even where the holder became immortal with all else."""
    blocks, grown, one = fresh(
        BUFFERS
        + """
def heap():
    return sum(part.size for part in cowlab.smaps().entries if part.path == "[heap]")

sizes = []
for _ in range(6):
    cowlab.prepare_fork()
    sizes.append(heap())
    more = [bytearray(600 + i % 3000) for i in range(10_000)]
    del more
print(json.dumps([cowlab.seal(libc=True).libc_blocks, sizes[-1] - sizes[0], 20 << 20]))
"""
    )
    if blocks is None:
        pytest.skip("this malloc is not glibc's")
    assert grown < 2 * one


@requires("release_build")
def test_libc_is_not_sealed_where_malloc_takes_nothing_from_its_heap() -> None:
    """A child's main thread goes on with the arena of the thread that forked it."""
    blocks, grown = fresh(
        BUFFERS
        + """
import threading

def seal():
    before = cowlab.smaps_rollup().rss
    blocks = cowlab.seal(libc=True).libc_blocks
    return blocks, cowlab.smaps_rollup().rss - before

def fork():
    bytearray(1000)  # now it has an arena
    results.append(cowlab.measure(seal).value)

results = []
thread = threading.Thread(target=fork)
thread.start()
thread.join()
print(json.dumps(results[0]))
"""
    )
    if os.environ.get("MALLOC_ARENA_MAX") != "1":
        assert blocks is None
    assert grown < 4 << 20
