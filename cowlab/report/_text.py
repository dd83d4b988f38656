"""Results as text, for a terminal and for a pipe."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cowlab._result import Answer, Result
from cowlab.report._console import print_indented
from cowlab.report._table import Table as Layout
from cowlab.report._table import facts, spread, table_of, upright, warnings_of

__all__ = ["as_text", "render"]

GAP = 2
SHORTEST_LABEL = 6

STYLES = {
    "reproduced": "green",
    "refuted": "red",
    "different": "yellow",
    "unanswered": "dim",
}


def as_text(results: Sequence[Result]) -> str:
    """The report as a string, without colours."""
    out = io.StringIO()
    render(results, Console(file=out, width=100, highlight=False, no_color=True))
    return out.getvalue()


def render(results: Sequence[Result], console: Console) -> None:
    """Print the table, what went wrong, and the claims."""
    first = results[0]
    console.print(Text(first.title or first.experiment, style="bold"))
    console.print(Text(facts(results), style="dim"))
    settings = ", ".join(f"{k}={v}" for k, v in first.parameters.items())
    if settings:
        console.print(Text(settings, style="dim"))
    if any(result.samples for result in results):
        _print_table(results, console)
    else:
        console.print("No arm was finished.")
    if any(result.interrupted for result in results):
        console.print(Text("Interrupted: only what was finished is shown.", "yellow"))
    for result in results:
        _print_trouble(result, console, several=len(results) > 1)
    _print_claims(results, console)


def _print_table(results: Sequence[Result], console: Console) -> None:
    data = table_of(results)
    if sum(_least(data)) > console.width:
        data = upright(results)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for at, width in enumerate(_widths(data, console.width)):
        table.add_column(
            Text(data.headings[at], style="bold"),
            justify="left" if at < data.labels else "right",
            overflow="fold",
            width=width - GAP,
        )
    for row in data.rows:
        cells = [Text(cell) for cell in row.cells]
        table.add_row(*cells, style="dim" if row.quiet else None)
    console.print()
    console.print(table)
    if len(results) == 1:
        console.print(Text(spread(results[0]), style="dim"))
    console.print()


def _least(data: Layout) -> list[int]:
    """What each column needs at least: its cells whole, its heading word by word."""
    return [
        GAP + max(map(len, (*heading.split(), *(row.cells[at] for row in data.rows))))
        for at, heading in enumerate(data.headings)
    ]


def _widths(data: Layout, room: int) -> list[int]:
    """The widths that fit: headings whole as far as there is room, then labels cut.

    rich would cut the figures too, and a figure cut short is another figure.
    """
    widths = _least(data)
    room -= sum(widths)
    for at, heading in enumerate(data.headings):
        more = max(0, min(room, len(heading) + GAP - widths[at]))
        widths[at] += more
        room -= more
    for at in reversed(range(data.labels)):
        less = min(max(0, -room), widths[at] - GAP - SHORTEST_LABEL)
        if less > 0:
            widths[at] -= less
            room += less
    return widths


def _print_trouble(result: Result, console: Console, *, several: bool) -> None:
    where = f" on {result.environment.get('python')}" if several else ""
    for failure in result.failures:
        if failure.kind == "unsupported":
            console.print(Text(f"{failure.arm}{where}: not here. {failure.why}"))
        else:
            text = f"{failure.arm}{where} {failure.kind}: {failure.why}"
            console.print(Text(text, style="red"))
    for warning, arms in warnings_of(result).items():
        text = f"warning ({', '.join(arms)}{where}): {warning}"
        print_indented(console, Text(text, style="yellow"), 4)


def _print_claims(results: Sequence[Result], console: Console) -> None:
    """Each claim once, and what each interpreter says to it."""
    for claim in results[0].claims:
        head = Text().append(claim.id, style="bold")
        if len(results) == 1:
            head.append_text(_verdict(claim))
        if claim.text:
            head.append(f"  {claim.origin}: {claim.text}", style="dim")
        print_indented(console, head, 4)
        pairs = [(r, a) for r in results for a in r.claims if a.id == claim.id]
        for result, answer in pairs:
            line = Text("    ")
            if len(results) > 1:
                line.append(str(result.environment.get("python")), style="bold")
                line.append_text(_verdict(answer)).append(": ")
            print_indented(console, line.append(answer.why), 4)
    for result in results:
        where = f" on {result.environment.get('python')}" if len(results) > 1 else ""
        for note in result.notes:
            print_indented(console, Text(f"note{where}: {note}"), 4)


def _verdict(answer: Answer) -> Text:
    return Text(" ").append(answer.verdict, style=STYLES.get(answer.verdict, ""))
