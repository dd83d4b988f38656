"""Readings of another interpreter's heap."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import floors
from harness import Budget, Contender, Row, Size, Unavailable

import cowlab
from cowlab import host
from rows.readings import sleeper

MILLI = 1e3
LISTS = "kept = [[i, i + 1, i + 2] for i in range(1000, 1000 + int(sys.argv[1]) // 4)]"


@contextmanager
def _pools(size: Size) -> Iterator[Mapping[str, Contender]]:
    with sleeper(LISTS, str(size.objects)) as pid:
        try:
            cowlab.pools(pid)
        except cowlab.CowlabError as error:
            raise Unavailable(str(error)) from None

        def ours() -> float:
            start = time.perf_counter()
            cowlab.pools(pid)
            return (time.perf_counter() - start) * MILLI

        yield {"cowlab": ours, "floor": lambda: floors.memory(pid) * MILLI}


@contextmanager
def many_objects(size: Size) -> Iterator[None]:
    """Lists of integers in this process: four objects a list."""
    if not host().gil:
        raise Unavailable(str(host().gil))
    kept = [[i, i + 1, i + 2] for i in range(1000, 1000 + size.objects // 4)]
    gc.collect()
    yield
    del kept


def _by_get_objects() -> int:
    """What people do: count types over gc.get_objects(), which has the lists only."""
    return len(Counter(map(type, gc.get_objects())))


@contextmanager
def _census(size: Size) -> Iterator[Mapping[str, Contender]]:
    def rate(count: Callable[[], int]) -> float:
        start = time.process_time()
        objects = count()
        return objects / (time.process_time() - start) / 1e6

    with many_objects(size):
        yield {"cowlab": lambda: rate(lambda: cowlab.census().total)}


@contextmanager
def _census_pages(size: Size) -> Iterator[Mapping[str, Contender]]:
    if not host().pagemap:
        raise Unavailable(str(host().pagemap))

    def copied(task: Callable[[], object]) -> float:
        return cowlab.measure(task).copied

    with many_objects(size):
        yield {
            "cowlab": lambda: copied(lambda: cowlab.census().total),
            "gc.get_objects": lambda: copied(_by_get_objects),
            "an empty task": lambda: copied(lambda: None),
        }


ROWS = (
    Row(
        "census",
        "census() of a million objects",
        "M objects/s",
        _census,
        Budget(6, "M objects/s", at_least=True),
        heavy=True,
    ),
    Row(
        "census-pages",
        "inherited pages census() copies, report included",
        "pages",
        _census_pages,
        heavy=True,
    ),
    Row(
        "pools",
        "pools() of a million objects",
        "ms",
        _pools,
        heavy=True,
    ),
)
