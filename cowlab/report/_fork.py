"""A ForkReport as text and as HTML."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._forking import ForkReport

STATES = ("inherited", "kept", "copied", "sole", "fresh", "dropped", "unknown")


def mib(size: float) -> str:
    """Bytes as MiB, for people."""
    return f"{size / (1 << 20):,.2f}"


def _rows(report: ForkReport) -> list[tuple[str, ...]]:
    """A row a kind of memory, the sum last; a column a state, in pages."""
    rows = [
        (kind, *(f"{getattr(pages, state):,}" for state in STATES))
        for kind, pages in report.by_kind.items()
    ]
    total = ("all", *(f"{getattr(report, state):,}" for state in STATES))
    return [*rows, total]


def _facts(report: ForkReport) -> list[tuple[str, str]]:
    before, after, overhead = report.before, report.after, report.fork_overhead
    share = report.copied / report.inherited if report.inherited else 0.0
    return [
        (
            "copied",
            f"{mib(report.copied_bytes)} MiB, {share:.1%} of what was inherited",
        ),
        ("faults", f"{report.minor_faults:,} minor, {report.major_faults:,} major"),
        *(
            (
                f.name,
                f"{mib(getattr(before, f.name))} -> {mib(getattr(after, f.name))} MiB",
            )
            for f in fields(before)
        ),
        ("task", f"{report.seconds:.3f} s in {len(report.children)} child(ren)"),
        (
            "the fork itself",
            f"{overhead.pages.copied:,} pages copied, {overhead.minor_faults:,} minor "
            f"faults, {overhead.seconds * 1e3:.1f} ms",
        ),
    ]


def as_text(report: ForkReport) -> str:
    """A table of pages, then the figures in lines; fits in 80 columns."""
    header = ("pages", *STATES)
    rows = [header, *_rows(report)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += [f"{name}: {text}" for name, text in _facts(report)]
    lines += [f"warning: {text}" for text in report.warnings]
    if report.blame is not None:
        lines += ["", str(report.blame)]
    return "\n".join(lines)


def as_html(report: ForkReport) -> str:
    """The same as as_text, as an HTML fragment."""
    head = "".join(f"<th>{escape(name)}</th>" for name in ("pages", *STATES))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in _rows(report)
    )
    facts = "".join(
        f"<li>{escape(name)}: {escape(text)}</li>" for name, text in _facts(report)
    )
    warnings = "".join(
        f"<li><b>warning</b>: {escape(text)}</li>" for text in report.warnings
    )
    blame = "" if report.blame is None else report.blame._repr_html_()
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<ul>{facts}{warnings}</ul>{blame}"
    )
