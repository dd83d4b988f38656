"""``cowlab show``: a saved result, as when it was measured."""

from __future__ import annotations

import click

from cowlab._result import Comparison, load_result

__all__ = ["command"]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def command(file: str) -> None:
    """Show the result in FILE, which `cowlab run NAME --json FILE` wrote."""
    from cowlab.report._console import console
    from cowlab.report._text import render

    result = load_result(file)
    results = result.results if isinstance(result, Comparison) else (result,)
    render(results, console())
