"""1,500,000 pairs: what tracemalloc says, what the system gave, and what lies between.

tracemalloc counts what was asked for. Between that and resident memory are the
allocator's rounding, pools and arenas that are not full, tracemalloc's own records, and
the C library. Each is measured apart, so that together they make the growth of RSS.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

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
from cowlab._result import Result

MB = 1_000_000
PARTS = ("requested", "rounding", "pools", "tracer", "libc", "rest")


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes: resident in all, of private memory without a file, and of arenas."""

    rss: int
    anonymous: int
    arenas: int
    live: int


def look() -> Moment:
    """What is resident now."""
    from cowlab._pools import arenas
    from cowlab._smaps import smaps

    entries = smaps()
    found = arenas()
    return Moment(
        rss=sum(entry.rss or 0 for entry in entries),
        anonymous=sum(
            entry.rss or 0 for entry in entries if entry.kind in ("anonymous", "heap")
        ),
        arenas=sum(row.resident for row in found),
        live=sum(row.live for row in found),
    )


def run_arm(arm: str, *, pairs: int) -> Metrics:
    """Make the pairs with tracemalloc or without, then stop it, then free them."""
    import tracemalloc

    look()
    first = look()
    if arm == "traced":
        tracemalloc.start()
    made = [(i, i + 1) for i in range(1_000, pairs + 1_000)]
    large = sys.getsizeof(made)
    counted, _ = tracemalloc.get_traced_memory()
    tracer = tracemalloc.get_tracemalloc_memory()
    full = look()
    tracemalloc.stop()
    stopped = look()
    del made
    freed = look()
    growth = full.rss - first.rss
    arenas, live = full.arenas - first.arenas, full.live - first.live
    outside = full.anonymous - first.anonymous - arenas
    requested = counted if arm == "traced" else None
    rounding = None if requested is None else live - (requested - large)
    return {
        "growth": growth,
        "requested": requested,
        "rounding": rounding,
        "live": live,
        "pools": arenas - live,
        "tracer": tracer,
        "libc": outside - large - tracer,
        "rest": growth - arenas - outside,
        "stopped": stopped.rss - first.rss,
        "left": freed.rss - first.rss,
        "ratio": None if requested is None else growth / requested,
        "ratio_stopped": (
            None if requested is None else (stopped.rss - first.rss) / requested
        ),
    }


def gap(result: Result) -> Verdict:
    """A17: resident memory grew by 3.26 times what tracemalloc says."""
    if result.parameters["pairs"] < 100_000:
        return unanswered("too few pairs: the interpreter's own memory weighs as much")
    ratio = result.median("traced", "ratio")
    stopped = result.median("traced", "ratio_stopped")
    own = result.median("traced", "tracer") / result.median("traced", "growth")
    plain = result.median("plain", "growth") / result.median("traced", "requested")
    text = (
        f"RSS grew {ratio:.2f}x what tracemalloc counted (published 3.26x),"
        f" {stopped:.2f}x after stopping it (published 2.71x)"
    )
    if ratio < 1.2:
        return refuted(text)
    if ratio > 2.9:
        return reproduced(text)
    return different(
        f"{text}. Its own records are {own:.0%} of the growth; without it the same"
        f" pairs take {plain:.2f}x: rounding to 16 bytes, pools and the list"
    )


def notes(result: Result) -> Iterable[str]:
    """The bars, and what is left at the end."""
    growth = result.median("traced", "growth")
    parts = {name: result.median("traced", name) for name in PARTS}
    bars = ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items())
    total = sum(parts.values())
    yield f"MiB: {bars}; together {total / MIB:.1f} of {growth / MIB:.1f}."
    left = result.median("traced", "left")
    plain = result.median("plain", "left")
    yield (
        f"After everything was freed {left / MIB:.1f} MiB are left, without tracemalloc"
        f" {plain / MIB:.1f} (published 352 MB)."
    )


EXPERIMENT = Experiment(
    name="tracemalloc-gap",
    title="Between what tracemalloc counts and what the system gave",
    claims=(
        Claim(
            "A17",
            "A §15",
            "1,500,000 pairs: tracemalloc 194.6 MB, RSS +634 MB, 3.26x",
            gap,
        ),
    ),
    parameters={
        "pairs": Parameter(1_500_000, "tuples of two ints", maximum=100_000_000),
    },
    arms=(
        Arm("traced", "makes the pairs while tracemalloc watches"),
        Arm("plain", "makes them without it"),
    ),
    columns=(
        Column("growth", "RSS growth MiB", "MiB", {"traced": 634 * MB}),
        Column(
            "requested",
            "requested MiB",
            "MiB",
            {"traced": 194.6 * MB},
            "what tracemalloc counts",
        ),
        Column("rounding", "rounding MiB", "MiB", about="of blocks to 16 bytes"),
        Column("pools", "pools MiB", "MiB", about="headers, free blocks, free pools"),
        Column("tracer", "tracemalloc MiB", "MiB", about="its own records"),
        Column("libc", "libc MiB", "MiB", about="beyond what was asked of it"),
        Column("rest", "rest MiB", "MiB", about="files, stacks"),
        Column("ratio", "RSS/requested", "x", {"traced": 3.26}),
        Column("ratio_stopped", "after stop", "x", {"traced": 2.71}),
        Column("left", "left MiB", "MiB", {"traced": 352 * MB}, "after all was freed"),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
