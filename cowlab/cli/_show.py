"""``cowlab show``: a saved result, as when it was measured."""

from __future__ import annotations

import click

from cowlab._result import Comparison, load_result

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
        _draw(result.plot(metric), plot)
        return
    from cowlab.report._console import console
    from cowlab.report._text import render

    results = result.results if isinstance(result, Comparison) else (result,)
    render(results, console())


def _draw(figure: object, path: str) -> None:
    from cowlab._errors import UsageError

    try:
        figure.savefig(path)  # type: ignore[attr-defined]
    except ValueError as error:  # an ending that is no image's
        raise UsageError(f"cannot draw {path}: {error}") from None
