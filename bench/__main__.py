"""``python bench``: every budget against its floor and what people use today.

python bench [ROW...] [--json] [--quick] [--check]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

from harness import FULL, QUICK, Measured, run
from rows import ROWS

from cowlab._environment import environment

SCHEMA = 1


def main() -> int:
    known = {row.name: row for row in ROWS}
    parser = argparse.ArgumentParser(
        prog="bench", description="Every budget against its floor."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(known))
    parser.add_argument("--json", action="store_true", help="print raw samples as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: to see that it runs"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a budget is not met"
    )
    args = parser.parse_args()
    unknown = [name for name in args.rows if name not in known]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; there are: {', '.join(known)}")
    size = QUICK if args.quick else FULL
    measured = []
    for name in args.rows or known:
        if sys.stderr.isatty():
            print(f"\r\033[K{name}", end="", file=sys.stderr, flush=True)
        measured.append(run(known[name], size))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(_report(measured, args.quick), indent=2))
    else:
        _show(measured, args.quick)
    missed = any(result.met is False for result in measured)
    return int(args.check and missed)


def _report(measured: list[Measured], quick: bool) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "quick": quick,
        "environment": environment(),
        "rows": [result.to_json() for result in measured],
    }


def _show(measured: list[Measured], quick: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from cowlab.report._console import console

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("what", "cowlab", "floor", "today", "score", "min - max"):
        side = "left" if heading in ("what", "today") else "right"
        table.add_column(heading, justify=side, overflow="fold")  # type: ignore[arg-type]
    table.add_column("budget", overflow="fold")
    for result in measured:
        table.add_row(*(Text(cell) for cell in _cells(result)))
    out = console()
    out.print(table)
    if quick:
        out.print(Text("tiny sizes: these figures mean nothing", "bold"))
    wide = [result.row.name for result in measured if result.wide]
    if wide:
        out.print(
            Text(
                f"wide spread, so believe only a quieter run: {', '.join(wide)}", "bold"
            )
        )
    env = environment()
    out.print(
        Text("floor: the same by bare system calls in C. score: the median", "dim")
    )
    out.print(Text(f"{env['implementation']} {env['python']}, {env['kernel']}", "dim"))


def _cells(result: Measured) -> list[str]:
    row = result.row
    if result.unavailable:
        return [row.what, "-", "-", "", "-", "", f"not measured: {result.unavailable}"]
    unit = result.score_unit

    def figure(name: str) -> str:
        if name not in result.samples:
            return "-"
        return f"{statistics.median(result.samples[name]):,.4g} {row.unit}"

    others = [name for name in result.samples if name not in ("cowlab", "floor")]
    budget = ""
    if row.budget:
        budget = f"{row.budget}: {'met' if result.met else 'MISSED'}"
    return [
        row.what,
        figure("cowlab"),
        figure("floor"),
        ", ".join(f"{name} {figure(name)}" for name in others),
        f"{result.score:.3g} {unit}",
        f"{min(result.scores):.3g} - {max(result.scores):.3g}",
        budget,
    ]


if __name__ == "__main__":
    sys.exit(main())
