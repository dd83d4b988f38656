"""prepare_fork(): everything that keeps pages shared, in the order that works."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cowlab._conditions import Finding, conditions
from cowlab._errors import Unsupported, UsageError, native
from cowlab._files import flush_at_exit
from cowlab._immortal import (
    FILLS,
    FreezeReport,
    ImmortalReport,
    check_roots,
    freeze,
    given_types,
    walk,
)
from cowlab._seal import seal as seal_heap
from cowlab._suggest import suggest
from cowlab._trim import trim as trim_heap

__all__ = ["STEPS", "PrepareReport", "Step", "prepare_fork"]

SCHEMA = 1

STEPS = ("warm", "collect", "trim", "prehash", "fill", "immortalize", "freeze", "seal")
"""The steps, in the order in which they are taken."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: whether it was taken, for how long, and what came of it.

    ``reason`` says why it was not; "not asked for" is one of them. ``figures`` are
    counts, or bytes where the name says so.
    """

    name: str
    done: bool
    seconds: float = 0.0
    figures: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What one prepare_fork() call did.

    ``steps`` are in the order in which they were taken. ``conditions`` are those of
    ``cowlab.conditions()`` that held. ``immortal`` is None where nothing was made
    immortal. ``gc_paused``: the collector is off in this process, and will be on again
    in its children. ``seconds`` is the whole call, the warming of the caller included.
    """

    steps: tuple[Step, ...]
    conditions: tuple[Finding, ...]
    immortal: ImmortalReport | None
    gc_paused: bool
    seconds: float
    python: str
    schema: int = SCHEMA

    def step(self, name: str) -> Step:
        """The step of that name; ``KeyError`` where there is none."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"there is no step {name!r}. {suggest(name, STEPS)}")

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each condition that held."""
        return tuple(str(finding) for finding in self.conditions)

    def __str__(self) -> str:
        from cowlab.report._prepare import as_text

        return as_text(self)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "schema": self.schema,
            "python": self.python,
            "seconds": self.seconds,
            "gc_paused": self.gc_paused,
            "steps": [
                {
                    "name": step.name,
                    "done": step.done,
                    "seconds": step.seconds,
                    "figures": dict(step.figures),
                    "reason": step.reason,
                }
                for step in self.steps
            ],
            "conditions": [
                {
                    "name": finding.name,
                    "action": finding.action,
                    "found": finding.found,
                    "why": finding.why,
                    "remedy": finding.remedy,
                    "steps": list(finding.steps),
                }
                for finding in self.conditions
            ],
            "immortal": None if self.immortal is None else self.immortal.to_json(),
        }


# ---- What outlasts the call ----


class _Forks:
    """What the at-fork hooks do, decided by the last prepare_fork() in this process."""

    __slots__ = (
        "collect",
        "enable",
        "freeze",
        "hooked",
        "ours",
        "pid",
        "plain",
        "seal",
        "trim",
    )

    def __init__(self) -> None:
        self.hooked = False  # the hooks are installed
        self.pid = 0  # of the process that prepared: a child does not go on
        self.ours = False  # the fork under way is that process's
        self.plain = False  # the allocator is pymalloc, with nothing over it
        self.enable = False  # the collector was on, and we switched it off
        self.collect = self.freeze = self.seal = self.trim = False


_forks = _Forks()


def _before_fork() -> None:
    """Freeze and seal what this process made since it prepared."""
    _forks.ours = os.getpid() == _forks.pid
    if not _forks.ours:
        return
    from cowlab import _native

    if _forks.collect:
        # All else is frozen, so this looks at what is new alone; without it garbage
        # would be frozen, and with the collector off nobody else looks.
        gc.collect()
    if _forks.freeze:
        gc.freeze()
    if _forks.trim:
        _native.trim_libc()
    if _forks.seal:
        _native.seal_pools(_forks.plain)


def _in_child() -> None:
    if _forks.ours and _forks.enable:
        gc.enable()


def _install_hooks() -> None:
    if _forks.hooked:
        return
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    _forks.hooked = True


# ---- The steps ----


def _collect() -> Mapping[str, int]:
    return {"unreachable": gc.collect()}


def _with_libc(figures: dict[str, int], size: int | None) -> Mapping[str, int]:
    """The C library's bytes go with the others where there are any to tell of."""
    return figures if size is None else {**figures, "libc_bytes": size}


def _trim() -> Mapping[str, int]:
    report = trim_heap(libc=True)
    figures = {"bytes": report.bytes, "blocks_retired": report.blocks_retired}
    return _with_libc(figures, report.libc_bytes)


def _seal() -> Mapping[str, int]:
    report = seal_heap(libc=True)
    figures = {
        "pools_sealed": report.pools_sealed,
        "blocks_retired": report.blocks_retired,
        "bytes_retired": report.bytes_retired,
    }
    return _with_libc(figures, report.libc_bytes)


def _freeze() -> Mapping[str, int]:
    report: FreezeReport = freeze()
    return {"frozen": report.frozen, "added": report.added}


class _Plan:
    """Takes the steps one by one and keeps account of them."""

    def __init__(self, asked: Mapping[str, bool], findings: Iterable[Finding]) -> None:
        self.steps: list[Step] = []
        self.asked = asked
        self.barred = {
            name: f"{finding.found}: {finding.why}"
            for finding in findings
            if finding.action == "skip"
            for name in finding.steps
        }
        if not asked["immortalize"]:
            self.barred.setdefault(
                "fill",
                "it goes with immortalize: reads of what it makes would copy as much",
            )

    def took(self, name: str) -> bool:
        return any(step.name == name and step.done for step in self.steps)

    def wants(self, name: str) -> bool:
        return self.asked[name] and name not in self.barred

    def leave(self, name: str) -> None:
        reason = self.barred.get(name, "") if self.asked[name] else "not asked for"
        self.steps.append(Step(name, False, reason=reason))

    def enter(self, name: str, seconds: float, figures: Mapping[str, int]) -> None:
        if self.wants(name):
            self.steps.append(Step(name, True, seconds, figures))
        else:
            self.leave(name)

    def take(self, name: str, action: Callable[[], Mapping[str, int]]) -> None:
        if not self.wants(name):
            self.leave(name)
            return
        start = time.perf_counter()
        try:
            figures = action()
        except (Unsupported, MemoryError) as error:
            reason = str(error) or "out of memory"
            self.steps.append(
                Step(name, False, time.perf_counter() - start, reason=reason)
            )
        else:
            self.steps.append(Step(name, True, time.perf_counter() - start, figures))


@contextmanager
def _collector_off() -> Iterator[None]:
    """Between the collection and the freeze nothing may be collected or moved."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check(strict: bool) -> tuple[Finding, ...]:
    findings = conditions()
    for finding in findings:
        if finding.action == "refuse" or strict:
            raise Unsupported(f"prepare_fork: {finding}")
    return findings


def _fills(asked: bool | Iterable[str]) -> tuple[str, ...]:
    if isinstance(asked, bool):
        return FILLS if asked else ()
    if not isinstance(asked, (str, Iterable)):
        raise TypeError(
            f"fill is True, False or names ({', '.join(FILLS)}), not"
            f" {type(asked).__name__}"
        )
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    for name in names:
        if name not in FILLS:
            raise UsageError(f"fill: there is no {name!r}. {suggest(str(name), FILLS)}")
    return names


def _check_arguments(warm: object, roots: object) -> None:
    """What the walk would refuse as well, but only after the first steps."""
    if warm is not None and not callable(warm):
        raise TypeError(
            f"warm is a function to call before the fork, not {type(warm).__name__};"
            " for one table alone: roots=[table]"
        )
    check_roots("prepare_fork", roots)


def prepare_fork(
    warm: Callable[[], object] | None = None,
    roots: Sequence[object] | None = None,
    *,
    keep_mortal: Iterable[type] = (),
    collect: bool = True,
    trim: bool = True,
    prehash: bool = True,
    fill: bool | Iterable[str] = False,
    immortalize: bool = True,
    freeze: bool = True,
    seal: bool = True,
    pause_gc: bool = True,
    strict: bool = False,
) -> PrepareReport:
    """Make this process ready to fork children that keep its memory shared.

    Call it when all code and data are loaded, right before the first fork. In this
    order:

    1. ``warm()`` is called, which should do once what every child will do: code that
       has run does not specialise itself again, lazy imports and caches are filled.
    2. **collect**: a full collection, so that no garbage is kept for good.
    3. **trim**: free memory goes back to the kernel instead of to the children.
    4. **prehash**: hash caches are filled (see ``immortalize``).
    5. **fill**: caches that cost memory are filled: True for all, or some of "dicts"
       (the ``__dict__`` of instances, for programs that copy, pickle or look through
       many), "utf8" (of strings that are not ASCII) and "weakrefs". Not by default.
    6. **immortalize**: reading an object no longer writes its reference count. From
       CPython 3.12 on; ``roots`` and ``keep_mortal`` as in ``immortalize()``.
    7. **freeze**: the collector no longer writes to what lives now.
    8. **seal**: what a child allocates goes to new memory, not into holes of
       shared pages.

    Each can be switched off. With ``pause_gc`` the collector is off in this process
    from now on, and on again in each child it forks if it was on here (not under uWSGI,
    whose workers run no hook that would do so: there it stays as it was). Before each
    later fork of this process a hook collects, freezes and seals what was made since;
    the hooks are installed once however often one prepares, and children do not inherit
    the duty.

    Nothing is refused but a build whose objects are laid out differently
    (``Unsupported``); what else stands in the way is in ``report.conditions``, as a
    warning or with the steps that were left out. ``strict`` refuses these too, before
    anything is done. What ``warm`` raises is passed on, and nothing is prepared. A step
    for which there is no memory is left out and says so; where it is the walk that
    makes objects immortal, ``MemoryError`` says that a part of them is.

    What it costs: immortal objects are never freed or finalised; the sealed holes are
    not filled again until a block beside them is freed.
    """
    start = time.perf_counter()
    kept = given_types(keep_mortal)
    fills = _fills(fill)
    _check_arguments(warm, roots)
    findings = _check(strict)
    asked = {
        "fill": bool(fills),
        "collect": collect,
        "trim": trim,
        "prehash": prehash,
        "immortalize": immortalize,
        "freeze": freeze,
        "seal": seal,
        "warm": warm is not None,
    }
    plan = _Plan(asked, findings)
    was_on = gc.isenabled()
    pause_gc = pause_gc and "uwsgi" not in sys.modules  # it forks in C, without hooks

    warming = time.perf_counter()
    if warm is not None:
        warm()
    plan.enter("warm", time.perf_counter() - warming, {})
    with _collector_off():
        plan.take("collect", _collect)
        plan.take("trim", _trim)
        # One walk for both, and for the files that nothing will close at the end.
        report, files = walk(
            roots,
            kept,
            prehash=plan.wants("prehash"),
            immortal=plan.wants("immortalize"),
            fill=fills if plan.wants("fill") else (),
        )
        if roots is not None:
            _, files = walk(None, (), prehash=False, immortal=False)
        flush_at_exit(files)
        del files
        shared = plan.wants("immortalize")  # then its seconds are that step's
        plan.enter(
            "prehash", 0.0 if shared else report.seconds, {"hashed": report.hashed}
        )
        filled = {**report.filled, "bytes": report.filled_bytes}
        plan.enter("fill", 0.0, filled)
        left = sum(sum(types.values()) for types in report.left.values())
        plan.enter("immortalize", report.seconds, {"made": report.made, "left": left})
        _install_hooks()
        plan.take("freeze", _freeze)
        plan.take("seal", _seal)
    _forks.pid = os.getpid()
    _forks.plain = native("prepare_fork()").allocator() == "pymalloc"
    _forks.enable = pause_gc and (_forks.enable or was_on)
    _forks.collect = collect and freeze
    _forks.freeze = freeze
    _forks.trim = plan.took("trim")
    _forks.seal = plan.took("seal")
    if pause_gc:
        gc.disable()
    return PrepareReport(
        tuple(plan.steps),
        findings,
        report if shared else None,
        pause_gc,
        time.perf_counter() - start,
        sys.version.split()[0],
    )
