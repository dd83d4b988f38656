"""Every error that cowlab raises. Each message says what was wrong and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = [
    "ChildError",
    "ChildExited",
    "ChildKilled",
    "ChildTimeout",
    "CowlabError",
    "Gone",
    "KernelThread",
    "ReadingError",
    "ResultError",
    "TaskError",
    "Truncated",
    "Unreadable",
    "Unsupported",
    "UsageError",
    "Zombie",
]


class CowlabError(Exception):
    """The base of all errors that are cowlab's own."""


class Unsupported(CowlabError):
    """This machine or this interpreter cannot do it; the message has the remedy."""


class UsageError(CowlabError, ValueError):
    """A name or a value that was given is none of those that exist."""


class ReadingError(CowlabError, OSError):
    """A reading of /proc failed.

    ``errno``, ``strerror`` and ``filename`` are those of ``OSError``.
    """


class Gone(ReadingError):
    """The process ended before or while it was read."""


class Zombie(Gone):
    """The process ended and its parent has not waited for it: its memory is gone."""


class Unreadable(ReadingError):
    """The kernel refused the reading, or what it gave is no such file."""


class KernelThread(Unreadable):
    """A thread of the kernel's own: it has no memory to read, which is not 0 bytes."""


class Truncated(ReadingError):
    """The reading ended in the middle of a record; a partial sum would be a lie."""


class ChildError(CowlabError):
    """A measured child did not finish its task. ``child`` is its index, from 0."""

    child: int = 0


class TaskError(ChildError):
    """The task raised. The exception is ``__cause__``; ``traceback`` is the child's.

    ``traceback`` is text, since frames cannot leave their process.
    """

    traceback: str = ""


class ChildKilled(ChildError):
    """A signal ended the child. ``signal`` is its number."""

    signal: int = 0


class ChildExited(ChildError):
    """The child left before its task returned. ``code`` is its exit status."""

    code: int | None = None


class ChildTimeout(ChildError):
    """The task ran past the timeout and was killed. ``seconds`` is the timeout."""

    seconds: float = 0.0


class ResultError(ChildError):
    """The task returned something that cannot be pickled, or not be unpickled here."""


class CoreMissing(Unsupported, ImportError):
    """The C core is not there for this interpreter; the message says why."""


@contextlib.contextmanager
def needs(what: str, install: str) -> Iterator[None]:
    """Around imports: Unsupported, with the line to type, for a package not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "cowlab"):
            raise  # a fault of ours
        raise Unsupported(f"{what} needs {package}: pip install {install}") from None


def native(what: str) -> Any:
    """The C core, or ``Unsupported`` with the reason why ``what`` cannot work."""
    try:
        from . import _native
    except CoreMissing as error:
        raise Unsupported(f"{what} cannot work: {error}") from None
    except ImportError as error:
        raise Unsupported(
            f"{what} needs cowlab's C core, which does not load here ({error}):"
            " install cowlab again with this interpreter"
        ) from error
    return _native


def why_no_core() -> str:
    """Why there is no C core for this interpreter, and what to do."""
    import os
    import sys

    if not sys.platform.startswith("linux"):
        return f"cowlab's C core is for Linux 5.8 or newer, and this is {sys.platform}"
    if sys.implementation.name != "cpython":
        name = sys.implementation.name
        return f"cowlab's C core is for CPython, and this is {name}"
    tree = os.path.dirname(os.path.dirname(__file__))
    if os.path.exists(os.path.join(tree, "src", "py_module.c")):
        return (
            f"cowlab was imported from its source tree, {tree}, where the C core is not"
            " built: `make build`, then .venv/bin/cowlab or .venv/bin/python -P"
        )
    return (
        "cowlab's C core is not built for this interpreter, CPython"
        f" {sys.version.split()[0]}: install cowlab with it (pip install cowlab)"
    )
