"""A trial as text, for a terminal and for a pipe, and as HTML."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cowlab._trial_report import ARMS, Blamed, Difference, TrialReport
from cowlab.report._console import print_indented
from cowlab.report._format import figure

__all__ = ["as_html", "as_text", "render"]

COLUMNS = (
    ("PSS MiB", "pss", "MiB"),
    ("USS MiB", "uss", "MiB"),
    ("copied MiB", "copied", "MiB"),
    ("fresh MiB", "fresh", "MiB"),
    ("minor faults", "minor_faults", ""),
    ("ms a unit", "seconds", "ms"),
    ("CPU ms a unit", "cpu", "ms"),
)

MEANING = (
    "Master and workers together, all at their end and alive. PSS is what they take,"
    " USS what only one of them has. copied: inherited and written; fresh: not"
    " inherited."
)


def as_text(report: TrialReport) -> str:
    """The report as a string, without colours."""
    out = io.StringIO()
    render(report, Console(file=out, width=100, highlight=False, no_color=True))
    return out.getvalue()


def _title(report: TrialReport) -> str:
    command = report.command
    workers, work = command["workers"], command["work"]
    return (
        f"{command['target']}: {workers} worker{'s' * (workers > 1)},"
        f" {work:,} unit{'s' * (work > 1)} of work"
    )


def _facts(report: TrialReport) -> str:
    env = report.environment
    kernel, page = env.get("kernel"), env.get("page_size") or 0
    counts = {report.summary(arm, "pss").n for arm in report.arms}
    build = "" if env.get("gil", True) else " free-threaded"
    return (
        f"{env.get('implementation')} {env.get('python')}{build}; {kernel};"
        f" {env.get('cpus')} CPUs; {page // 1024} KiB pages;"
        f" medians of {max(counts, default=0)}"
    )


def _rows(report: TrialReport) -> Iterable[tuple[tuple[str, ...], bool]]:
    """Cells, and whether they are only the range of those above."""
    for arm in report.arms:
        summaries = [report.summary(arm, name) for _, name, _ in COLUMNS]
        units = [unit for _, _, unit in COLUMNS]
        pairs = list(zip(summaries, units, strict=True))
        yield (arm, *(figure(s.median, unit) for s, unit in pairs)), False
        if summaries[0].n > 1:
            yield ("  min", *(figure(s.min, unit) for s, unit in pairs)), True
            yield ("  max", *(figure(s.max, unit) for s, unit in pairs)), True


def _shown(report: TrialReport) -> list[str]:
    """The arms to forecast for: plain, and what is recommended."""
    best = report.recommendation
    return [arm for arm in ("plain", best) if arm in report.arms and arm is not None]


def _forecast(report: TrialReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    arms = _shown(report)
    headings = ("workers", *(f"{arm} MiB" for arm in arms), "plain's ceiling MiB")
    rows = []
    for count in report.horizon():
        forecasts = [report.forecast(arm, count) for arm in arms]
        sizes = [figure(one.pss, "MiB") for one in forecasts]
        rows.append((f"{count}", *sizes, figure(forecasts[0].ceiling, "MiB")))
    return headings, rows


FORECAST = (
    "PSS with another number of workers, each doing as much as here. Copying goes on as"
    " a worker lives: the ceiling is every worker having written all that it inherited."
)


def _troubles(report: TrialReport) -> Iterable[tuple[str, str]]:
    """Sentences, each with the style of it."""
    if report.interrupted:
        yield "Interrupted: only what was finished is shown.", "yellow"
    for failure in report.failures:
        if failure.kind == "unsupported":
            why = failure.why.removeprefix(f"{failure.arm}: ")
            yield f"{failure.arm}: not here. {why}", ""
        else:
            yield f"{failure.arm} {failure.kind}: {failure.why}", "red"
    for one in report.differences:
        yield _difference(one, report), "red"
    if not report.compared:
        yield "Results were not compared: equal work is taken for granted.", "yellow"
    yield from ((text, "yellow") for text in _warnings(report))


_NUMBERS = re.compile(r"\d[\d,]*")


def _warnings(report: TrialReport) -> Iterable[str]:
    """One for all that differ in their numbers only, which are then ranges."""
    found: dict[tuple[str, ...], tuple[list[str], list[list[str]]]] = {}
    for sample in report.samples:
        for warning in sample.warnings:
            text = warning.partition(": ")[2] if _of_child(warning) else warning
            arms, numbers = found.setdefault(tuple(_NUMBERS.split(text)), ([], []))
            numbers.append(_NUMBERS.findall(text))
            if sample.arm not in arms:
                arms.append(sample.arm)
    for words, (arms, numbers) in found.items():
        text = words[0]
        for seen, word in zip(zip(*numbers, strict=True), words[1:], strict=True):
            text += _range(seen) + word
        yield f"warning ({', '.join(arm for arm in ARMS if arm in arms)}): {text}"


def _range(numbers: Sequence[str]) -> str:
    if len(set(numbers)) == 1:
        return numbers[0]
    values = [int(number.replace(",", "") or "0") for number in numbers]
    return f"{min(values):,} to {max(values):,}"


def _of_child(warning: str) -> bool:
    """Whether it begins with "child 3: ", as those of one worker do."""
    word, _, rest = warning.partition(" ")
    return word == "child" and rest.partition(":")[0].isdecimal()


def _difference(one: Difference, report: TrialReport) -> str:
    total = report.command["work"]
    where = f"{one.units:,} of {total:,} units, the first of them {one.first}"
    if one.kind == "incomparable":
        return (
            f"Equal work is not shown: results of type {one.first} cannot be compared"
            " between processes. Return plain data, such as a count or a checksum."
        )
    if one.kind == "not deterministic":
        return (
            "Equal work is not shown: the work is not deterministic. Plain itself gave"
            f" different results in {where}. Have it give the same each time, or"
            " leave the comparison out (--no-compare)."
        )
    if one.kind == "changed":
        return (
            f"{one.arm}: the results differ from plain's in {where}; plain agrees with"
            " itself. Do not use this remedy before the reason is known."
        )
    return (
        f"{one.arm}: the results differ from plain's in {where}. Either the work is not"
        " deterministic or the remedy changed it: --repeat 2 tells which."
    )


def _recommendation(report: TrialReport) -> list[str]:
    """What to do, what it saves, what it costs: a paragraph each."""
    if "plain" not in report.arms:
        return ["No recommendation: plain was not finished."]
    if report.differences:
        return ["No recommendation: equal work was not shown."]
    if report.arms == ["plain"]:
        return ["No recommendation: no remedy was measured."]
    plain = report.summary("plain", "pss")
    best = report.recommendation
    if best is None:
        return [
            "Recommendation: leave it as it is. No remedy that ran here took less than"
            f" plain's {figure(plain.median, 'MiB')} MiB, beyond the spread of the"
            " samples.",
            *_elsewhere(report),
        ]
    size = report.summary(best, "pss")
    saved = plain.median - size.median
    return [
        f"Recommendation: {best}. The group takes {figure(size.median, 'MiB')} MiB"
        f" instead of {figure(plain.median, 'MiB')}"
        f" ({size.median / plain.median:.0%}): {figure(saved, 'MiB')} MiB less.",
        *_costs(report, best),
    ]


def _elsewhere(report: TrialReport) -> Iterable[str]:
    """Where the remedy that is left out here would be had."""
    left_out = {one.arm for one in report.failures if one.kind == "unsupported"}
    version = str(report.environment.get("python", ""))
    if "immortalize" in left_out and version.startswith("3.11."):
        yield (
            "From CPython 3.12 on objects can be immortal, and reading them writes"
            " nothing: run the trial there as well."
        )


def _costs(report: TrialReport, best: str) -> Iterable[str]:
    sample = next(s for s in report.samples if s.arm == best)
    took = report.summary(best, "prepare_seconds").median
    plain, mine = report.summary("plain", "cpu"), report.summary(best, "cpu")
    told = mine.n > 1 and (mine.min > plain.max or mine.max < plain.min)
    change = _change(mine.median / plain.median - 1) if plain.median else "not known"
    note = " (within the spread)" if mine.n > 1 else " (one sample of each)"
    if told:
        note = ""
    yield (
        f"Cost: {took:.2f} s in the master before the first fork; processor time for a"
        f" unit of work {change}{note}."
    )
    if sample.immortal:
        yield (
            f"Cost: {sample.immortal:,} objects are immortal and never freed: what"
            " was loaded stays until the process ends, also what the program drops or"
            " replaces later. Their finalisers and weak-reference callbacks do not run,"
            " and sys.getrefcount shows a constant."
        )
    if sample.frozen:
        yield (
            "Cost: garbage among what was loaded, if any is made later, is never"
            " collected."
        )


def _change(part: float) -> str:
    if abs(part) < 0.0005:
        return "the same as plain's"
    return f"{abs(part):.1%} {'more' if part > 0 else 'less'} than plain's"


def _blamed(blame: Blamed) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in blame.lines[:5]:
        size = figure(row["pages"] * blame.page_size, "MiB")
        cause = next(iter(row["causes"]), "")
        rows.append((size, f"{row['pages'] / blame.copied:.0%}", cause, row["line"]))
    return rows


def _blame_title(blame: Blamed) -> str:
    if blame.missing:
        return f"{blame.arm}: no lines recorded. {blame.missing}"
    size = figure(blame.copied * blame.page_size, "MiB")
    return f"{blame.arm}: what copied most of {size} MiB (recorded in a run of its own)"


# ---- text ----


def _table(headings: Sequence[str], left: Sequence[int] = (0,)) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for at, heading in enumerate(headings):
        table.add_column(
            Text(heading),
            justify="left" if at in left else "right",
            overflow="fold",
            min_width=max(map(len, heading.split()), default=0),
        )
    return table


def render(report: TrialReport, console: Console) -> None:
    """Print the table, what went wrong, the forecast, and what to do."""
    console.print(Text(_title(report), style="bold"))
    print_indented(console, Text(_facts(report), style="dim"), 0)
    print_indented(console, Text(MEANING, style="dim"), 0)
    table = _table(("arm", *(heading for heading, _, _ in COLUMNS)))
    for cells, quiet in _rows(report):
        table.add_row(*map(Text, cells), style="dim" if quiet else None)
    console.print()
    console.print(table)
    console.print()
    troubles = list(_troubles(report))
    for text, style in troubles:
        print_indented(console, Text(text, style=style), 4)
    if troubles:
        console.print()
    if "plain" in report.arms:
        headings, rows = _forecast(report)
        table = _table(headings, left=())
        for cells in rows:
            table.add_row(*map(Text, cells))
        print_indented(console, Text(FORECAST, style="dim"), 0)
        console.print()
        console.print(table)
        console.print()
    first, *rest = _recommendation(report)
    print_indented(console, Text(first, style="bold"), 4)
    for text in rest:
        print_indented(console, Text(text), 4)
    if report.lines:
        console.print(f"\nFor {report.server}:\n", highlight=False)
        for line in report.lines.splitlines():
            console.print(Text(f"    {line}".rstrip()), soft_wrap=True)
    for blame in report.blame:
        console.print()
        print_indented(console, Text(_blame_title(blame), style="bold"), 4)
        table = _table(("MiB", "share", "cause", "line"), left=(2, 3))
        for cells in _blamed(blame):
            table.add_row(*map(Text, cells))
        if blame.lines:
            console.print(table)


# ---- HTML ----


def _html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def as_html(report: TrialReport) -> str:
    """The same as one <div>, for a notebook."""
    headings = ("arm", *(heading for heading, _, _ in COLUMNS))
    parts = [
        f"<b>{escape(_title(report))}</b><br><small>{escape(_facts(report))}</small>",
        _html_table(headings, [cells for cells, _ in _rows(report)]),
        f"<small>{escape(MEANING)}</small>",
    ]
    troubles = [f"<li>{escape(text)}</li>" for text, _ in _troubles(report)]
    if troubles:
        parts.append(f"<ul>{''.join(troubles)}</ul>")
    if "plain" in report.arms:
        parts += [_html_table(*_forecast(report)), f"<small>{escape(FORECAST)}</small>"]
    parts += [f"<p>{escape(text)}</p>" for text in _recommendation(report)]
    if report.lines:
        parts.append(f"<pre>{escape(report.lines)}</pre>")
    for blame in report.blame:
        parts.append(f"<p>{escape(_blame_title(blame))}</p>")
        if blame.lines:
            parts.append(_html_table(("MiB", "share", "cause", "line"), _blamed(blame)))
    return f"<div>{''.join(parts)}</div>"
