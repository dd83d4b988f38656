"""Readings of another interpreter's heap."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import floors
from harness import Contender, Row, Size, Unavailable

import cowlab
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


ROWS = (
    Row(
        "pools",
        "pools() of a process with a million objects, against reading its memory",
        "ms",
        _pools,
        heavy=True,
    ),
)
