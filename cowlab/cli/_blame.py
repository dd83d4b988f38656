"""``cowlab blame``: which line copied the pages, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cowlab._errors import UsageError
from cowlab.cli._long import check_writable

__all__ = ["command"]


@click.command()
@click.argument("target")
@click.option(
    "--preload",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import it before the fork; as often as wanted.",
)
@click.option(
    "--request", metavar="PATH", help="TARGET is a WSGI application; ask it for PATH."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How often the child does it.",
)
@click.option(
    "--warm",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="How often the parent does it first.",
)
@click.option(
    "--prepare",
    is_flag=True,
    help="Call prepare_fork() before the fork, to see what it leaves.",
)
@click.option(
    "--mode",
    type=click.Choice(["lines", "addresses", "protect", "pages"]),
    default="lines",
    show_default=True,
    help="What to record; protect needs no perf events, and is for tests only.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write the report to FILE as JSON; - is standard output, and what TARGET "
    "prints goes to standard error then.",
)
@click.option(
    "--html", metavar="FILE", help="Write the report to FILE, self-contained."
)
def command(
    target: str,
    modules: tuple[str, ...],
    request: str | None,
    repeat: int,
    warm: int,
    prepare: bool,
    mode: str,
    json_file: str | None,
    html: str | None,
) -> None:
    """Say which lines of TARGET copy inherited pages, and why.

    TARGET runs in a forked child. It is script.py, module:function, or
    module:application with --request. Its module is imported before the fork, as a
    preloading server does; a script's imports are in the child, unless they are
    preloaded.
    """
    from cowlab import measure, prepare_fork
    from cowlab._target import load_target, preload

    if json_file is not None and json_file == html:
        raise UsageError("--json and --html would both write the same file")
    for file in (json_file, html):
        if file not in (None, "-"):
            check_writable(str(file))
    preload(modules)
    task = load_target(target, request, repeat)
    for _ in range(warm):
        task()
    if prepare:
        prepare_fork()
    blame = measure(_aside(task) if json_file == "-" else task, record=mode).blame
    if html is not None:
        from cowlab.report._blame import as_page

        Path(html).write_text(as_page(blame, f"cowlab blame {target}"), "utf-8")
    if json_file is not None:
        text = json.dumps(blame.to_json(), indent=1)
        if json_file == "-":
            click.echo(text)
        else:
            Path(json_file).write_text(text + "\n", "utf-8")
    if html is None and json_file is None:
        click.echo(str(blame))


def _aside(task: Callable[[], Any]) -> Callable[[], Any]:
    """The task, with what it prints out of the way."""

    def aside() -> Any:
        os.dup2(2, 1)
        return task()

    return aside
