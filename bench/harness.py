"""Rows of the benchmark: contenders that take turns, and what became of a budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from cowlab import Unsupported

__all__ = ["Budget", "Measured", "Row", "Size", "Unavailable", "run"]

WIDE = 0.25
"""A spread, as a part of the median, beyond which one run says little."""

OURS, FLOOR = "cowlab", "floor"


class Unavailable(Exception):
    """The row cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: the real thing, or just enough to see that the harness runs."""

    rounds: int
    loops: int
    memory: int  # bytes
    objects: int


FULL = Size(rounds=31, loops=50, memory=1 << 30, objects=1_000_000)
QUICK = Size(rounds=2, loops=2, memory=4 << 20, objects=2_000)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the score. ``unit`` "x": of a ratio."""

    limit: float
    unit: str = "x"
    at_least: bool = False

    def met(self, score: float) -> bool:
        return score >= self.limit if self.at_least else score <= self.limit

    def __str__(self) -> str:
        word = "at least" if self.at_least else "at most"
        return f"{word} {self.limit:g} {self.unit}"


Contender = Callable[[], float]
"""One sample: the cost of one unit of work, in the row's unit."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    ``prepare(size)`` gives the contenders while it is entered: "cowlab", and what it is
    held against: "floor", the same by bare system calls in C, and what people use today
    under its own name. The score is cowlab / floor in each round if the budget's unit
    is "x" (or there is no budget and a floor), else cowlab's own figure. ``heavy`` rows
    run fewer rounds.
    """

    name: str
    what: str
    unit: str
    prepare: Callable[[Size], AbstractContextManager[Mapping[str, Contender]]]
    budget: Budget | None = None
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A row's samples by contender, one for each round, and its score in each."""

    row: Row
    samples: Mapping[str, list[float]] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)
    unavailable: str = ""

    @property
    def score_unit(self) -> str:
        if self.row.budget:
            return self.row.budget.unit
        return "x" if FLOOR in self.samples else self.row.unit

    @property
    def score(self) -> float:
        return statistics.median(self.scores)

    @property
    def met(self) -> bool | None:
        if self.row.budget is None or not self.scores:
            return None
        return self.row.budget.met(self.score)

    @property
    def wide(self) -> bool:
        """Whether the score moved so much that one run says little."""
        middle = self.scores and abs(self.score)
        return bool(middle) and (max(self.scores) - min(self.scores)) / middle > WIDE

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.row.name,
            "what": self.row.what,
            "unit": self.row.unit,
            "samples": dict(self.samples),
            "scores": self.scores,
            "score": self.score if self.scores else None,
            "score_unit": self.score_unit,
            "budget": str(self.row.budget) if self.row.budget else None,
            "met": self.met,
            "wide": self.wide,
            "unavailable": self.unavailable,
        }


def run(row: Row, size: Size) -> Measured:
    """Measure a row: each round asks every contender, each time in another order."""
    rounds = max(2, size.rounds // 5) if row.heavy else size.rounds
    try:
        with row.prepare(size) as contenders:
            names = list(contenders)
            samples: dict[str, list[float]] = {name: [] for name in names}
            for contender in contenders.values():
                contender()  # caches and page tables are warm for all
            for turn in range(rounds):
                first = turn % len(names)
                for name in names[first:] + names[:first]:
                    samples[name].append(contenders[name]())
    except (Unavailable, Unsupported) as reason:
        return Measured(row, unavailable=str(reason))
    ours = samples[OURS]
    ratio = row.budget.unit == "x" if row.budget else FLOOR in samples
    if not ratio:
        return Measured(row, samples, ours)
    pairs = zip(ours, samples[FLOOR], strict=True)
    return Measured(row, samples, [mine / floor for mine, floor in pairs])
