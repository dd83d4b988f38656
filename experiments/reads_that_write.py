"""Which everyday operations write to objects that they only read, and what they write.

Each arm builds objects, forks, and lets the child do one thing with each of them. The
recorder says what field of what was written first on each page that the child copied.
Then the parent prepares with all steps, after it has done the same with a few objects
more (``prepare_fork(warm, fill=True)``), and forks again, to show what is left.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from typing import Any

from cowlab._errors import Unsupported
from cowlab._experiment import (
    Arm,
    Claim,
    Column,
    Experiment,
    Metrics,
    Parameter,
    Verdict,
    refuted,
    reproduced,
)
from cowlab._forking import measure
from cowlab._result import Result
from cowlab.experiments._operations import OPERATIONS, READS, Operation

BY_NAME = {operation.name: operation for operation in OPERATIONS}

FIELD = "first write: "  # begins the names of metrics that are no columns

FLOOR = 20  # pages that a task copies whatever it does


def column_of(page: Any) -> str:
    """The column that a page counts in, by what was written on it."""
    if page.cause in ("allocation", "free", "allocator", "libc heap", "raw buffer"):
        return "heap"
    named = {
        "reference count": "counts",
        "GC links": "gc",
        "code object": "code",
        "kernel write": "kernel",
    }
    if page.cause in named:
        return named[page.cause]
    if page.cause == "payload":
        caches = ("hash cache", "UTF-8 cache", "weak references", "exports")
        return "caches" if page.field in caches else "contents"
    return "other"


def field_of(page: Any) -> str:
    """What was written on a page: the field, and the type that it is of."""
    if page.type is None:
        return str(page.cause)
    return f"{page.field or page.cause} of {page.type.rpartition('.')[2]}"


COLUMNS = ("counts", "gc", "caches", "contents", "code", "heap", "kernel", "other")


def run_arm(arm: str, *, objects: int) -> Metrics:
    """Build the objects, let a child use them, and split its copied pages by field."""
    operation = BY_NAME[arm]
    gc.disable()
    data = operation.make(objects)
    gc.collect()
    report = measure(operation.use, data, record="lines")
    split = Counter(column_of(page) for page in report.blame.pages)
    scale = 10_000 / objects
    fields = Counter(field_of(page) for page in report.blame.pages)
    return {
        "copied": report.copied * scale,
        **{name: split[name] * scale for name in COLUMNS},
        "prepared": _prepared(operation, data, scale),
        **{FIELD + name: n * scale for name, n in fields.most_common(5)},
        "warnings": report.warnings,
    }


def _prepared(operation: Operation, data: Any, scale: float) -> float | None:
    """Pages that the same copies after preparation; None where that cannot be."""
    from cowlab._prepare import prepare_fork

    try:
        prepare_fork(operation.warm, fill=True)
    except Unsupported:
        return None
    return measure(operation.use, data).copied * scale


def reading_writes(result: Result) -> Verdict:
    """Of the operations that change nothing a program could see."""
    reads = [
        operation.name
        for operation in READS
        if operation.name in result.arms and operation.name != "nothing"
    ]
    copying = [arm for arm in reads if result.median(arm, "copied") > FLOOR]
    counted = sum(result.median(arm, "counts") for arm in reads)
    total = sum(result.median(arm, "copied") for arm in reads)
    why = (
        f"{len(copying)} of {len(reads)} operations that only read copied pages, "
        f"{counted / total:.0%} of them for reference counts"
    )
    return reproduced(why) if len(copying) > len(reads) / 2 else refuted(why)


def first_writes(result: Result) -> Iterable[str]:
    """The largest fields of each operation: too many to be columns."""
    for arm in result.arms:
        fields: dict[str, float] = {}
        for sample in result.samples:
            if sample.arm == arm:
                for name, pages in sample.metrics.items():
                    if name.startswith(FIELD) and pages is not None:
                        fields[name.removeprefix(FIELD)] = pages
        if fields:
            shown = ", ".join(f"{name} {pages:.0f}" for name, pages in fields.items())
            yield f"{arm} writes {shown}"


EXPERIMENT = Experiment(
    name="reads-that-write",
    title="What everyday operations write to the objects they read",
    claims=(
        Claim(
            "A9",
            "A §7",
            "reading a list in a forked child copies the pages of what is in it",
            reading_writes,
        ),
    ),
    arms=tuple(Arm(op.name, op.about) for op in OPERATIONS),
    columns=(
        Column("copied", "pages", about="copied per 10,000 objects"),
        Column("counts", "counts", about="for a reference count"),
        Column("gc", "GC", about="for a GC head"),
        Column("caches", "caches", about="for a hash, UTF-8 text, weak reference"),
        Column("contents", "contents", about="for another field of an object"),
        Column("code", "code", about="for a code object's inline caches"),
        Column("heap", "heap", about="by allocating or freeing"),
        Column("kernel", "kernel", about="by a system call"),
        Column("other", "other", about="static data, stacks, unrecorded, unknown"),
        Column(
            "prepared", "prepared", about="all, after prepare_fork(warm, fill=True)"
        ),
    ),
    run_arm=run_arm,
    parameters={"objects": Parameter(10_000, "objects in the parent", minimum=100)},
    repeat=1,
    notes=first_writes,
    timeout=120.0,
)
