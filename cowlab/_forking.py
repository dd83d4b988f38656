"""measure(): fork, run one task, and account for every page the child inherited."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from . import _errors
from ._outcome import decode, encode, raise_failure

__all__ = [
    "KINDS",
    "Account",
    "ChildReport",
    "ForkReport",
    "Observer",
    "Pages",
    "Rollup",
    "measure",
]

SCHEMA = 1

KINDS = ("pymalloc", "heap", "anonymous", "image", "stack")
"""Where a page lies: in a pool of pymalloc; in the brk heap; in other anonymous memory;
in the written data of the executable and its libraries, or the zero-filled tail of it;
on
the main thread's stack."""

MAX_CHILDREN = 1024


@dataclass(frozen=True, slots=True)
class Pages:
    """A number of pages in each state.

    ``inherited == kept + copied + sole + dropped + unknown`` always. ``fresh`` is the
    net growth of private pages that were not inherited: negative where more were given
    back than came. A page that is unmapped and mapped anew at the same address cannot
    be told from a copied one. Source: the page map, with a witness.
    """

    inherited: int = 0
    kept: int = 0
    copied: int = 0
    sole: int = 0
    fresh: int = 0
    dropped: int = 0
    unknown: int = 0

    def __add__(self, other: Pages) -> Pages:
        return Pages(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(Pages))
        )

    @property
    def private_growth(self) -> int:
        """Pages by which this account lets Private_Dirty grow."""
        return self.copied + self.sole + self.fresh


@dataclass(frozen=True, slots=True)
class Rollup:
    """Bytes, from smaps_rollup, read while no witness lived.

    ``uss`` is Private_Clean + Private_Dirty; huge pages of hugetlb are in none of
    these. ``rss`` counts a page that is shared as if it were one's own, and so does not
    grow when it is copied.
    """

    rss: int
    pss: int
    uss: int
    private_dirty: int

    def __add__(self, other: Rollup) -> Rollup:
        return Rollup(
            self.rss + other.rss,
            self.pss + other.pss,
            self.uss + other.uss,
            self.private_dirty + other.private_dirty,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """What became of a child's inherited pages between two moments.

    From fork to rest, ``pages.inherited`` is every page inherited. From rest to done it
    is those whose fate was still open at rest: shared, or unknown. ``by_kind`` splits
    ``pages`` by the names in ``KINDS``. Faults are the kernel's counts, from
    /proc/PID/stat.
    """

    pages: Pages
    by_kind: Mapping[str, Pages]
    minor_faults: int
    major_faults: int
    seconds: float

    def __add__(self, other: Account) -> Account:
        return Account(
            self.pages + other.pages,
            {kind: self.by_kind[kind] + other.by_kind[kind] for kind in KINDS},
            self.minor_faults + other.minor_faults,
            self.major_faults + other.major_faults,
            max(self.seconds, other.seconds),
        )


@dataclass(frozen=True, slots=True)
class Observer:
    """What looking has cost, and where.

    ``page_map_reads`` and ``reading_seconds`` were spent in the parent while the child
    was blocked. ``retouched`` pages, which the child had written by the time it was at
    rest, were touched again before the task, since making the witness protects them:
    ``minor_faults`` of the child between rest and the task, in no account.
    ``shared_bytes`` of address space are mapped in the child for the two to talk.
    """

    page_map_reads: int
    reading_seconds: float
    retouched: int
    minor_faults: int
    shared_bytes: int

    def __add__(self, other: Observer) -> Observer:
        return Observer(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(Observer))
        )


@dataclass(frozen=True, slots=True)
class ChildReport:
    """One child: the task's account (rest to done), the fork's own (fork to rest)."""

    pid: int
    task: Account
    fork_overhead: Account
    before: Rollup
    after: Rollup
    value: Any
    observer: Observer
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForkReport:
    """All children of one measure() call.

    ``inherited``, ``kept``, ``copied``, ``sole``, ``fresh``, ``dropped``, ``unknown``
    (pages), ``by_kind``, ``before``, ``after`` (bytes) and the faults are sums over the
    children, from rest to done; ``fork_overhead`` has what the fork itself cost before
    that. ``parent_before`` and ``parent_after`` are this process at the same two
    moments, without what the readings themselves take; with them the ``pss`` of all is
    what the group takes. ``seconds`` is the longest task's time, ``value`` the first
    child's result. ``children`` has each child's own report. Source: page map,
    smaps_rollup and stat of /proc, read from the parent while the child was blocked.
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
    observer: Observer
    warnings: tuple[str, ...]
    page_size: int
    schema: int = SCHEMA
    blame: Any = field(default=None, repr=False)
    parent_before: Rollup | None = None
    parent_after: Rollup | None = None

    @property
    def pages(self) -> Pages:
        """The sums as one object."""
        return Pages(*(getattr(self, f.name) for f in fields(Pages)))

    @property
    def copied_bytes(self) -> int:
        return self.copied * self.page_size

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for json.dumps; results of tasks are left out."""
        data = asdict(self)
        for report in (data, *data["children"]):
            del report["value"]
        data["blame"] = None if self.blame is None else self.blame.to_json()
        return data

    def __str__(self) -> str:
        from .report._fork import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from .report._fork import as_html

        return as_html(self)


def measure(
    task: Callable[..., Any],
    *args: Any,
    children: int = 1,
    setup: Callable[[], Any] | None = None,
    timeout: float | None = None,
    record: str | None = None,
) -> ForkReport:
    """Fork, run ``task(*args)`` in the child, and account for every inherited page.

    All ``children`` are forked before any runs, and run at once. ``setup()`` is called
    in this process right before the fork. Every child waits twice - at *rest*, when its
    at-fork handlers are done, and when its task is *done* - and is read from here while
    it waits. It runs nothing but the task in between, and leaves by ``os._exit``; its
    result is pickled only after the last reading.

    ``timeout`` is in seconds, for each of: reaching rest, the task, sending the result;
    None waits for ever (Ctrl-C ends it cleanly).

    ``record`` is a mode of ``cowlab.record()``: then ``report.blame`` says of each page
    that was copied why, and which line did it. "lines" makes a copy cost two to three
    times as much.

    Raises ``TaskError`` (from the task's own exception) where the task raised,
    ``ChildKilled``, ``ChildExited``, ``ChildTimeout`` or ``ResultError`` where there is
    no result; the other children are then ended too. ``Unsupported`` where this machine
    or interpreter cannot do it; ``TypeError`` and ``ValueError`` for bad arguments.

    >>> report = measure(sum, [1, 2, 3])
    >>> report.value
    6
    >>> report.inherited == report.kept + report.copied + report.sole \\
    ...     + report.dropped + report.unknown
    True
    """
    _check_arguments(task, children, setup, timeout)
    native = _errors.native("measure()")
    recorders: tuple[Any, ...] = ()
    if record is not None:
        from ._recorder import prepare_children

        recorders = prepare_children(record, children)
    if setup is not None:
        setup()
    _flush(sys.stdout)
    _flush(sys.stderr)
    threads = _thread_count()
    raw = native.measure(
        task,
        args,
        {},
        children,
        -1.0 if timeout is None else timeout,
        encode,
        recorders,
    )
    if "failure" in raw[0]:
        if raw[0]["failure"] == "recorder":
            from ._recorder import raise_why_not

            raise_why_not(raw[0]["recorder_errno"], str(record))
        raise_failure(raw[0], timeout)
    report = _report(raw, threads)
    if not recorders:
        return report
    from ._attribution import blame_children

    return replace(report, blame=blame_children(raw, recorders, report.inherited))


def _check_arguments(task: Any, children: Any, setup: Any, timeout: Any) -> None:
    if not callable(task):
        raise TypeError(f"task must be callable, not {type(task).__name__}")
    if setup is not None and not callable(setup):
        raise TypeError(f"setup must be callable or None, not {type(setup).__name__}")
    if isinstance(children, bool) or not isinstance(children, int):
        raise TypeError(f"children must be an int, not {type(children).__name__}")
    if not 1 <= children <= MAX_CHILDREN:
        raise ValueError(f"children must be 1 to {MAX_CHILDREN}, not {children}")
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(
            f"timeout must be seconds or None, not {type(timeout).__name__}"
        )
    if not (0 < timeout <= 1e9) or math.isnan(timeout):
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout!r}")


def _flush(stream: Any) -> None:
    """What is buffered here must not be written again by the child."""
    # None, closed, or a pipe that nobody reads: then there is nothing to repeat.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        stream.flush()


def _thread_count() -> int:
    """Threads of this process that are Python's; a child has only its caller's."""
    threading = sys.modules.get("threading")
    return 1 if threading is None else threading.active_count()


# --- reports ------------------------------------------------------------------


def _report(raw: list[dict[str, Any]], threads: int) -> ForkReport:
    import resource

    page_size = resource.getpagesize()
    values = [decode(one.pop("payload"), i) for i, one in enumerate(raw)]
    children = tuple(
        _child_report(one, value, page_size)
        for one, value in zip(raw, values, strict=True)
    )
    task = _sum(child.task for child in children)
    shared: list[str] = []
    if threads > 1:
        shared.append(
            f"{threads - 1} other threads were running: what they wrote after the fork "
            "shows as sole, and a lock that one held stays locked in the child"
        )
    warnings = [
        f"child {i}: {text}" if len(children) > 1 else text
        for i, child in enumerate(children)
        for text in child.warnings
    ]
    return ForkReport(
        children=children,
        **{f.name: getattr(task.pages, f.name) for f in fields(Pages)},
        by_kind=task.by_kind,
        before=_sum(child.before for child in children),
        after=_sum(child.after for child in children),
        minor_faults=task.minor_faults,
        major_faults=task.major_faults,
        value=values[0],
        seconds=task.seconds,
        fork_overhead=_sum(child.fork_overhead for child in children),
        observer=_sum(child.observer for child in children),
        warnings=(*shared, *warnings),
        page_size=page_size,
        parent_before=_rollup(raw[0]["parent_before"]),
        parent_after=_rollup(raw[0]["parent_after"]),
    )


def _sum(items: Iterable[Any]) -> Any:
    iterator = iter(items)
    total = next(iterator)
    for item in iterator:
        total = total + item
    return total


def _account(
    tallies: Iterable[Iterable[int]], minor: int, major: int, nanoseconds: int
) -> Account:
    by_kind = {
        kind: Pages(*tally)
        for kind, tally in zip(KINDS, _in_order(tallies), strict=True)
    }
    return Account(_sum(by_kind.values()), by_kind, minor, major, nanoseconds / 1e9)


def _in_order(tallies: Iterable[Iterable[int]]) -> list[list[int]]:
    return [list(tally) for tally in tallies]


def _rollup(raw: Mapping[str, int]) -> Rollup:
    return Rollup(
        rss=raw["rss"],
        pss=raw["pss"],
        uss=raw["private_clean"] + raw["private_dirty"],
        private_dirty=raw["private_dirty"],
    )


def _child_report(raw: dict[str, Any], value: Any, page_size: int) -> ChildReport:
    rest_minor, rest_major, go_minor, go_major, done_minor, done_major = raw["faults"]
    fork_time, rest_time, go_time, done_time = raw["times"]
    task = _account(
        raw["task_account"],
        done_minor - go_minor,
        done_major - go_major,
        done_time - go_time,
    )
    overhead = _account(
        raw["fork_account"], rest_minor, rest_major, rest_time - fork_time
    )
    before, after = _rollup(raw["before"]), _rollup(raw["after"])
    return ChildReport(
        pid=raw["pid"],
        task=task,
        fork_overhead=overhead,
        before=before,
        after=after,
        value=value,
        observer=Observer(
            page_map_reads=raw["page_map_reads"],
            reading_seconds=raw["reading_ns"] / 1e9,
            retouched=raw["retouched"],
            minor_faults=go_minor - rest_minor,
            shared_bytes=raw["control_bytes"],
        ),
        warnings=tuple(_warnings(raw, task, page_size)),
    )


def _differ(one: int, other: int) -> bool:
    return abs(one - other) > max(64, max(abs(one), abs(other)) // 100)


def _private(rollup: Mapping[str, int]) -> int:
    """Bytes that the page map would show as private: the hugetlb pool's too."""
    return rollup["private_dirty"] + rollup["private_hugetlb"]


def _warnings(raw: dict[str, Any], task: Account, page_size: int) -> Iterable[str]:
    """Where two instruments disagree, or a reading could not be told, and why."""
    pages = task.pages
    huge = raw["after"]["anon_huge_pages"] or raw["before"]["anon_huge_pages"]
    if raw["zero_untold"]:
        yield (
            f"up to {raw['zero_untold']} pages of zeros that nobody wrote may be "
            "counted as inherited: telling them apart needs PAGEMAP_SCAN (Linux 6.7)"
        )
    if pages.unknown:
        yield (
            f"{pages.unknown} inherited pages are unknown: they are or were swapped "
            "out; measure again with swap off, or with more memory"
        )
    by_smaps = (_private(raw["after"]) - _private(raw["before"])) // page_size
    by_page_map = pages.private_growth + raw["shared_memory"]
    if _differ(by_smaps, by_page_map):
        if huge:
            reason = "transparent huge pages are in use, and are counted as a whole"
        elif by_page_map == 0:
            reason = "this kernel's page map may lack map counts"
        elif raw["after"]["swap"] or raw["before"]["swap"]:
            reason = "pages were swapped meanwhile"
        else:
            reason = (
                "a process that the task forked still shares pages with it, or "
                "file pages became dirty"
            )
        yield (
            f"Private_Dirty grew by {by_smaps} pages, the page map says {by_page_map}: "
            f"{reason}"
        )
    touched = pages.copied + max(pages.fresh, 0)
    if _differ(task.minor_faults, touched):
        if huge:
            reason = "one fault in a huge page brings 512 pages, or splits it"
        elif task.minor_faults > touched:
            reason = (
                "the task also read memory or files for the first time, gave pages "
                "back, or wrote pages that the parent had left it alone with"
            )
        else:
            reason = "pages came in groups, by read-ahead, populate or huge pages"
        yield (
            f"{task.minor_faults} minor faults, but {touched} pages copied or fresh: "
            f"{reason}"
        )
    if pages.sole > 64:
        yield (
            f"{pages.sole} inherited pages are sole: the parent wrote them while the "
            "task ran; that is the parent's cost, not the task's"
        )
