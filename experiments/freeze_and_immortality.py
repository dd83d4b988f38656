"""Two remedies and the two things they are for: reads and collections.

gc.freeze takes objects away from the collector, so that a collection no longer writes
their headers. Immortality (PEP 683) stops the counting of references, so that a read no
longer writes. Neither does the other's work. And it matters where it is done: freezing
costs nothing anywhere, since it joins lists; making immortal writes to every object, so
in a child it copies what it was to keep shared.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from cowlab._experiment import (
    MIB,
    Arm,
    Claim,
    Column,
    Experiment,
    Metrics,
    Parameter,
    Verdict,
    different,
    refuted,
    reproduced,
    unanswered,
)
from cowlab._forking import measure
from cowlab._result import Result

Rows = list[list[int]]

ENOUGH = 64 * MIB
NEXT_TO_NOTHING = 0.01
MOST = 0.5


def read(rows: Rows) -> int:
    """Take every int of every row in hand once."""
    total = 0
    for row in rows:
        for value in row:
            total += value
    return total


def nothing(rows: Rows) -> None:
    """What happens in the parent of an arm without a remedy there."""


def freeze(rows: Rows) -> None:
    """One of the two remedies."""
    gc.freeze()


def immortal(rows: Rows) -> None:
    """The other; raises Unsupported before CPython 3.12."""
    from cowlab._immortal import immortalize

    immortalize([rows])


def both(rows: Rows) -> None:
    """Immortal first: what is frozen is not looked for again."""
    immortal(rows)
    freeze(rows)


REMEDIES: dict[str, tuple[Callable[[Rows], None], Callable[[Rows], None]]] = {
    "neither": (nothing, nothing),
    "freeze": (freeze, nothing),
    "immortal": (immortal, nothing),
    "both": (both, nothing),
    "freeze-in-child": (nothing, freeze),
    "immortal-in-child": (nothing, immortal),
}
"""What is done before the fork, and what first in the child."""


def run_arm(arm: str, *, rows: int) -> Metrics:
    """Build the rows, apply the remedy, and account for a child of each kind."""
    before, first = REMEDIES[arm]
    if first is immortal:
        immortal([])  # where that cannot be, it is to be said here, not in the child
    gc.disable()
    data = [[i, i + 1, i + 2] for i in range(rows)]
    gc.collect()
    before(data)

    def reads() -> None:
        first(data)
        read(data)

    def collects() -> None:
        first(data)
        gc.collect()

    # Each child is of the same parent, which only waits in between.
    report, collection = measure(reads), measure(collects)
    page = report.page_size
    return {
        "reads": report.copied * page,
        "reads_share": report.copied / report.inherited,
        "collects": collection.copied * page,
        "collects_share": collection.copied / collection.inherited,
        "seconds": report.seconds,
        "warnings": (*report.warnings, *collection.warnings),
    }


def too_few(result: Result) -> bool:
    """Whether what any child copies is not small beside what this one copies."""
    return result.median("neither", "reads") < ENOUGH


def freeze_is_for_collections(result: Result) -> Verdict:
    """Two cells of the four: without immortality."""
    if too_few(result):
        return unanswered("too few rows: the child's own pages weigh as much")
    plain, frozen = (
        result.median("neither", "collects_share"),
        result.median("freeze", "collects_share"),
    )
    reads = result.median("freeze", "reads_share")
    figures = (
        f"a collection copies {plain:.0%} of the parent, {frozen:.2%} when frozen;"
        f" reads copy {reads:.0%} all the same"
    )
    if frozen > plain / 10 or reads < MOST:
        return refuted(figures)
    if plain < MOST:
        return different(
            f"{figures}. Published growth counts what a child only reads as well:"
            " refcount-privatisation measures that"
        )
    return reproduced(figures)


def immortality_is_for_reads(result: Result) -> Verdict:
    """The other two."""
    if too_few(result):
        return unanswered("too few rows: the child's own pages weigh as much")
    reads = result.median("immortal", "reads_share")
    collects = result.median("immortal", "collects_share")
    whole = result.median("both", "reads_share") + result.median(
        "both", "collects_share"
    )
    figures = (
        f"reads copy {reads:.2%} of the parent, a collection still {collects:.0%};"
        f" with the freeze as well {whole:.2%} for both"
    )
    if whole > NEXT_TO_NOTHING or reads > NEXT_TO_NOTHING:
        return refuted(figures)
    return reproduced(figures)


EXPERIMENT = Experiment(
    name="freeze-and-immortality",
    title="gc.freeze is for collections, immortality is for reads",
    claims=(
        Claim(
            "A9",
            "A §7",
            "freezing ends what collections copy (90% of the parent, 0.3% frozen) and"
            " does nothing for reads",
            freeze_is_for_collections,
        ),
        Claim(
            "A11",
            "A §7",
            "what PEP 683 did for None, small ints and interned strings can be done for"
            " the whole graph: then its reads write nothing",
            immortality_is_for_reads,
        ),
    ),
    arms=(
        Arm("neither", "of an ordinary parent"),
        Arm("freeze", "of a parent that called gc.freeze()"),
        Arm("immortal", "of a parent that made the rows immortal"),
        Arm("both", "of a parent that did both"),
        Arm("freeze-in-child", "calls gc.freeze() first"),
        Arm("immortal-in-child", "makes the rows immortal first"),
    ),
    columns=(
        Column(
            "reads",
            "reads copy",
            "MiB",
            published={"neither": 153.7 * MIB, "freeze": 153.8 * MIB},
            about="pages copied when the child takes every int in hand",
        ),
        Column("reads_share", "of the parent", "%"),
        Column(
            "collects",
            "gc.collect copies",
            "MiB",
            published={"neither": 156.9 * MIB, "freeze": 0.53 * MIB},
            about="pages copied by one full collection in the child",
        ),
        Column("collects_share", "of the parent", "%"),
        Column("seconds", "reads take", "ms"),
    ),
    run_arm=run_arm,
    parameters={"rows": Parameter(800_000, "lists of three ints", minimum=1000)},
)
