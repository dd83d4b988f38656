"""One to eight workers over the same rows: what all of them take together.

RSS counts a page once for each process that maps it, and so says eight times the
parent before anything is copied; and since a page that is shared is in it already, it
does not grow when pages are copied. PSS counts each page once, over all its owners.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise

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
from cowlab._prepare import prepare_fork
from cowlab._result import Missing, Result

COUNTS = (1, 2, 4, 8)
MOST = COUNTS[-1]

Rows = list[list[int]]


def read(rows: Rows) -> int:
    """Take every int of every row in hand once."""
    total = 0
    for row in rows:
        for value in row:
            total += value
    return total


def run_arm(arm: str, *, rows: int) -> Metrics:
    """Build the rows, fork the workers, and read the whole group when all are done."""
    way, _, count = arm.rpartition("-")
    workers = int(count)
    data = [[i, i + 1, i + 2] for i in range(rows)]
    warnings: tuple[str, ...] = ()
    if way == "prepared":
        # With a sum of its own, so that the code is warm and the rows are not.
        warnings = prepare_fork(partial(read, [[1, 2, 3]] * 1000)).warnings
    report = measure(len if way == "idle" else read, data, children=workers)
    assert way == "idle" or report.value == sum(map(sum, data))
    parent, children = report.parent_after, report.after
    assert parent is not None and report.parent_before is not None
    before = report.parent_before.pss + report.before.pss
    return {
        "pss": parent.pss + children.pss,
        "uss": parent.uss + children.uss,
        "rss": parent.rss + children.rss,
        "parent_rss": parent.rss,
        "growth": parent.pss + children.pss - before,
        "rss_growth": children.rss - report.before.rss,
        "child_rss": children.rss / workers,
        "child_pss": children.pss / workers,
        "private_dirty": children.private_dirty / workers,
        "copied": (report.copied + report.fork_overhead.pages.copied)
        * report.page_size,
        "warnings": (*warnings, *report.warnings),
    }


def _too_small(result: Result) -> Verdict | None:
    size = result.median("plain-1", "parent_rss")
    if size < 40 * MIB:
        return unanswered(
            f"too few rows: the parent has {size / MIB:.0f} MiB, and an interpreter"
            " weighs as much as they"
        )
    return None


def each_worker_pays(result: Result) -> Verdict:
    """A12: eight workers turn 173 MB into 1.4 GB, and a remedy keeps them from it."""
    if (small := _too_small(result)) is not None:
        return small
    one, most = (result.median(f"plain-{n}", "pss") for n in (1, MOST))
    parent = result.median(f"plain-{MOST}", "parent_rss")
    steps = [result.median(f"plain-{n}", "pss") for n in COUNTS]
    figures = (
        f"{MOST} workers that read turn a parent of {parent / MIB:.0f} MiB into"
        f" {most / MIB:,.0f} MiB ({most / parent:.1f}x; published 8.1x)"
    )
    try:
        prepared = result.median(f"prepared-{MOST}", "pss")
        figures += f", prepared {prepared / MIB:,.0f} MiB ({prepared / parent:.1f}x)"
    except Missing:
        figures += "; preparing was not measured here"
    if any(later <= earlier for earlier, later in pairwise(steps)):
        return refuted(f"{figures}: it does not grow with the number of workers")
    if most < 0.6 * MOST * parent:
        return different(
            f"{figures}: of what a worker inherits only"
            f" {result.median(f'plain-{MOST}', 'copied') / MOST / parent:.0%} is rows"
            f" that it reads, and {one / MIB:.0f} MiB is what one worker makes of it"
        )
    return reproduced(figures)


def rss_is_blind(result: Result) -> Verdict:
    """A13: each RSS is the parent's, PSS a ninth of it; and RSS does not see copies."""
    if (small := _too_small(result)) is not None:
        return small
    arm = f"idle-{MOST}"
    parent = result.median(arm, "parent_rss")
    rss, pss = result.median(arm, "child_rss"), result.median(arm, "child_pss")
    idle = (
        f"{MOST} idle children of a {parent / MIB:.0f} MiB parent have an RSS of"
        f" {rss / MIB:.0f} MiB each, a PSS of {pss / MIB:.1f} (a"
        f" {_ordinal(MOST + 1)} would be {parent / MIB / (MOST + 1):.1f})"
    )
    plain = f"plain-{MOST}"
    seen, grown = result.median(plain, "rss_growth"), result.median(plain, "growth")
    dirty = result.median(plain, "private_dirty")
    blind = (
        f"when they read, PSS grows by {grown / MIB:,.0f} MiB, RSS by"
        f" {seen / MIB:,.1f}; Private_Dirty has {dirty / MIB:.0f} MiB of each"
    )
    if rss < 0.8 * parent or not parent / (MOST + 3) < pss < parent / (MOST - 2):
        return refuted(idle)
    if abs(seen) > 0.1 * grown:
        return refuted(f"{idle}; but {blind}")
    return reproduced(f"{idle}; {blind}")


def _ordinal(number: int) -> str:
    return {9: "ninth"}.get(number, f"1/{number}")


def notes(result: Result) -> Iterable[str]:
    """What a further worker costs, of either kind."""
    few, most = COUNTS[0], COUNTS[-1]
    for way in ("plain", "prepared"):
        grown = result.median(f"{way}-{most}", "pss")
        grown -= result.median(f"{way}-{few}", "pss")
        each = grown / (most - few)
        yield f"{way}: a further worker costs {each / MIB:.1f} MiB of PSS."


EXPERIMENT = Experiment(
    name="workers",
    title="What workers take together: PSS, USS and RSS against their number",
    claims=(
        Claim(
            "A12", "A §7", "eight workers turn 173 MB into ~1.4 GB", each_worker_pays
        ),
        Claim(
            "A13",
            "A §10",
            "eight children of a 1 GB parent: each RSS ~1 GB, PSS ~111 MB; the PSS sum"
            " is the truth, Private_Dirty the diagnostic",
            rss_is_blind,
        ),
    ),
    parameters={
        "rows": Parameter(
            400_000, "lists of three ints in the parent", minimum=1000, maximum=10**7
        )
    },
    arms=(
        Arm(f"idle-{MOST}", "does nothing"),
        *(
            Arm(f"{way}-{n}", f"reads every int; there are {n}")
            for way in ("plain", "prepared")
            for n in COUNTS
        ),
    ),
    columns=(
        Column(
            "pss",
            "PSS MiB",
            "MiB",
            {f"plain-{MOST}": 1.4e9},
            "of parent and workers, all alive",
        ),
        Column("uss", "USS MiB", "MiB", about="what only one of them has"),
        Column("rss", "RSS MiB", "MiB", about="the sum that counts a page nine times"),
        Column("growth", "PSS grew by", "MiB", about="from before the work to its end"),
        Column(
            "rss_growth", "RSS grew by", "MiB", about="what tools that watch RSS see"
        ),
        Column(
            "child_rss",
            "a worker's RSS",
            "MiB",
            {f"idle-{MOST}": 1e9},
        ),
        Column("child_pss", "its PSS", "MiB", {f"idle-{MOST}": 111e6}),
        Column("private_dirty", "its Private_Dirty", "MiB"),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
