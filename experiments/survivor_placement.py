"""2,000,000 tuples, 1% kept: which ones decides what memory comes back.

pymalloc gives whole arenas of 1 MiB back and nothing less. One survivor pins its arena,
so that survivors spread evenly keep all of the memory, and the same number side by side
next to none. ``trim`` returns the free pages inside pinned arenas; it does not move
objects, and so it has its own limit: a page with a survivor on it stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

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

Triple = tuple[int, int, int]

STEPS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
PUBLISHED = {"all": 211.0, "every-100": 211.0, "first-1%": 22.3, "none": 20.3}
MB = 1_000_000


def choose(arm: str, made: list[Triple]) -> list[Triple]:
    """The survivors of an arm."""
    if arm == "all":
        return made[:]
    if arm == "none":
        return []
    if arm == "first-1%":
        return made[: len(made) // 100]
    if arm == "random-1%":
        import random  # not before: it leaves a handler for forks

        return random.Random(1).sample(made, len(made) // 100)
    return made[:: int(arm.removeprefix("every-"))]


def _resident() -> int:
    from cowlab._smaps import smaps_rollup

    return smaps_rollup().rss or 0


def run_arm(arm: str, *, tuples: int) -> Metrics:
    """Make the tuples, keep the arm's survivors, and look at what is resident."""
    from cowlab._pools import arenas
    from cowlab._trim import trim

    arenas(), trim()  # whatever they need once is there before the first reading
    base = _resident()
    made = [(i, i + 1, i + 2) for i in range(1_000, tuples + 1_000)]
    peak = _resident()
    kept = choose(arm, made)
    del made
    resident = _resident()
    pinned = arenas()
    report = trim()
    trimmed = _resident()
    begin = perf_counter()
    good = all(b == a + 1 and c == a + 2 for a, b, c in kept)
    if not good:
        raise AssertionError("a trim changed what lies in a survivor")
    return {
        "rss": resident,
        "retained": resident - base,
        "share": (resident - base) / (peak - base),
        "trimmed": trimmed - base,
        "trimmed_share": (trimmed - base) / max(resident - base, 1),
        "trim_seconds": report.seconds,
        "check_seconds": perf_counter() - begin,
        "arenas": len(pinned),
        "live": sum(row.live for row in pinned),
        "blocks_retired": report.blocks_retired,
    }


def placement_decides(result: Result) -> Verdict:
    """A16: every 100th keeps all, the first 1% nearly nothing, by placement alone."""
    if result.parameters["tuples"] < 200_000:
        return unanswered("too few tuples: the interpreter's own memory weighs as much")
    spread = result.median("every-100", "share")
    beside = result.median("first-1%", "share")
    ratio = result.median("every-100", "rss") / result.median("first-1%", "rss")
    text = (
        f"1% spread evenly retains {spread:.0%} of the peak, side by side {beside:.1%}:"
        f" {ratio:.1f}x of resident memory (published 9.5x)"
    )
    if spread < 0.5 or beside > 0.25:
        return refuted(text)
    return (
        reproduced(text) if 7 <= ratio <= 14 else different(f"{text}; {_why(result)}")
    )


def _why(result: Result) -> str:
    none = result.median("none", "rss")
    peak = result.median("all", "rss")
    return (
        f"it is bounded by the interpreter's own {none / MIB:.0f} MiB below and by"
        f" {peak / MIB:.0f} MiB above, for tuples of three ints"
    )


def restart_is_the_only_cure(result: Result) -> Verdict:
    """A16, its second part: nothing but a restart gives the memory back."""
    spread = result.median("every-100", "trimmed_share")
    scattered = result.median("random-1%", "trimmed_share")
    text = (
        f"trim() brought what 1% retains down to {spread:.0%} (every 100th) and"
        f" {scattered:.0%} (at random) of it in a running process"
    )
    return refuted(text) if min(spread, scattered) < 0.9 else reproduced(text)


def notes(result: Result) -> Iterable[str]:
    """The cliff: how many survivors it takes to keep everything."""
    cliff = [
        f"1 in {step:,}: {result.median(f'every-{step}', 'share'):.0%}"
        for step in STEPS
        if f"every-{step}" in result.arms
    ]
    if cliff:
        yield (
            "What evenly spread survivors retain of the peak: " + ", ".join(cliff) + "."
        )
    seconds = result.median("every-100", "trim_seconds")
    count = result.median("every-100", "arenas")
    yield f"The trim of {count:,.0f} arenas took {seconds * 1e3:,.0f} ms."


EXPERIMENT = Experiment(
    name="survivor-placement",
    title="What survivors retain, by where they lie, and after a trim",
    claims=(
        Claim(
            "A16",
            "A §14",
            "2,000,000 tuples, 1% kept: every 100th retains all, the first a tenth",
            placement_decides,
        ),
        Claim(
            "A16-cure",
            "A §14",
            "restarting the process is the only cure",
            restart_is_the_only_cure,
        ),
    ),
    parameters={
        "tuples": Parameter(2_000_000, "tuples of three ints", maximum=100_000_000),
    },
    arms=(
        Arm("all", "keeps everything"),
        Arm("none", "keeps nothing"),
        Arm("first-1%", "keeps the first 1%, side by side"),
        Arm("random-1%", "keeps 1%, at random"),
        *(Arm(f"every-{step}", f"keeps every {step:,}th") for step in STEPS),
    ),
    columns=(
        Column(
            "rss",
            "RSS MiB",
            "MiB",
            {arm: size * MB for arm, size in PUBLISHED.items()},
            "of the whole process, after the others were freed",
        ),
        Column("retained", "retained MiB", "MiB", about="RSS over that before it all"),
        Column("share", "of peak", "%", about="retained, of what the peak had added"),
        Column("trimmed", "trimmed MiB", "MiB", about="retained after cowlab.trim()"),
        Column("trimmed_share", "of retained", "%", about="after the trim"),
        Column("arenas", "arenas", "", about="that were pinned before the trim"),
        Column("trim_seconds", "trim ms", "ms", about="how long it took"),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
