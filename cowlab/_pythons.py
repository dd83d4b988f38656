"""Other interpreters: cowlab built for each, in a cache."""

from __future__ import annotations

from cowlab._errors import Unsupported
from cowlab._interpreter import Interpreter

__all__ = ["prepare"]


def prepare(path: str) -> Interpreter:
    """The interpreter at ``path``, with a cowlab that it can import."""
    raise Unsupported(f"{path}: other interpreters are not supported yet")
