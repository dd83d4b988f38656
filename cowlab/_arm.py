"""Inside an arm's interpreter: run one arm once, and send what came of it.

Started by the runner with a JSON order; the answer is one JSON line on a pipe of its
own, so that whatever the arm prints cannot be taken for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time
from importlib import import_module
from typing import Any

__all__ = ["main"]

LEAVE = 3
"""Seconds that an interpreter has for its exit, once it has answered."""


def main(order: str) -> None:
    """Obey ``order``, and leave the answer in the pipe that it names."""
    todo: dict[str, Any] = json.loads(order)
    pipe: int = todo["pipe"]
    os.set_inheritable(pipe, False)
    me = os.getpid()
    _end_with_the_runner(pipe, True)
    # For an arm that closes the pipe, should the runner be killed too.
    signal.alarm(todo["seconds"])
    answer = {"probe": _probe, "run": _run, "trial": _trial}[todo["do"]](todo)
    if os.getpid() != me:
        os._exit(1)  # a child that the arm forked and let run on
    _end_with_the_runner(pipe, False)
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]
    os.close(pipe)
    # The rest is to leave, and threads that the program started may not let it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LEAVE)


def _end_with_the_runner(pipe: int, wanted: bool) -> None:
    """Whether the kernel is to kill this process group when the runner is killed.

    The runner alone reads the pipe, and a pipe can send a signal when its last reader
    goes. It sends one when it is read from, too: not wanted once an answer is written.
    """
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL) & ~os.O_ASYNC
    if wanted:
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        flags |= os.O_ASYNC
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags)
    if wanted:
        poll = select.poll()
        poll.register(pipe, 0)
        if poll.poll(0):
            os._exit(1)  # it was killed before this could be asked for


def _probe(todo: dict[str, Any]) -> dict[str, Any]:
    """Whether this interpreter can do it at all, and what it is."""
    from cowlab._environment import environment

    import_module("cowlab._native")
    return {"environment": environment()}


def _trial(todo: dict[str, Any]) -> dict[str, Any]:
    """The order is in a file: it has the requests' bodies in it."""
    from cowlab._trial_arm import run

    with open(todo["order"], encoding="utf-8") as file:
        # Here, since nobody would be left to do it if the runner is killed.
        os.unlink(file.name)
        order = json.load(file)
    return run(order)


def _run(todo: dict[str, Any]) -> dict[str, Any]:
    from cowlab._errors import Unsupported
    from cowlab._experiment import load

    experiment = load(todo["experiment"])
    begin = time.perf_counter()
    try:
        metrics: dict[str, Any] = dict(
            experiment.run_arm(todo["arm"], **todo["parameters"])
        )
    except Unsupported as error:
        return {"unsupported": str(error)}
    except Exception as error:
        import traceback

        traceback.print_exc()
        text = traceback.format_exception_only(error)[-1].strip()
        return {"raised": text}
    seconds = time.perf_counter() - begin
    warnings = [str(warning) for warning in metrics.pop("warnings", None) or ()]
    for name, value in metrics.items():
        if value is not None and not isinstance(value, (int, float)):
            kind = type(value).__name__
            return {"raised": f"the metric {name} is no number but of type {kind}"}
    sys.stdout.flush()
    return {"metrics": metrics, "seconds": seconds, "warnings": warnings}
