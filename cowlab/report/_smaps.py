"""Where memory is, and what two processes share, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cowlab._memory import MemoryGroup, MemoryReport, SharedGroup, SharedReport
from cowlab.report._console import print_indented

__all__ = ["print_memory", "print_shared"]

NARROWEST = 80
"""On a narrower terminal lines are broken, and no column is lost."""

COLUMNS = {
    "PSS": "pss",
    "RSS": "rss",
    "private": "private",
    "shared": "shared",
    "swap": "swap",
}
MEANING = (
    "MiB. RSS = private + shared; PSS counts a page that N processes map as one N-th; "
    "private (USS) is what the machine gets back when the process ends."
)


def printable(text: str) -> str:
    """A path or name that cannot move the cursor or colour the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        char
        if char.isprintable()
        else "".join(f"\\x{b:02x}" for b in char.encode("utf-8", "surrogateescape"))
        for char in text
    )


def mib(size: int | None) -> str:
    """Bytes as MiB; a dash for what is not known."""
    return "-" if size is None else f"{size / (1 << 20):,.2f}"


def _table(headings: Sequence[str], labels: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for at, heading in enumerate(headings):
        label = at >= len(headings) - labels
        table.add_column(
            heading,
            justify="left" if label else "right",
            overflow="fold",
            no_wrap=not label,
        )
    return table


def _add(table: Table, cells: Iterable[str], style: str | None = None) -> None:
    table.add_row(*(Text(cell) for cell in cells), style=style)


def _title(report: MemoryReport) -> Text:
    return Text(f"process {report.pid} ({printable(report.comm)})", style="bold")


def print_memory(report: MemoryReport, console: Console, limit: int = 0) -> None:
    """A table of kinds, and one of files and other groups, the largest first."""
    columns = dict(COLUMNS)
    if report.total.hugetlb:
        columns["hugetlb"] = "hugetlb"

    def figures(group: MemoryGroup) -> list[str]:
        return [mib(getattr(group, name)) for name in columns.values()]

    console.width = max(console.width, NARROWEST)
    console.print(_title(report))
    print_indented(console, Text(MEANING, style="dim"), 0)
    kinds = _table((*columns, "mappings", "kind"), 1)
    for group in (*report.by_kind, report.total):
        style = "bold" if group is report.total else None
        _add(kinds, (*figures(group), f"{group.mappings:,}", group.kind), style)
    console.print()
    console.print(kinds)
    shown = report.groups[:limit] if limit else report.groups
    groups = _table((*columns, "kind", "file or name"), 2)
    for group in shown:
        _add(groups, (*figures(group), group.kind, printable(group.name or "")))
    console.print()
    console.print(groups)
    _say_rest(console, [group.weight for group in report.groups[len(shown) :]])


def _say_rest(console: Console, rest: Sequence[int]) -> None:
    if rest:
        text = f"and {len(rest):,} smaller, {mib(sum(rest))} MiB; --limit 0 shows all"
        console.print(Text(text, style="dim"))


def print_shared(report: SharedReport, console: Console, limit: int = 0) -> None:
    """What two processes share, then each file and kind side by side."""
    a, b = report.a, report.b
    console.width = max(console.width, NARROWEST)
    console.print(_title(a), Text("and", style="bold"), _title(b))
    how = {
        "frames": "by frame number: exact for memory of every kind",
        "file offsets": "by file and offset: exact for files and shared memory",
    }[report.source]
    console.print(Text(f"They share {mib(report.shared)} MiB ({how})."))
    if report.why:
        text = f"At most {mib(report.unknown)} MiB more may be shared: {report.why}."
        print_indented(console, Text(text, style="yellow"), 0)
    table = _table(
        ("shared", f"RSS {a.pid}", f"RSS {b.pid}", "kind", "file or name"), 2
    )
    rows = report.groups[:limit] if limit else report.groups
    for row in rows:
        _add(table, _cells(row))
    rss = [mib(_resident(side)) for side in (a, b)]
    _add(table, (mib(report.shared), *rss, "all", ""), "bold")
    console.print()
    console.print(Text("MiB", style="dim"))
    console.print(table)
    _say_rest(console, [row.shared or 0 for row in report.groups[len(rows) :]])


def _resident(report: MemoryReport) -> int:
    return (report.total.rss or 0) + (report.total.hugetlb or 0)


def _cells(row: SharedGroup) -> tuple[str, ...]:
    unknown = row.shared is None
    return (
        "?" if unknown else mib(row.shared),
        mib(row.a),
        mib(row.b),
        row.kind,
        printable(row.name or ""),
    )
