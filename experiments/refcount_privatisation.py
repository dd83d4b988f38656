"""800,000 lists of three ints, one child: what reading and collecting them copies.

Reading an object writes its reference count, and a garbage collection writes the GC
header of every object that it looks at. gc.freeze takes objects away from the
collector, and so does nothing for reads.

Two instruments besides the page accounting explain the published figures, which were
measured where a child's page tables start empty. ``touched`` is what the child read or
wrote: there, that is how far a child's resident memory grows. And a page that is first
read and then written takes two faults there, one here.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from functools import partial

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
Task = Callable[[Rows], object]

ENOUGH = 1000
"""Pages; below, the few dozen that any child copies are not small beside the rows'."""

PUBLISHED_PAGE = 16384
PUBLISHED_FAULTS = {
    "nothing": 17,
    "read": 19_245,
    "collect": 13_312,
    "collect-frozen": 26,
    "both": 19_586,
    "both-frozen": 19_256,
}
PUBLISHED_GROWTH = {
    "nothing": 0.39,
    "read": 153.7,
    "collect": 156.9,
    "collect-frozen": 0.53,
    "both": 156.9,
    "both-frozen": 153.8,
}
PUBLISHED_SHARE = {
    "nothing": 0.002,
    "read": 0.88,
    "collect": 0.90,
    "collect-frozen": 0.003,
    "both": 0.90,
}


def read(rows: Rows) -> int:
    """Take every int of every row in hand once."""
    total = 0
    for row in rows:
        for value in row:
            total += value
    return total


def both(rows: Rows) -> None:
    """A pass over the data, and a collection."""
    read(rows)
    gc.collect()


_alive: list[list[int]] = []


def allocate(count: int, rows: Rows) -> None:
    """New containers that live on: the collector starts when it thinks fit."""
    _alive.extend([] for _ in range(count))


def _task(name: str, allocations: int) -> Task:
    tasks: dict[str, Task] = {
        "nothing": lambda rows: None,
        "read": read,
        "collect": lambda rows: gc.collect(),
        "both": both,
        "automatic": partial(allocate, allocations),
    }
    return tasks[name]


def run_arm(arm: str, *, rows: int, allocations: int) -> Metrics:
    """Build the rows, fork, and account for the child's pages."""
    name = arm.removesuffix("-frozen")
    task = _task(name, allocations)
    data = [[i, i + 1, i + 2] for i in range(rows)]
    if name != "automatic":
        gc.disable()
    if arm != name:
        gc.freeze()
    frozen = gc.get_freeze_count()
    report = measure(task, data)
    page = report.page_size
    overhead = report.fork_overhead
    faults, copied = report.minor_faults, report.copied
    return {
        "copied": copied * page,
        "share": copied / report.inherited,
        "minor_faults": faults,
        # Fresh pages fault too: where they are many, the ratio says nothing.
        "faults_per_page": faults / copied if copied > 10 * report.fresh else None,
        "rss_growth": report.after.rss - report.before.rss,
        "touched": measure(touched_by, task, data).value,
        "inherited": report.inherited * page,
        "copied_pages": copied,
        "dirty_pages": (report.after.private_dirty - report.before.private_dirty)
        / page,
        "faults_from_fork": faults + overhead.minor_faults,
        **({} if arm != "collect" else headers(data, page)),
        "frozen": frozen,
        "warnings": report.warnings,
    }


def headers(data: Rows, page: int) -> dict[str, float]:
    """Bytes of the pages with a GC header of a row; the same in pages as published."""
    there = PUBLISHED_PAGE
    return {
        "gc_pages": len({id(row) // page for row in data}) * page,
        "gc_pools": len({id(row) // there for row in data}) * there,
    }


def touched_by(task: Task, data: Rows) -> int | None:
    """Run the task, and give the bytes that it read or wrote, by the MMU's own mark.

    Clears the mark on every page of this process, then counts the pages that have it
    again. None where the kernel does not let us.
    """
    try:
        with open("/proc/self/clear_refs", "wb", buffering=0) as file:
            file.write(b"1")
        task(data)
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Referenced:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def reads_copy(result: Result) -> Verdict:
    """A9, in its parts: reads copy, collections copy, freeze helps the second only."""
    if result.median("read", "copied_pages") < ENOUGH:
        return unanswered("too few rows: the child's own pages weigh as much")
    share = {arm: result.median(arm, "share") for arm in result.arms}
    for arm in ("collect", "both-frozen", "collect-frozen", "nothing", "both"):
        result.median(arm, "share")
    thawed, frozen = share["collect"], share["collect-frozen"]
    if share["read"] < 10 * share["nothing"]:
        return refuted(f"reading copied {share['read']:.1%} of the parent only")
    if abs(share["both-frozen"] - share["read"]) > 0.1 * share["read"]:
        return refuted(
            f"gc.freeze changed what reads copy: {share['read']:.1%} without it,"
            f" {share['both-frozen']:.1%} with it and a collection"
        )
    if frozen > thawed / 10:
        return refuted(
            f"gc.freeze did not keep a collection from copying: {thawed:.1%} of the"
            f" parent without it, {frozen:.1%} with it"
        )
    same = (
        f"reads copy {share['read']:.0%} of the parent (published 88%) and gc.freeze"
        f" does nothing about it; it cuts what a collection copies from"
        f" {thawed:.0%} to {frozen:.1%}"
    )
    if abs(thawed - PUBLISHED_SHARE["collect"]) < 0.1:
        return reproduced(same)
    return different(f"{same}. {_why_a_collection_copies_less(result)}")


def _why_a_collection_copies_less(result: Result) -> str:
    """The published 90% for gc.collect, from what it copied and touched here."""
    inherited = result.median("collect", "inherited")
    copied = result.median("collect", "share")
    headers = result.median("collect", "gc_pages") / inherited
    pools = result.median("collect", "gc_pools") / inherited
    touched = min(1.0, result.median("collect", "touched") / inherited)
    text = (
        f"gc.collect: published 90%, here {copied:.0%}. It writes GC headers only, and"
        f" {headers:.0%} of the parent are pages with one. Page size is not the reason:"
        f" a 16 KiB page is one pool of one size, and pools of lists are {pools:.0%}."
    )
    if touched > 2 * copied:
        text += (
            f" But it read or wrote {touched:.0%}, the ints' types among them: the"
            " published growth counts pages that were only read"
        )
    return text


def faults_per_page(result: Result) -> Verdict:
    """A10: 1.96 faults for each copied page."""
    pages = result.median("read", "copied_pages")
    if pages < ENOUGH:
        return unanswered("too few rows: the child's own pages weigh as much")
    ratio = result.median("read", "minor_faults") / pages
    from_fork = result.median("read", "faults_from_fork") / pages
    here = (
        f"{ratio:.3f} faults per copied page from rest, {from_fork:.3f} from the fork,"
        f" {result.median('read', 'dirty_pages') / pages:.3f} pages of Private_Dirty"
    )
    if ratio > 1.8:
        return reproduced(here)
    copied = result.median("read", "copied")
    read = result.median("read", "touched")
    twice = (read + copied) / copied
    collect = result.median("collect", "touched")
    once = (collect + result.median("collect", "copied")) / collect
    return different(
        f"{here}. Fork gave the child its page tables, so only the write faults."
        " Where they start empty, a page that is read and then written faults twice:"
        f" touched plus copied makes {twice:.2f} a page for reads here (published"
        f" 1.96), and {once:.2f} a touched page for gc.collect (published"
        f" {PUBLISHED_FAULTS['collect'] * PUBLISHED_PAGE / MIB / 156.9:.2f})"
    )


def notes(result: Result) -> Iterable[str]:
    """What else is not as published, and why."""
    growth = result.high("read", "rss_growth")
    copied = result.median("read", "copied")
    yield (
        f"RSS grew by at most {growth / MIB:.1f} MiB while {copied / MIB:.0f} MiB were"
        " copied: a page that is shared is in the child's RSS already, and its copy"
        " takes its place. Published growth is a child's that starts at nothing."
    )
    page = copied / result.median("read", "copied_pages")
    there = copied / PUBLISHED_PAGE
    yield (
        f"Reads took {result.median('read', 'minor_faults'):,.0f} faults (published"
        f" {PUBLISHED_FAULTS['read']:,}): a page is {page / 1024:.0f} KiB here and was"
        f" 16 KiB there, where the same {copied / MIB:.0f} MiB are {there:,.0f} pages:"
        f" at two faults each {2 * there:,.0f}."
    )
    frozen = result.median("collect-frozen", "frozen")
    yield f"gc.freeze froze {frozen:,.0f} objects (published 809,451)."
    count = result.parameters["allocations"]
    yield f"{count:,} new containers in the child: {_what_the_collector_did(result)}"


def _what_the_collector_did(result: Result) -> str:
    thawed = result.median("automatic", "share")
    frozen = result.median("automatic-frozen", "share")
    if thawed > result.median("collect", "share") / 2:
        return (
            f"the collector went through the parent's objects as well and copied"
            f" {thawed:.0%} of the parent; with gc.freeze {frozen:.1%} was copied."
        )
    return (
        f"that many did not make the collector look at the parent's objects:"
        f" {thawed:.1%} of the parent was copied, with gc.freeze {frozen:.1%}."
    )


_ABOUT = {
    "nothing": "does nothing",
    "read": "reads every int once",
    "collect": "calls gc.collect()",
    "both": "reads, then calls gc.collect()",
    "automatic": "allocates new lists, with the collector on",
}

EXPERIMENT = Experiment(
    name="refcount-privatisation",
    title="What a child copies by reading, and by collecting, inherited lists",
    claims=(
        Claim(
            "A9",
            "A §7",
            "reads copy 88% of the parent, gc.collect 90%; freeze helps the latter",
            reads_copy,
        ),
        Claim("A10", "A §7", "1.96 faults per privatised page", faults_per_page),
    ),
    parameters={
        "rows": Parameter(800_000, "lists in the parent", maximum=100_000_000),
        "allocations": Parameter(400_000, "new lists (automatic)", maximum=10**8),
    },
    arms=tuple(
        Arm(name + frozen, about + before)
        for name, about in _ABOUT.items()
        for frozen, before in (("", ""), ("-frozen", "; the parent called gc.freeze()"))
    ),
    columns=(
        Column(
            "copied",
            "copied MiB",
            "MiB",
            {arm: size * MIB for arm, size in PUBLISHED_GROWTH.items()},
            "inherited pages that the child wrote; published: growth of the child",
        ),
        Column(
            "share",
            "of parent",
            "%",
            PUBLISHED_SHARE,
            "copied pages, of those the child shared with its parent before the task",
        ),
        Column(
            "minor_faults",
            "minor faults",
            "",
            PUBLISHED_FAULTS,
            "the kernel's count for the child while the task ran",
        ),
        Column(
            "faults_per_page",
            "faults/page",
            "x",
            {"read": 1.96},
            "minor faults for each copied page; - where many are of fresh ones",
        ),
        Column(
            "rss_growth",
            "RSS growth MiB",
            "MiB",
            about="of the child: what tools that watch RSS see",
        ),
        Column(
            "touched",
            "touched MiB",
            "MiB",
            about="what the child read or wrote; in a fork of its own",
        ),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
