"""What a user names on the command line, as something that can be called."""

from __future__ import annotations

import importlib
import io
import os
import runpy
import sys
from collections.abc import Callable, Iterable
from typing import Any

from cowlab._errors import CowlabError, UsageError

__all__ = ["load_target", "preload"]


def preload(names: Iterable[str]) -> None:
    """Import modules in this process, so that children inherit them."""
    for name in names:
        _import(name)


def _import(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageError(
                f"there is no module {name!r} here: run this in its directory, or set "
                "PYTHONPATH"
            ) from None
        raise CowlabError(f"module {name} cannot be imported: {error}") from error
    except Exception as error:
        raise CowlabError(
            f"module {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def load_target(target: str, request: str | None, repeat: int) -> Callable[[], Any]:
    """The task that ``target`` names: a script, or module:function; with ``request``,
    module:application called as a WSGI server would, for that path.

    Modules are imported here, in the parent; a script is run in the child.
    """
    if target.endswith(".py") and ":" not in target:
        return _script(target, request, repeat)
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise UsageError(f"target must be script.py or module:function, not {target!r}")
    thing = _import(module)
    for part in name.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError:
            raise UsageError(f"module {module} has no {name!r}") from None
    if not callable(thing):
        raise UsageError(
            f"{target} is a {type(thing).__name__}, which cannot be called"
        )
    call = thing if request is None else _wsgi(thing, request)

    def task() -> None:
        for _ in range(repeat):
            call()

    return task


def _script(path: str, request: str | None, repeat: int) -> Callable[[], Any]:
    if request is not None:
        raise UsageError("--request goes with module:application, not with a script")
    if not os.path.isfile(path):
        raise UsageError(f"there is no script {path}")

    def task() -> None:
        sys.argv[:] = [path]
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        for _ in range(repeat):
            runpy.run_path(path, run_name="__main__")

    return task


def _wsgi(application: Callable[..., Any], request: str) -> Callable[[], None]:
    from wsgiref.util import setup_testing_defaults

    path, _, query = request.partition("?")
    plain: dict[str, Any] = {"PATH_INFO": path or "/", "QUERY_STRING": query}
    setup_testing_defaults(plain)

    def start(
        status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info is not None:
            raise exc_info[1].with_traceback(exc_info[2])
        if not status.startswith(("2", "3")):
            raise CowlabError(f"the application answered {request} with {status}")
        return lambda data: None

    def call() -> None:
        environ = {**plain, "wsgi.input": io.BytesIO()}
        body = application(environ, start)
        try:
            for _ in body:
                pass
        finally:
            close = getattr(body, "close", None)
            if close is not None:
                close()

    return call
