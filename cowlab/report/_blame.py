"""A Blame as text and as HTML: the lines first, then types, causes, C functions."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from cowlab.report._fork import mib

if TYPE_CHECKING:
    from cowlab._blame import Blame, Row

__all__ = ["as_fragment", "as_page", "as_text"]

LINES, OTHERS = 15, 8
TABLES = (
    ("types", "by_type"),
    ("causes", "by_cause"),
    ("fields", "by_field"),
    ("functions", "by_function"),
    ("modules", "by_module"),
    ("C functions", "by_symbol"),
)


def _most(parts: Mapping[str, int], number: int = 2) -> str:
    """The largest parts by name; what share each has, if there are several."""
    total = sum(parts.values())
    if len(parts) == 1:
        return next(iter(parts))
    large = [item for item in parts.items() if item[1] >= 0.01 * total]
    text = ", ".join(f"{name} {pages / total:.0%}" for name, pages in large[:number])
    return text + (", ..." if len(large) > number else "")


def _source(name: str) -> str:
    """The text of "file:line", where it can be read here."""
    file, _, line = name.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdecimal() else ""


def _summary(blame: Blame) -> str:
    share = blame.copied / blame.inherited if blame.inherited else 0.0
    size = mib(blame.copied * blame.page_size)
    return (
        f"{blame.copied:,} pages copied, {size} MiB, {share:.1%} of "
        f"{blame.inherited:,} inherited (recorded: {blame.mode})"
    )


def _cells(row: Row) -> tuple[str, str, str]:
    return f"{row.pages:,}", mib(row.bytes), f"{row.share:.1%}"


def _line_up(rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Rows as text: ``right`` columns of figures, then columns of text."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if i < right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def as_text(blame: Blame) -> str:
    """The report for a terminal or a pipe, without colours."""
    out = [_summary(blame)]
    if blame.pages:
        out.append("")
        heads = ("pages", "MiB", "share")
        lines = blame.by_line()
        shown = lines[:LINES]
        table = [(*heads, "line"), *((*_cells(row), row.name) for row in shown)]
        texts = _line_up(table, 3)
        out.append(texts[0])
        for row, text in zip(shown, texts[1:], strict=True):
            out.append(text)
            about = _most(row.causes)
            if row.types:
                about += f" of {_most(row.types)}"
            out.append(f"        {about}")
            if source := _source(row.name):
                out.append(f"        > {source}")
        out += _rest(lines, LINES)
        for title, method in TABLES:
            rows = getattr(blame, method)()
            top = rows[:OTHERS]
            table = [(*heads, title), *((*_cells(row), row.name) for row in top)]
            out += ["", *_line_up(table, 3), *_rest(rows, OTHERS)]
        advice = blame.advice()
        if advice:
            out += ["", "advice"]
            out += [f"  {what} ({n:,} pages): {how}" for what, n, how in advice]
    out += ["", *(f"note: {text}" for text in blame.limits)]
    return "\n".join(out)


def _rest(rows: Sequence[Row], shown: int) -> list[str]:
    if len(rows) <= shown:
        return []
    pages = sum(row.pages for row in rows[shown:])
    return [f"... {len(rows) - shown:,} more, {pages:,} pages"]


def as_fragment(blame: Blame) -> str:
    """The report as one <div>, for a notebook."""
    parts = [f"<p>{escape(_summary(blame))}</p>"]
    if blame.pages:
        parts.append(_html_table("line", blame.by_line(), LINES, lines=True))
        for title, method in TABLES:
            rows = getattr(blame, method)()
            parts.append(_html_table(title, rows, OTHERS, lines=False))
        items = "".join(
            f"<li><b>{escape(what)}</b> ({n:,} pages): {escape(how)}</li>"
            for what, n, how in blame.advice()
        )
        parts.append(f"<h3>advice</h3><ul>{items}</ul>")
    notes = "".join(f"<li>{escape(text)}</li>" for text in blame.limits)
    parts.append(f"<ul><small>{notes}</small></ul>")
    return f'<div class="cowlab-blame">{"".join(parts)}</div>'


def _html_table(title: str, rows: Sequence[Row], shown: int, *, lines: bool) -> str:
    heads = ("pages", "MiB", "share", title) + (("why", "source") if lines else ())
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = []
    for row in rows[:shown]:
        figures = "".join(
            f'<td style="text-align:right">{escape(text)}</td>' for text in _cells(row)
        )
        texts = [row.name]
        if lines:
            of = f" of {_most(row.types)}" if row.types else ""
            texts += [_most(row.causes) + of, _source(row.name)]
        cells = "".join(
            f'<td style="text-align:left"><code>{escape(text)}</code></td>'
            for text in texts
        )
        body.append(f"<tr>{figures}{cells}</tr>")
    rest = "".join(f"<p>{escape(text)}</p>" for text in _rest(rows, shown))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"{rest}"
    )


def as_page(blame: Blame, title: str) -> str:
    """A file of its own: no style sheet, script or image from anywhere else."""
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:15px/1.5 sans-serif;margin:2em auto;max-width:70em;"
        "padding:0 1em;color:#222;background:#fff}table{border-collapse:collapse;"
        "margin:1em 0;display:block;overflow-x:auto}td,th{padding:.2em .8em;"
        "border-bottom:1px solid #ddd;text-align:left}</style></head>"
        f"<body><h1>{escape(title)}</h1>{as_fragment(blame)}</body></html>\n"
    )
