"""One metric of a result as bars. matplotlib is imported when it is called for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cowlab._errors import UsageError, needs
from cowlab._result import Result
from cowlab._suggest import suggest
from cowlab.report._format import scale
from cowlab.report._table import columns_of, heading

__all__ = ["plot"]


def plot(results: Sequence[Result], metric: str | None = None) -> Any:
    """A matplotlib figure: a bar for each arm, a colour for each interpreter.

    The line on a bar is from the smallest to the largest sample, the dot what was
    published.
    """
    with needs("A plot", "'cowlab[plots]'"):
        from matplotlib.figure import Figure
    columns = {column.metric: column for column in columns_of(results)}
    name = metric or next(iter(columns), "")
    if name not in columns:
        raise UsageError(f"There is no metric {name!r}. {suggest(name, columns)}")
    column = columns[name]
    factor = scale(column.unit)

    arms = list(dict.fromkeys(arm for result in results for arm in result.arms))
    figure = Figure(figsize=(8, 1 + 0.4 * max(len(arms), 2)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(results)
    for at, result in enumerate(results):
        shown = {arm: row[name] for arm, row in result.summary().items() if name in row}
        places = [arms.index(arm) + (at + 0.5) * height - 0.4 for arm in shown]
        medians = [s.median * factor for s in shown.values()]
        below = [(s.median - s.min) * factor for s in shown.values()]
        above = [(s.max - s.median) * factor for s in shown.values()]
        label = str(result.environment.get("python", "?"))
        axes.barh(places, medians, height, xerr=(below, above), label=label)
    published = {a: v for a, v in column.published.items() if a in arms}
    if published:
        values = [value * factor for value in published.values()]
        axes.plot(
            values, [arms.index(arm) for arm in published], "ko", label="published"
        )
    axes.set_yticks(range(len(arms)), arms)
    axes.invert_yaxis()
    axes.set_xlabel(heading(column))
    axes.set_title(results[0].title)
    if published or len(results) > 1:
        axes.legend()
    return figure
