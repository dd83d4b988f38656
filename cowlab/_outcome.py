"""How a measured child ended: told by the child in bytes, understood by its parent.

``encode`` runs in the child, after its last reading; the rest in the parent.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

from . import _errors

__all__ = ["decode", "encode", "raise_failure"]


def encode(ok: bool, outcome: Any) -> bytes:
    if ok:
        try:
            return pickle.dumps(("value", outcome), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            return _plain("unpicklable", type(outcome).__name__, _text_of(error))
    if isinstance(outcome, SystemExit):
        code = outcome.code
        status = code if isinstance(code, int) else 0 if code is None else 1
        return _plain("exit", status, None if isinstance(code, int) else code)
    import traceback

    try:
        text = "".join(traceback.format_exception(outcome))
    except BaseException:
        text = ""
    try:
        exception = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
    except BaseException:
        exception = None
    return _plain(
        "error", exception, type(outcome).__qualname__, _text_of(outcome), text
    )


def _plain(*parts: Any) -> bytes:
    """Parts that always pickle; what is not plain becomes its text."""
    plain = (int, bytes, str, type(None))
    return pickle.dumps(
        tuple(part if type(part) in plain else _text_of(part) for part in parts)
    )


def _text_of(thing: Any) -> str:
    try:
        return str(thing)
    except BaseException:
        return f"<{type(thing).__name__} that cannot be shown>"


def decode(payload: bytes, child: int) -> Any:
    try:
        kind, *parts = pickle.loads(payload)
    except Exception as error:
        raise _of_child(
            _errors.ResultError(
                "the task's result cannot be unpickled here: "
                f"{type(error).__name__}: {error}; return plain data"
            ),
            child,
        ) from error
    if kind == "value":
        return parts[0]
    if kind == "unpicklable":
        raise _of_child(
            _errors.ResultError(
                f"the task returned a {parts[0]}, which cannot be pickled: "
                f"{parts[1]}; return plain data, or None"
            ),
            child,
        )
    if kind == "exit":
        said = f" ({parts[1]})" if parts[1] is not None else ""
        raise _of_child(
            _errors.ChildExited(f"the task called sys.exit({parts[0]}){said}"),
            child,
            code=parts[0],
        )
    _raise_task_error(child, *parts)


def _raise_task_error(
    child: int, exception: bytes | None, name: str, text: str, traceback: str
) -> NoReturn:
    cause: BaseException | None = None
    if exception is not None:
        try:
            loaded = pickle.loads(exception)
            cause = loaded if isinstance(loaded, BaseException) else None
        except Exception:
            cause = None
    error = _of_child(
        _errors.TaskError(
            f"the task raised {name}: {text}" if text else f"the task raised {name}"
        ),
        child,
        traceback=traceback,
    )
    error.add_note("In the child:\n" + traceback.rstrip())
    raise error from cause


def _of_child(error: Any, child: int, **attributes: Any) -> Any:
    error.child = child
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def raise_failure(raw: Mapping[str, Any], timeout: float | None) -> NoReturn:
    child, moment = raw["child"], raw["moment"]
    who = f"child {child} (process {raw['pid']})"
    if raw["failure"] == "timeout":
        raise _of_child(
            _errors.ChildTimeout(
                f"{who} was killed: {timeout:g} s passed before {moment}"
            ),
            child,
            seconds=timeout,
        )
    if raw["line_was_lost"]:
        raise _of_child(
            _errors.ChildExited(
                f"{who} has no result: the task closed file descriptors that it "
                "had not opened; let it leave those of others alone"
            ),
            child,
            code=None,
        )
    if raw["is_unknown"]:
        raise _of_child(
            _errors.ChildExited(
                f"{who} ended before {moment}; how is not known, since another "
                "part of the program collected its status"
            ),
            child,
            code=None,
        )
    if raw["signal"]:
        raise _of_child(
            _errors.ChildKilled(
                f"{who} was killed by {_signal_name(raw['signal'])} before {moment}"
            ),
            child,
            signal=raw["signal"],
        )
    raise _of_child(
        _errors.ChildExited(
            f"{who} exited with status {raw['status']} before {moment}"
        ),
        child,
        code=raw["status"],
    )


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
