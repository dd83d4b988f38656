"""What a trial found, as data: samples, forecast, recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cowlab._errors import UsageError, needs
from cowlab._result import Failure
from cowlab._stats import Summary, summarise

__all__ = [
    "ARMS",
    "Blamed",
    "Difference",
    "Forecast",
    "TrialReport",
    "TrialSample",
]

SCHEMA = 1

ARMS = {
    "plain": "loads, and forks",
    "freeze": "calls gc.collect() and gc.freeze() first",
    "immortalize": "makes all that lives immortal first",
    "both": "does both",
    "prepare": "calls cowlab.prepare_fork() first",
}
"""Each way of forking that is tried. The simplest first."""

PREFERRED = ("freeze", "prepare", "both", "immortalize")
"""Which remedy to recommend where several save the same. prepare_fork is what the two
after it are parts of, and goes on keeping pages shared at later forks."""

NOISE = 0.03
"""Of plain's PSS: less is not told apart, even where the samples agree."""


@dataclass(frozen=True, slots=True)
class TrialSample:
    """One arm, once, read when all workers were at their end and alive.

    Sizes are bytes, of the master and all workers together: ``pss`` is what they take,
    ``uss`` what only one of them has, ``workers_uss`` that without the master's.
    ``copied`` pages were inherited and written, ``fresh`` ones came anew; both from the
    fork to the end, as are the faults. ``inherited`` is the sum over the workers.
    ``seconds`` and ``cpu`` are for one unit of work, a worker's wall and processor
    time; ``elapsed`` is how long the slowest worker took for all of its units.
    ``immortal`` and ``frozen`` count objects.
    """

    arm: str
    repetition: int
    pss: int
    uss: int
    rss: int
    pss_at_fork: int
    workers_uss: int
    inherited: int
    copied: int
    fresh: int
    minor_faults: int
    major_faults: int
    seconds: float
    cpu: float
    elapsed: float
    load_seconds: float
    prepare_seconds: float
    immortal: int
    frozen: int
    workers: tuple[Mapping[str, Any], ...] = field(repr=False)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """An arm whose work was not the same as plain's, and what is known of it.

    ``kind``: "not deterministic" (plain differs from itself), "changed" (this arm
    differs from plain, which agrees with itself), "one sample" (they differ, and one
    sample of each cannot tell which of the two it is), "incomparable" (results of a
    type that is not equal to itself elsewhere).
    """

    arm: str
    kind: str
    units: int
    first: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The group's PSS with some number of workers, each doing as much as here.

    ``ceiling`` is what it grows to if every worker goes on until it has written every
    page it inherited.
    """

    workers: int
    pss: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class Blamed:
    """The lines that copied most in one arm, recorded in a run of its own."""

    arm: str
    copied: int
    page_size: int
    lines: tuple[Mapping[str, Any], ...]
    limits: tuple[str, ...]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """All samples of a trial, and what follows from them.

    ``differences`` is empty where every arm's results were shown to be plain's.
    ``compared`` is False where they were not asked to be compared.
    """

    command: Mapping[str, Any]
    environment: Mapping[str, Any]
    samples: tuple[TrialSample, ...]
    failures: tuple[Failure, ...] = ()
    differences: tuple[Difference, ...] = ()
    compared: bool = True
    server: str = "gunicorn"
    blame: tuple[Blamed, ...] = ()
    interrupted: bool = False
    schema: int = SCHEMA

    @property
    def workers(self) -> int:
        """How many there were."""
        count: int = self.command["workers"]
        return count

    @property
    def arms(self) -> list[str]:
        """Those that have samples, in the order of ``ARMS``."""
        found = {sample.arm for sample in self.samples}
        return [arm for arm in ARMS if arm in found]

    @property
    def failed(self) -> bool:
        """Whether an arm failed, or equal work was not shown."""
        return bool(self.differences) or any(
            failure.kind != "unsupported" for failure in self.failures
        )

    def summary(self, arm: str, figure: str) -> Summary:
        """Median, min, max and n of one figure of one arm."""
        return summarise(getattr(s, figure) for s in self.samples if s.arm == arm)

    def forecast(self, arm: str, workers: int) -> Forecast:
        """What the group takes with another number of workers.

        The master maps each inherited page, and so pays for it once; a worker adds what
        it alone has. So it is straight: what all have in common, and for each worker
        its own. It holds for as much work per worker as was done here; pages of
        libraries that other programs share too make it a little too large.
        """
        if workers < 1:
            raise UsageError(f"workers is {workers}, and must be at least 1")
        own = self.summary(arm, "workers_uss").median / self.workers
        common = self.summary(arm, "pss").median - own * self.workers
        fresh = self.summary(arm, "fresh").median / self.workers
        inherited = self.summary(arm, "inherited").median / self.workers
        most = max(own, inherited + max(fresh, 0.0))
        return Forecast(workers, common + workers * own, common + workers * most)

    @property
    def recommendation(self) -> str | None:
        """The first of PREFERRED that saves nearly all that any saves; None: no arm.

        Arms whose samples overlap, or are less than 3% of plain's apart, are not told
        apart, neither from plain nor from the one that saves most: the share of the
        libraries changes with what else runs. None, too, where equal work was not
        shown.
        """
        if self.differences or "plain" not in self.arms:
            return None
        plain = self.summary("plain", "pss")
        sizes = {
            arm: self.summary(arm, "pss")
            for arm in self.arms
            if not any(failure.arm == arm for failure in self.failures)
        }
        better = {
            arm: size
            for arm, size in sizes.items()
            if size.max < plain.min and size.median < plain.median * (1 - NOISE)
        }
        if not better:
            return None
        best = min(better.values(), key=lambda size: size.median)
        enough = best.max + NOISE * plain.median
        return next(
            arm for arm in PREFERRED if arm in better and better[arm].min <= enough
        )

    @property
    def lines(self) -> str:
        """What to paste for the recommendation and the server; "" where there is none.

        Each was tried on that server, and prepares before the first fork.
        """
        from cowlab._advice import lines_to_paste

        return lines_to_paste(self.recommendation or "", self.server, self.command)

    def to_json(self) -> dict[str, Any]:
        """The whole report as plain data."""
        best = self.recommendation
        return {
            "report": "trial",
            "schema": self.schema,
            "command": dict(self.command),
            "environment": dict(self.environment),
            "samples": [asdict(sample) for sample in self.samples],
            "failures": [asdict(failure) for failure in self.failures],
            "differences": [asdict(one) for one in self.differences],
            "compared": self.compared,
            "interrupted": self.interrupted,
            "summary": {
                arm: {name: asdict(self.summary(arm, name)) for name in FIGURES}
                for arm in self.arms
            },
            "forecast": {
                arm: [asdict(self.forecast(arm, n)) for n in self.horizon()]
                for arm in self.arms
            },
            "recommendation": best,
            "server": self.server,
            "lines": self.lines or None,
            "blame": [asdict(one) for one in self.blame],
        }

    def horizon(self) -> list[int]:
        """Numbers of workers to forecast for: 1, 2, 4 ... and the one of the trial."""
        counts = {1 << i for i in range(11) if 1 << i <= 4 * self.workers}
        return sorted(counts | {self.workers})

    @property
    def text(self) -> str:
        """The report as a person reads it."""
        with needs("The text of a trial", "rich"):
            from cowlab.report._trial import as_text

        return as_text(self)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        with needs("A trial's page", "rich"):
            from cowlab.report._trial import as_html

        return as_html(self)


FIGURES = (
    "pss",
    "uss",
    "rss",
    "copied",
    "fresh",
    "minor_faults",
    "major_faults",
    "seconds",
    "cpu",
    "elapsed",
    "prepare_seconds",
)
