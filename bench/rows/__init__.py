"""The rows, in the order of the table. A new row is a Row in ROWS of a module here."""

from __future__ import annotations

from harness import Row

from rows import accounting, heap, importing, preparing, readings, recording

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    *importing.ROWS,
    *readings.ROWS,
    *accounting.ROWS,
    *recording.ROWS,
    *heap.ROWS,
    *preparing.ROWS,
)
