"""``cowlab show``: a saved result, as when it was measured."""

from __future__ import annotations

import click

from cowlab._result import Comparison, load_result
from cowlab.cli._long import check_writable, draw

__all__ = ["command"]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--plot", metavar="IMAGE", help="Draw it: a file such as out.png or .svg."
)
@click.option("--metric", metavar="NAME", help="What to draw, if not the first column.")
def command(file: str, plot: str | None, metric: str | None) -> None:
    """Show the result in FILE, which `cowlab run NAME --json FILE` wrote."""
    result = load_result(file)
    if plot is not None:
        check_writable(plot)
        draw(result.plot(metric), plot)
        return
    from cowlab.report._console import console
    from cowlab.report._text import render

    results = result.results if isinstance(result, Comparison) else (result,)
    render(results, console())
