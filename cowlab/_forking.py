"""measure(): fork, run one task, and account for every page the child inherited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Account", "ChildReport", "ForkReport", "Pages", "Rollup", "measure"]

SCHEMA = 1

KINDS = ("pymalloc", "heap", "anonymous", "image", "stack")
"""Where a page lies: a pymalloc arena; the brk heap; other anonymous memory; the
written data of the executable and its libraries (and their zero-filled tail); a stack."""


@dataclass(frozen=True, slots=True)
class Pages:
    """A number of pages in each state; inherited == kept + copied + sole + dropped +
    unknown. ``fresh`` is a net growth and can be negative."""

    inherited: int
    kept: int
    copied: int
    sole: int
    fresh: int
    dropped: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Rollup:
    """Bytes, from smaps_rollup of the child. ``uss`` is Private_Clean + Private_Dirty
    (+ Private_Hugetlb)."""

    rss: int
    pss: int
    uss: int
    private_dirty: int


@dataclass(frozen=True, slots=True)
class Account:
    """What happened to one child's pages between two moments.

    ``inherited`` counts the pages still shared at the first moment; from fork to rest that is
    every inherited page, from rest to done what the fork itself left shared.
    """

    pages: Pages
    by_kind: Mapping[str, Pages]
    minor_faults: int
    major_faults: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChildReport:
    """One child: the task's account (rest to done) and the fork's own (fork to rest)."""

    pid: int
    task: Account
    fork_overhead: Account
    before: Rollup
    after: Rollup
    value: Any
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForkReport:
    """All children of one measure() call, summed where it makes sense.

    ``inherited``, ``kept``, ``copied``, ``sole``, ``fresh``, ``dropped``, ``unknown``
    (pages), ``minor_faults``, ``major_faults`` and ``by_kind`` are sums over the children;
    ``value``, ``before`` and ``after`` are the first child's. ``children`` has each alone.
    """

    children: tuple[ChildReport, ...]
    inherited: int
    kept: int
    copied: int
    sole: int
    fresh: int
    dropped: int
    unknown: int
    by_kind: Mapping[str, Pages]
    before: Rollup
    after: Rollup
    minor_faults: int
    major_faults: int
    value: Any
    seconds: float
    fork_overhead: Account
    observer: Mapping[str, float]
    warnings: tuple[str, ...]
    page_size: int
    schema: int = SCHEMA
    blame: Any = None

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, ``value`` left out."""
        raise RuntimeError("under construction")


def measure(
    task: Callable[..., Any],
    *args: Any,
    children: int = 1,
    setup: Callable[[], Any] | None = None,
    timeout: float | None = None,
    **kwargs: Any,
) -> ForkReport:
    """Fork, run ``task(*args)`` in the child, and account for every page."""
    raise RuntimeError("under construction")
