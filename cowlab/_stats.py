"""The few statistics that reports use: median, extremes, and how many."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Summary", "median", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """n values: their median, the smallest and the largest."""

    median: float
    min: float
    max: float
    n: int


def median(values: Iterable[float]) -> float:
    """The middle value; of an even number, the mean of the two in the middle.

    >>> median([3, 1, 2])
    2
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there is no median of nothing")
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    low, high = ordered[half - 1], ordered[half]
    if low == high:
        return low
    middle = (low + high) / 2
    return middle if math.isfinite(middle) else low / 2 + high / 2


def summarise(values: Iterable[float]) -> Summary:
    """The Summary of at least one value."""
    kept = list(values)
    return Summary(median(kept), min(kept), max(kept), len(kept))
