"""Work of every kind on a heap in any order, checked after each step; a program.

Hypothesis chooses, and makes what fails small.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import cowlab
from cowlab import _native
from cowlab._pools import scan


def check_every_pool() -> None:
    """The validator: what obmalloc relies on, for every pool of this interpreter."""
    heap = scan()
    for pool in heap.pools:
        if pool.block_size == 0:
            assert pool.used == 0
            continue
        known = pool.used + pool.free + pool.virgin + pool.retired
        assert known == pool.capacity, pool
        if pool.retired:
            assert pool.virgin == 0, pool
        if pool.used == 0 and not pool.retired:
            assert pool.free >= 2, pool
        if pool.used == 0:
            # Taken over by its old size class, it must not run dry at once.
            assert pool.free + pool.virgin >= 2, pool
        elif pool.free == 0:
            assert pool.virgin == 0, pool  # a pool with blocks to give has a chain
    for arena in heap.arenas:
        assert arena.pools_used + arena.pools_empty <= arena.pools
        assert arena.live + arena.free + arena.retired + arena.overhead == arena.size


class Heap(RuleBasedStateMachine):
    """Allocate, free, trim, seal and check, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, object] = {}
        self.next = 1_000

    def value(self, key: int) -> object:
        kind = key % 5
        if kind == 0:
            return (key, key + 1)
        if kind == 1:
            return [key] * (key % 50)
        if kind == 2:
            return str(key) * (key % 60)
        if kind == 3:
            return {key: str(key)}
        return bytes([key % 256]) * (key % 480)

    @rule(count=st.integers(1, 1_500))
    def allocate(self, count: int) -> None:
        for key in range(self.next, self.next + count):
            self.kept[key] = self.value(key)
        self.next += count

    @rule(step=st.integers(2, 60), start=st.integers(0, 5))
    def free_all_but_every(self, step: int, start: int) -> None:
        self.kept = {k: v for k, v in self.kept.items() if k % step == start % step}

    @rule(seed=st.integers(0, 1_000), share=st.floats(0, 1))
    def free_at_random(self, seed: int, share: float) -> None:
        rng = random.Random(seed)
        for key in list(self.kept):
            if rng.random() < share:
                del self.kept[key]

    @rule()
    def trim(self) -> None:
        cowlab.trim()

    @rule()
    def seal(self) -> None:
        _native.seal_pools()

    @invariant()
    def contents_are_what_they_were(self) -> None:
        for key, value in self.kept.items():
            assert value == self.value(key)

    @invariant()
    def the_pools_are_in_order(self) -> None:
        check_every_pool()


if __name__ == "__main__":
    run_state_machine_as_test(
        Heap,
        settings=settings(
            max_examples=5,
            stateful_step_count=15,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
