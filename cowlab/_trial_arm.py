"""One arm of a trial, once, in an interpreter of its own: preload, fork, work, read."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import pickle
import sys
import time
import traceback
from array import array
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from cowlab._errors import (
    ChildError,
    ChildTimeout,
    CowlabError,
    TaskError,
    Unsupported,
    UsageError,
)
from cowlab._web import Asgi, Request, wsgi

__all__ = ["run"]

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep

LINES = 15
"""Rows of a blame table that are kept."""


class WorkError(CowlabError):
    """A unit of the work failed; the message says which, and how."""


class PreloadError(CowlabError):
    """A module to preload cannot be imported; the message says why."""


# ---- The work ----


class Requests:
    """What is asked, kept as text.

    As objects they would be written when they are read: pages that each worker copies,
    where one behind a server gets its requests from a socket.
    """

    def __init__(self, asked: list[dict[str, Any]]) -> None:
        self._ends = array("Q")
        parts = bytearray()
        for one in asked:
            parts += json.dumps(one).encode()
            self._ends.append(len(parts))
        self._text = bytes(parts)

    def __len__(self) -> int:
        return len(self._ends)

    def of(self, unit: int) -> Request:
        """The request of a unit of work: all of them in turns."""
        at = unit % len(self)
        one = json.loads(self._text[self._ends[at - 1] if at else 0 : self._ends[at]])
        return Request(
            one["target"], one["method"], one["headers"], one["body"].encode("latin-1")
        )


def shuffled(count: int) -> array[int]:
    """Each number below ``count`` once, in the same order in every interpreter.

    Without ``random``, which brings an at-fork handler that writes in each child.

    >>> sorted(shuffled(5))
    [0, 1, 2, 3, 4]
    """
    numbers = array("I", range(count))
    state = 0
    for left in range(count, 1, -1):
        # Knuth's MMIX generator; its upper bits are the random ones.
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        drawn = (state >> 32) % left
        numbers[left - 1], numbers[drawn] = numbers[drawn], numbers[left - 1]
    return numbers


class Work:
    """``count`` units of work: calls of a function, or requests to an application."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.count: int = order["work"]
        self.kind: str = order["kind"]
        self.target: str = order["target"]
        self.requests = Requests(order.pop("requests"))
        self._dealt = shuffled(self.count)
        self.function = _resolve(self.target)
        self._numbered = self.kind == "exercise" and _takes_number(
            self.function, self.target
        )
        self._served: Asgi | None = None
        if self.kind == "asgi":
            _import("asyncio")  # a server's master has it: not each worker anew

    def begin(self) -> None:
        """In each process that works, before its first unit."""
        if self.kind == "asgi":
            self._served = Asgi(self.function)
            try:
                self._served.start()
            except Exception as error:
                raise WorkError(f"{self.target} did not start: {_text(error)}") from (
                    error
                )

    def end(self) -> None:
        """Let the application shut down; what it says to that does not matter."""
        if self._served is not None:
            try:
                self._served.stop()
            except Exception:
                traceback.print_exc()

    def units_of(self, index: int, workers: int) -> array[int]:
        """The units of one worker: a share like the others', and drawn at random.

        Behind a server, too, any request can come to any worker. In turns each would
        only ever see some of them, and copy what these read.
        """
        return self._dealt[index::workers]

    def name(self, unit: int) -> str:
        """What the unit is, for people."""
        if self.kind == "exercise":
            return self.target
        request = self.requests.of(unit)
        return f"{request.method} {request.target}"

    def do(self, unit: int) -> Any:
        """One unit, and what came of it. WorkError where it failed."""
        try:
            if self.kind == "exercise":
                return self.function(unit) if self._numbered else self.function()
            return self._ask(self.requests.of(unit))
        except WorkError as error:
            raise WorkError(f"unit {unit} ({self.name(unit)}) {error}") from None
        except Exception as error:
            raise WorkError(
                f"unit {unit} ({self.name(unit)}) raised {_text(error)}"
            ) from error

    def _ask(self, request: Request) -> bytes:
        if self._served is not None:
            response = self._served.ask(request)
        else:
            response = wsgi(self.function, request)
        if response.status >= 400:
            remedy = (
                "; if the application serves certain hosts only, name one:"
                " --header 'Host: ...'"
                if response.status == 400
                else ""
            )
            raise WorkError(f"was answered {response.status}{remedy}")
        body = hashlib.sha256(response.body).digest()
        return b"%d " % response.status + body[:8]


def _text(error: BaseException) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _resolve(target: str) -> Callable[..., Any]:
    """The object that "module:name" or "module:name.attribute" means."""
    module_name, _, path = target.partition(":")
    found: Any = _import(module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(
                f"{target}: {module_name} has no {path}"
                if found is sys.modules.get(module_name)
                else f"{target}: there is no {name} in it"
            ) from None
    if not callable(found):
        raise UsageError(f"{target} is of type {type(found).__name__}: nothing to call")
    function: Callable[..., Any] = found
    return function


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageError(
                f"there is no module {missing!r} in this directory or where Python"
                " looks (PYTHONPATH, the environment's packages)"
            ) from None
        traceback.print_exc()
        raise PreloadError(f"import {name} raised {_text(error)}") from None
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        raise PreloadError(f"import {name} raised {_text(error)}") from None


def _takes_number(function: Callable[..., Any], name: str) -> bool:
    """Whether the function takes the unit's number; else it takes nothing."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{name} does no work when it is called: give a function that runs the"
            " coroutine, or the generator, to its end"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    for arguments in ((), (0,)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise UsageError(
        f"{name}{signature} cannot be called: it should take no argument, or one, the"
        " number of the unit of work"
    )


# ---- What came of it, to be compared ----


class Outcome:
    """What a worker's units gave. Digested only when it is pickled.

    That is after the last reading: to look through a large result before would write
    to pages that the work itself never touched.
    """

    def __init__(self, work: Work, units: array[int]) -> None:
        self.work = work
        self.units = units
        self.values: list[Any] = []
        self.cpu = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        pairs = zip(self.units, self.values, strict=True)
        units = [(unit, digest(value)) for unit, value in pairs]
        asked = self.work.kind != "exercise"
        redirects = sum(asked and value.startswith(b"3") for value in self.values)
        self.work.end()
        return dict, ({"units": units, "cpu": self.cpu, "redirects": redirects},)


def digest(value: object) -> str:
    """The same for equal values in any process; it begins with "?" where none is."""
    try:
        return hashlib.sha256(_canonical(value)).hexdigest()[:16]
    except Exception:
        return f"?{type(value).__qualname__}"


def _canonical(value: object) -> bytes:
    kind = type(value)
    name = kind.__name__.encode()
    if value is None or kind in (bool, int, float, complex, str, bytes, bytearray):
        return name + b" " + repr(value).encode("utf-8", "surrogatepass")
    if isinstance(value, (list, tuple)):
        parts = [_canonical(item) for item in value]
    elif isinstance(value, (set, frozenset)):
        parts = sorted(_canonical(item) for item in value)
    elif isinstance(value, dict):
        parts = [_canonical(k) + b"=" + _canonical(v) for k, v in value.items()]
    else:
        return name + b" " + pickle.dumps(value, 4)
    # With its length before each part, so that no two values look alike.
    return name + b"".join(b" %d:%s" % (len(part), part) for part in parts)


def work_in_child(work: Work, workers: int, turns: int) -> Outcome:
    """A worker's whole task: its share of the units, by the number it drew."""
    index = int.from_bytes(os.read(turns, 2), "little")
    outcome = Outcome(work, work.units_of(index, workers))
    start = time.process_time()
    work.begin()
    for unit in outcome.units:
        outcome.values.append(work.do(unit))
    outcome.cpu = time.process_time() - start
    return outcome


# ---- The arms ----


def _prepare(arm: str, warm: Callable[[], None] | None) -> dict[str, Any]:
    """What the arm's name says; counts of what was done, and what was not."""
    from cowlab._immortal import freeze, immortalize

    start = time.perf_counter()
    made = frozen = 0
    notes: list[str] = []
    if arm in ("immortalize", "both"):
        made = immortalize().made
    if arm in ("freeze", "both"):
        gc.collect()
        frozen = freeze().frozen
    if arm == "prepare":
        from cowlab._prepare import prepare_fork

        report = prepare_fork(warm)
        notes += report.warnings
        told = {name for finding in report.conditions for name in finding.steps}
        for step in report.steps:
            if not (step.done or step.name in told or step.reason == "not asked for"):
                notes.append(f"{step.name} left out: {step.reason}")
        made = report.step("immortalize").figures.get("made", 0)
        frozen = report.step("freeze").figures.get("frozen", 0)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "immortal": made, "frozen": frozen, "notes": notes}


def _warm(work: Work, units: int) -> Callable[[], None] | None:
    """What every child will do, done in the master first; None where not asked for."""
    if units == 0:
        return None

    def warm() -> None:
        work.begin()
        for unit in range(units):
            work.do(unit % work.count)
        work.end()

    return warm


def _turns(workers: int) -> int:
    """A pipe that holds a number for each worker; its end to read from."""
    end, start = os.pipe()
    os.write(start, b"".join(i.to_bytes(2, "little") for i in range(workers)))
    os.close(start)
    return end


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Obey an order of ``cowlab._trial``; what came of it, as plain data."""
    sys.path[:0] = order["path"]
    try:
        return _run(order)
    except Unsupported as error:
        return {"failure": "unsupported", "why": str(error)}
    except UsageError as error:
        return {"failure": "usage", "why": str(error)}
    except TaskError as error:
        print(error.traceback, file=sys.stderr)
        cause = error.__cause__
        why = str(cause if isinstance(cause, WorkError) else error)
        return {"failure": "raised", "why": why}
    except ChildError as error:
        kind = "timeout" if isinstance(error, ChildTimeout) else "crashed"
        return {"failure": kind, "why": f"a worker died: {error}"}
    except CowlabError as error:
        return {"failure": "raised", "why": str(error)}
    except OSError as error:
        # No more descriptors or processes, say: the work's own is a TaskError.
        return {"failure": "raised", "why": f"the trial itself: {_text(error)}"}


def _run(order: dict[str, Any]) -> dict[str, Any]:
    from cowlab._forking import measure

    start = time.perf_counter()
    for module in order["preload"]:
        _import(module)
    work = Work(order)
    loaded = time.perf_counter() - start
    prepared = _prepare(order["arm"], _warm(work, order["warm"]))
    workers = order["workers"]
    turns = _turns(workers)
    try:
        report = measure(
            work_in_child,
            work,
            workers,
            turns,
            children=workers,
            timeout=order["timeout"],
            record="lines" if order["blame"] else None,
        )
    finally:
        os.close(turns)
    if report.blame is not None:
        return {"blame": _lines(report)}
    return {
        "sample": _sample(report, work.count, loaded, prepared),
        "units": [unit for child in report.children for unit in child.value["units"]],
        "warnings": [*prepared["notes"], *_redirects(work, report), *report.warnings],
        "modules": _servers(),
    }


def _redirects(work: Work, report: Any) -> list[str]:
    """What is easily taken for the work: being sent to another path."""
    count = sum(child.value["redirects"] for child in report.children)
    if not count:
        return []
    return [
        f"{count} of {work.count} requests were answered by a redirect, which is not"
        " followed: ask for where it leads"
    ]


def _servers() -> list[str]:
    """The frameworks that the preload has brought with it."""
    return [name for name in ("celery", "uwsgi", "gunicorn") if name in sys.modules]


def _lines(report: Any) -> dict[str, Any]:
    blame = report.blame
    return {
        "copied": blame.copied,
        "page_size": blame.page_size,
        "lines": [
            {
                # The trial's own are told by their short names.
                "line": row.name.removeprefix(_HERE),
                "pages": row.pages,
                "causes": dict(row.causes),
            }
            for row in blame.by_line()[:LINES]
        ],
        "limits": list(blame.limits),
    }


def _sample(
    report: Any, units: int, loaded: float, prepared: Mapping[str, Any]
) -> dict[str, Any]:
    """The figures of the group when all workers have done their work and live."""
    overhead = report.fork_overhead
    page = report.page_size
    workers = [
        {
            "pss": child.after.pss,
            "uss": child.after.uss,
            "rss": child.after.rss,
            "copied": (child.fork_overhead.pages.copied + child.task.pages.copied)
            * page,
            "fresh": (child.fork_overhead.pages.fresh + child.task.pages.fresh) * page,
            "minor_faults": child.fork_overhead.minor_faults + child.task.minor_faults,
            "seconds": child.task.seconds,
            "units": len(child.value["units"]),
        }
        for child in report.children
    ]
    master = report.parent_after
    return {
        "pss": master.pss + report.after.pss,
        "uss": master.uss + report.after.uss,
        "rss": master.rss + report.after.rss,
        "pss_at_fork": report.parent_before.pss + report.before.pss,
        "workers_uss": report.after.uss,
        "inherited": overhead.pages.inherited * page,
        "copied": sum(worker["copied"] for worker in workers),
        "fresh": sum(worker["fresh"] for worker in workers),
        "minor_faults": overhead.minor_faults + report.minor_faults,
        "major_faults": overhead.major_faults + report.major_faults,
        "seconds": sum(worker["seconds"] for worker in workers) / units,
        "cpu": sum(child.value["cpu"] for child in report.children) / units,
        "elapsed": report.seconds,
        "load_seconds": loaded,
        "prepare_seconds": prepared["seconds"],
        "immortal": prepared["immortal"],
        "frozen": prepared["frozen"],
        "workers": workers,
    }
