"""Results as HTML, for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cowlab._result import Result
from cowlab.report._table import facts, spread, table_of, warnings_of

__all__ = ["page"]

_RIGHT = ' style="text-align:right"'
_LEFT = ' style="text-align:left"'
_QUIET = ' style="opacity:.6"'


def page(results: Sequence[Result]) -> str:
    """A table, its conditions and its verdicts, as one <div>."""
    first = results[0]
    parts = [f"<b>{escape(first.title or first.experiment)}</b>"]
    parts.append(f"<br><small>{escape(facts(results))}</small>")
    parts.append(_table(results))
    if len(results) == 1:
        parts.append(f"<small>{escape(spread(first))}</small>")
    for result in results:
        where = f" on {result.environment.get('python')}" if len(results) > 1 else ""
        parts.append(_list(result, where))
    return f"<div>{''.join(parts)}</div>"


def _table(results: Sequence[Result]) -> str:
    data = table_of(results)

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{_LEFT if at < data.labels else _RIGHT}>{escape(text)}</{tag}>"
            for at, text in enumerate(texts)
        )

    rows = "".join(
        f"<tr{_QUIET if row.quiet else ''}>{cells('td', row.cells)}</tr>"
        for row in data.rows
    )
    head = f"<thead><tr>{cells('th', data.headings)}</tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _list(result: Result, where: str) -> str:
    items = [
        f"<li>{escape(f.arm + where)}: {escape(f.kind)}. {escape(f.why)}</li>"
        for f in result.failures
    ]
    items += [
        f"<li>warning ({escape(', '.join(arms) + where)}): {escape(warning)}</li>"
        for warning, arms in warnings_of(result).items()
    ]
    items += [
        f"<li><b>{escape(claim.id + where)}</b> {escape(claim.verdict)}:"
        f" {escape(claim.why)}</li>"
        for claim in result.claims
    ]
    items += [f"<li>{escape(note)}</li>" for note in result.notes]
    if result.interrupted:
        items.append("<li>Interrupted: only what was finished is shown.</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""
