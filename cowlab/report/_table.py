"""What a result's table holds, before it is text or HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cowlab._experiment import Column
from cowlab._result import Result
from cowlab._stats import Summary
from cowlab.report._format import figure

__all__ = [
    "Row",
    "Table",
    "columns_of",
    "facts",
    "heading",
    "spread",
    "table_of",
    "upright",
    "warnings_of",
]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells, the first of which are labels. ``quiet`` rows are there for comparison."""

    cells: tuple[str, ...]
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Headings, rows, and how many columns from the left are labels."""

    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    labels: int


def columns_of(results: Sequence[Result]) -> tuple[Column, ...]:
    """The experiment's columns; if it has none, every metric as it is."""
    if results[0].columns:
        return results[0].columns
    metrics = dict.fromkeys(m for r in results for s in r.samples for m in s.metrics)
    return tuple(Column(metric, metric) for metric in metrics)


def table_of(results: Sequence[Result]) -> Table:
    """One interpreter: a column for each metric. Several: a column for each of them."""
    if len(results) == 1:
        return _by_metric(results[0], columns_of(results))
    return upright(results)


def _arms(results: Sequence[Result]) -> list[str]:
    """All arms, in the order in which they first ran."""
    return list(dict.fromkeys(arm for result in results for arm in result.arms))


def heading(column: Column) -> str:
    """The title, with the unit unless it is in the title or at every figure."""
    if column.unit in ("", "%", "x") or column.unit in column.title.split():
        return column.title
    return f"{column.title} {column.unit}"


def _cell(row: dict[str, Summary], column: Column) -> str:
    summary = row.get(column.metric)
    return figure(summary.median if summary else None, column.unit)


def _published(column: Column, arm: str) -> str:
    value = column.published.get(arm)
    return "" if value is None else figure(value, column.unit)


def _by_metric(result: Result, columns: Sequence[Column]) -> Table:
    summary = result.summary()
    rows = []
    for arm in _arms([result]):
        rows.append(Row((arm, *(_cell(summary[arm], column) for column in columns))))
        published = [_published(column, arm) for column in columns]
        if any(published):
            rows.append(Row(("  published", *published), quiet=True))
    headings = ("arm", *map(heading, columns))
    return Table(headings, tuple(rows), labels=1)


def upright(results: Sequence[Result]) -> Table:
    """A row for each metric, however many interpreters there are."""
    columns = columns_of(results)
    summaries = [result.summary() for result in results]
    some_published = any(column.published for column in columns)
    rows = []
    for arm in _arms(results):
        label = arm
        for column in columns:
            cells = [_cell(summary.get(arm, {}), column) for summary in summaries]
            if all(cell == "-" for cell in cells):
                continue
            if some_published:
                cells.append(_published(column, arm))
            rows.append(Row((label, heading(column), *cells)))
            label = ""
    versions = [str(result.environment.get("python", "?")) for result in results]
    headings = ("arm", "", *versions, *(["published"] if some_published else []))
    return Table(headings, tuple(rows), labels=2)


def facts(results: Sequence[Result]) -> str:
    """One line: what it was measured on."""
    env = results[0].environment
    versions = [str(result.environment.get("python", "?")) for result in results]
    parts = [
        f"{env.get('implementation', 'Python')} {', '.join(versions)}",
        str(env.get("kernel", "")),
        str(env.get("machine", "")),
    ]
    if env.get("page_size"):
        parts.append(f"{int(env['page_size']) // 1024} KiB pages")
    if env.get("thp"):
        parts.append(f"THP {env['thp']}")
    if env.get("allocator"):
        parts.append(str(env["allocator"]))
    if env.get("memory"):
        parts.append(f"{env['memory'] / (1 << 30):.1f} GiB of memory")
    return "; ".join(part for part in parts if part)


def spread(result: Result) -> str:
    """One line: how many samples the medians are of, and where they differed most.

    As part of the largest figure of the same column: a small figure that doubles from
    one sample to the next is not what makes a table uncertain.
    """
    summary = result.summary()
    worst, where = 0.0, ""
    most = max((s.n for row in summary.values() for s in row.values()), default=1)
    for column in columns_of([result]):
        cells = {
            arm: r[column.metric] for arm, r in summary.items() if column.metric in r
        }
        largest = max((abs(cell.median) for cell in cells.values()), default=0)
        for arm, cell in cells.items():
            if largest and (cell.max - cell.min) / largest > worst:
                worst = (cell.max - cell.min) / largest
                where = f"{heading(column)}, {arm}"
    if most == 1:
        return "one sample of each: run with --repeat 3 for medians"
    if not where:
        return f"medians of {most}, all samples equal"
    apart = f"{worst:.1%} of the column's largest figure ({where})"
    return f"medians of {most}; samples differ by at most {apart}"


def warnings_of(result: Result) -> dict[str, list[str]]:
    """Warnings, with the arms that had them; of those alike but for figures, one."""
    arms: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for sample in result.samples:
        for warning in sample.warnings:
            alike = re.sub(r"\d[\d,.]*", "0", warning)
            named = arms.setdefault(first.setdefault(alike, warning), [])
            if sample.arm not in named:
                named.append(sample.arm)
    return arms
