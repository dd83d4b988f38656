"""CPython's location table (3.11 and newer): which line an instruction is of.

The decoder is our own because the code object may be gone, or be another process's, by
the time someone asks. Format: Objects/locations.md of CPython.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["line_at", "line_runs"]

_SHORT, _ONE_LINE = 10, 13
_NO_COLUMNS, _LONG, _NONE = 13, 14, 15


def _number(table: bytes, at: int) -> tuple[int, int]:
    """An unsigned number in 6-bit groups, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        if not byte & 64:
            return value, at
        shift += 6


def _signed(value: int) -> int:
    return -(value >> 1) if value & 1 else value >> 1


def line_runs(table: bytes, first_line: int) -> Iterator[tuple[int, int, int | None]]:
    """(start, end, line) in code units, in order; None where there is no line.

    A table that ends in the middle of an entry is taken up to there.
    """
    at = start = 0
    line = first_line
    try:
        while at < len(table):
            head = table[at]
            at += 1
            kind = head >> 3 & 15
            end = start + (head & 7) + 1
            shown: int | None = None
            if kind == _NONE:
                pass
            else:
                if kind >= _NO_COLUMNS:
                    delta, at = _number(table, at)
                    line += _signed(delta)
                    if kind == _LONG:
                        for _ in range(3):  # end line, column, end column
                            _, at = _number(table, at)
                elif kind >= _SHORT:
                    line += kind - _SHORT
                    at += 2
                else:
                    at += 1
                shown = line
            yield start, end, shown
            start = end
    except IndexError:
        return


def line_at(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of the instruction at ``offset`` code units; -1 is the function's start.

    An instruction without a line of its own has the line of the one before it.
    """
    found: int | None = None
    for start, end, line in line_runs(table, first_line):
        if line is not None:
            found = line
        if start <= offset < end or offset < 0:
            break
    return first_line if found is None else found
