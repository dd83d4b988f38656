"""The one way to a console: readable on a terminal, in a pipe, and in ASCII."""

from __future__ import annotations

import os
import sys
from typing import IO

from rich.console import Console
from rich.text import Text

__all__ = ["console", "print_indented"]

WIDE = 200


def console(file: IO[str] | None = None) -> Console:
    """A rich console. Away from a terminal it is wide, so that no table is cut.

    COLUMNS is obeyed everywhere, and NO_COLOR by rich.
    """
    out = file or sys.stdout
    width = None
    if not out.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        width = WIDE
    return Console(file=out, width=width, highlight=False, soft_wrap=False)


def print_indented(console: Console, text: Text, indent: int) -> None:
    """A paragraph whose lines after the first are indented by as many spaces."""
    width = max(console.width - indent, 20)
    first, *rest = text.wrap(console, console.width)
    console.print(first)
    if rest:
        begin = len(first.plain)
        while text.plain[begin].isspace():
            begin += 1
        for line in text[begin:].wrap(console, width):
            line.rstrip()
            console.print(Text(" " * indent).append_text(line))
