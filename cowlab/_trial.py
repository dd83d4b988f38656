"""trial(): each remedy on one's own program, and what it saves and costs there."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cowlab._environment import environment
from cowlab._errors import CowlabError, UsageError
from cowlab._interpreter import ArmDied, ArmTimeout, Interpreter
from cowlab._result import Failure
from cowlab._suggest import suggest
from cowlab._trial_report import (
    ARMS,
    Blamed,
    Difference,
    TrialReport,
    TrialSample,
)
from cowlab._web import Request

__all__ = ["SERVERS", "trial"]

SERVERS = ("gunicorn", "uwsgi", "celery", "multiprocessing")
"""Those for which there are lines to paste."""

Progress = Callable[[int, int, str], None]


def trial(
    preload: str | Sequence[str] = (),
    *,
    exercise: str | None = None,
    wsgi: str | None = None,
    asgi: str | None = None,
    requests: Sequence[str | Request] = (),
    workers: int = 4,
    work: int = 400,
    repeat: int = 3,
    arms: Sequence[str] = (),
    warm: int = 0,
    compare: bool = True,
    blame: bool = False,
    server: str | None = None,
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> TrialReport:
    """Try each remedy on a program of one's own, with real forks and equal work.

    In a fresh interpreter for each sample, the modules in ``preload`` are imported, one
    arm's remedy is applied, ``workers`` are forked, and do ``work`` units between them,
    all at once: calls of ``exercise`` ("module:function", which takes no argument or
    the unit's number), or ``requests`` to a ``wsgi`` or ``asgi`` application
    ("module:app"), each as often as the others, in the process and without a server.
    Each worker has a random share of the units, the same in every sample. The memory of
    all is read when the last unit is done and every worker is still there. Arms take
    turns, ``repeat`` times.

    Results are compared unit by unit between the arms: statuses and bodies, or what the
    function returned. ``compare=False`` leaves that out, for an application that says
    the time. With ``warm`` the arm "prepare" has the master do that many units before
    it forks: not for work that opens connections. ``blame`` runs plain and the
    best arm once more, and records which lines copied pages. ``server`` chooses the
    lines to paste.

    Raises ``UsageError`` for what does not exist, ``CowlabError`` where the plain arm
    fails: then there is nothing to compare with. A failure of another arm is in the
    report.
    """
    order = _order(preload, exercise, wsgi, asgi, requests)
    _check("workers", workers, 1, 1024)
    _check("work", work, workers, 10_000_000)
    _check("repeat", repeat, 1, 1000)
    _check("warm", warm, 0, 1_000_000)
    if not isinstance(timeout, (int, float)):
        raise UsageError(f"timeout is {timeout!r}, and must be a number of seconds")
    if not 0 < timeout <= 1e7:
        raise UsageError(f"timeout is {timeout:g}, and must be above 0 s and finite")
    if server is not None and server not in SERVERS:
        raise UsageError(
            f"there is no server {server!r}. {suggest(str(server), SERVERS)}"
        )
    order |= {"workers": workers, "work": work, "warm": warm, "timeout": timeout}
    run = _Run(order, _arms(arms), repeat, compare, progress)
    return run.report(server, blame)


def _check(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}, and must be a whole number")
    if not low <= value <= high:
        why = ": at least one unit for each worker" if name == "work" else ""
        raise UsageError(f"{name} is {value}, and must be {low} to {high}{why}")


def _arms(asked: Sequence[str]) -> list[str]:
    if isinstance(asked, str):
        asked = [asked]
    for arm in asked:
        if arm not in ARMS:
            raise UsageError(f"there is no arm {arm!r}. {suggest(str(arm), ARMS)}")
    chosen = {"plain", *(asked or ARMS)}  # all others are compared with plain
    return [arm for arm in ARMS if arm in chosen]


def _order(
    preload: str | Sequence[str],
    exercise: str | None,
    wsgi: str | None,
    asgi: str | None,
    requests: Sequence[str | Request],
) -> dict[str, Any]:
    given = {"exercise": exercise, "wsgi": wsgi, "asgi": asgi}
    kinds = {kind: target for kind, target in given.items() if target is not None}
    if len(kinds) != 1:
        raise UsageError(
            "say what the work is: one of exercise (module:function), wsgi or asgi"
            f" (module:app); {len(kinds)} were given"
        )
    ((kind, target),) = kinds.items()
    if not isinstance(target, str):
        raise UsageError(
            f"{kind} is a name, 'module:name', not of type {type(target).__name__}:"
            " fresh interpreters import it"
        )
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        example = "module:function" if kind == "exercise" else "module:app"
        raise UsageError(f"{target!r} is not of the form {example}")
    if isinstance(requests, str):
        requests = [requests]
    asked = [Request(one) if isinstance(one, str) else one for one in requests]
    for one in asked:
        if not isinstance(one, Request):
            raise UsageError(f"a request is a path, such as '/', and not {one!r}")
    if kind == "exercise" and asked:
        raise UsageError("requests are for wsgi and asgi; an exercise is a function")
    if kind != "exercise" and not asked:
        raise UsageError("say what to ask the application for: a request, such as /")
    for one in asked:
        if not one.target.startswith("/"):
            raise UsageError(f"the request {one.target!r} is no path: begin with /")
    modules = [preload] if isinstance(preload, str) else list(preload)
    for name in modules:
        if not (isinstance(name, str) and all(name.split("."))):
            raise UsageError(f"{name!r} is no module's name, such as shop.tables")
    return {
        "preload": modules,
        "kind": kind,
        "target": target,
        "requests": [
            {
                "target": one.target,
                "method": one.method,
                "headers": dict(one.headers),
                "body": one.body.decode("latin-1"),
            }
            for one in asked
        ],
        "path": [""],  # this directory, as `python -m` has it
    }


# ---- The run ----

Units = dict[int, str]


class _Run:
    """Samples as they come, and the results of their units."""

    def __init__(
        self,
        order: Mapping[str, Any],
        arms: Sequence[str],
        repeat: int,
        compare: bool,
        progress: Progress | None,
    ) -> None:
        self.order = order
        self.arms = arms
        self.repeat = repeat
        self.compare = compare
        self.progress = progress
        self.place = Interpreter.current()
        self.samples: list[TrialSample] = []
        self.failures: list[Failure] = []
        self.units: dict[str, list[Units]] = {arm: [] for arm in arms}
        self.modules: list[str] = []

    def report(self, server: str | None, blame: bool) -> TrialReport:
        interrupted = False
        try:
            self._take_turns()
        except KeyboardInterrupt:
            interrupted = True
        result = TrialReport(
            command={**self._command(), "repeat": self.repeat, "arms": self.arms},
            environment=environment(),  # the arms run under this interpreter
            samples=tuple(self.samples),
            failures=tuple(self.failures),
            differences=tuple(self._differences()) if self.compare else (),
            compared=self.compare,
            server=server or self._server(),
            interrupted=interrupted,
        )
        if not blame or interrupted:
            return result
        from dataclasses import replace

        chosen = ["plain", result.recommendation or self.arms[-1]]
        blamed: list[Blamed] = []
        try:
            for arm in dict.fromkeys(chosen):
                blamed.append(self._blame(arm))
        except KeyboardInterrupt:
            interrupted = True
        return replace(result, blame=tuple(blamed), interrupted=interrupted)

    def _command(self) -> dict[str, Any]:
        return {name: value for name, value in self.order.items() if name != "path"}

    def _take_turns(self) -> None:
        for turn in range(self.repeat):
            # Plain is the first of all: where it fails there is no trial.
            for at, arm in enumerate(self.arms if turn % 2 == 0 else self.arms[::-1]):
                if any(failure.arm == arm for failure in self.failures):
                    continue
                if self.progress:
                    done = turn * len(self.arms) + at
                    self.progress(done, self.repeat * len(self.arms), arm)
                self._sample(arm, turn)

    def _ask(self, arm: str, blame: bool = False) -> dict[str, Any]:
        env = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
        if "PYTHONPATH" in os.environ:
            env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        limit = 3 * self.order["timeout"] + 60  # it has limits of its own
        descriptor, name = tempfile.mkstemp(prefix="cowlab-", suffix=".json")
        try:
            with open(descriptor, "w") as file:
                json.dump({**self.order, "arm": arm, "blame": blame}, file)
            todo = {"do": "trial", "order": name}
            return self.place.ask(todo, timeout=limit, env=env)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # the arm does it first

    def _sample(self, arm: str, turn: int) -> None:
        try:
            answer = self._ask(arm)
        except ArmTimeout as error:
            answer = {"failure": "timeout", "why": str(error)}
        except ArmDied as error:
            answer = {"failure": "crashed", "why": f"the master: {error}"}
        if "raised" in answer:
            answer = {"failure": "raised", "why": answer["raised"] + answer["said"]}
        if "failure" in answer:
            self._fail(arm, turn, answer)
            return
        figures = dict(answer["sample"])
        figures["workers"] = tuple(figures["workers"])
        self.samples.append(
            TrialSample(arm, turn, **figures, warnings=tuple(answer["warnings"]))
        )
        self.units[arm].append(dict(answer["units"]))
        self.modules = answer["modules"]

    def _fail(self, arm: str, turn: int, answer: Mapping[str, Any]) -> None:
        kind, why = answer["failure"], answer["why"] + answer.get("said", "")
        if kind == "usage":
            raise UsageError(answer["why"])
        if arm == "plain":
            raise CowlabError(f"the plain arm failed, so there is no trial: {why}")
        self.failures.append(Failure(arm, kind, why, turn))

    def _server(self) -> str:
        if self.modules:
            return self.modules[0]
        return "multiprocessing" if self.order["kind"] == "exercise" else "gunicorn"

    def _blame(self, arm: str) -> Blamed:
        if self.progress:
            self.progress(0, 1, f"recording {arm}")
        try:
            answer = self._ask(arm, blame=True)
        except CowlabError as error:
            answer = {"why": str(error)}
        if "blame" not in answer:
            why = answer.get("why") or answer.get("raised", "no answer")
            return Blamed(arm, 0, 0, (), (), missing=str(why))
        found = answer["blame"]
        return Blamed(
            arm,
            found["copied"],
            found["page_size"],
            tuple(found["lines"]),
            tuple(found["limits"]),
        )

    # ---- Equal work ----

    def _differences(self) -> list[Difference]:
        """Where the units of an arm gave something else than those of plain."""
        plain = self.units["plain"]
        if not plain:
            return []
        first = plain[0]
        odd = [unit for unit, value in first.items() if value.startswith("?")]
        if odd:
            kind = first[odd[0]][1:]
            return [Difference("plain", "incomparable", len(odd), kind)]
        itself = self._differ("plain", "not deterministic", plain[1:])
        if itself:
            return [itself]
        kind = "changed" if len(plain) > 1 else "one sample"
        others = (self._differ(arm, kind, self.units[arm]) for arm in self.arms)
        return [one for one in others if one]

    def _differ(self, arm: str, kind: str, runs: Sequence[Units]) -> Difference | None:
        first = self.units["plain"][0]
        units = sorted(
            {
                unit
                for run in runs
                for unit in first.keys() | run.keys()
                if first.get(unit) != run.get(unit)
            }
        )
        if not units:
            return None
        return Difference(arm, kind, len(units), self._name(units[0]))

    def _name(self, unit: int) -> str:
        requests = self.order["requests"]
        if not requests:
            return f"unit {unit}"
        one = requests[unit % len(requests)]
        return f"unit {unit}, {one['method']} {one['target']}"
