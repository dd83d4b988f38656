"""``cowlab trial``: each remedy on one's own program."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cowlab._errors import UsageError
from cowlab._result import save_text
from cowlab._trial import SERVERS, trial
from cowlab._trial_report import ARMS
from cowlab._web import Request
from cowlab.cli._long import Bar, check_writable

__all__ = ["command"]


@click.command()
@click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Import it before the fork; repeatable.",
)
@click.option(
    "--exercise", metavar="MODULE:FUNCTION", help="The work is to call this function."
)
@click.option("--wsgi", metavar="MODULE:APP", help="The work is to ask this app.")
@click.option("--asgi", metavar="MODULE:APP", help="The same, for ASGI.")
@click.option(
    "--request",
    "targets",
    multiple=True,
    metavar="PATH",
    help="What to ask the app for, with its query; repeatable. @FILE has one a line.",
)
@click.option("--method", default="GET", show_default=True, metavar="NAME")
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Repeatable."
)
@click.option("--body", metavar="TEXT", help="Of each request; @FILE reads a file.")
@click.option(
    "--workers", type=int, default=4, show_default=True, metavar="N", help="To fork."
)
@click.option(
    "--work",
    type=int,
    default=400,
    show_default=True,
    metavar="K",
    help="Units of work in all, the same in each arm.",
)
@click.option(
    "--repeat",
    type=int,
    default=3,
    show_default=True,
    metavar="N",
    help="Samples of each arm.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="ARM",
    help=f"Only plain and this one; repeatable. {', '.join(ARMS)}.",
)
@click.option(
    "--warm",
    type=int,
    default=0,
    metavar="N",
    help="prepare: the master does N units of the work before it forks.",
)
@click.option(
    "--no-compare", is_flag=True, help="Do not compare the results of the arms."
)
@click.option("--blame", is_flag=True, help="Record which lines copied most.")
@click.option(
    "--server", metavar="NAME", help=f"Whose lines to show: {', '.join(SERVERS)}."
)
@click.option(
    "--timeout",
    type=float,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="For the work of one sample.",
)
@click.option(
    "--json", "json_file", metavar="FILE", help="Save all of it; - is stdout."
)
def command(
    preload: tuple[str, ...],
    exercise: str | None,
    wsgi: str | None,
    asgi: str | None,
    targets: tuple[str, ...],
    method: str,
    headers: tuple[str, ...],
    body: str | None,
    workers: int,
    work: int,
    repeat: int,
    arms: tuple[str, ...],
    warm: int,
    no_compare: bool,
    blame: bool,
    server: str | None,
    timeout: float,
    json_file: str | None,
) -> int:
    """Try each remedy on a program of your own, and say what it saves and costs.

    Each sample is a fresh interpreter that imports the modules, applies a remedy, forks
    the workers, and has them do the same work. No server and no network is needed:

    \b
    cowlab trial --wsgi shop.wsgi:application --request / --request /items?page=2
    cowlab trial --preload tables --exercise tables:lookup --workers 8 --work 1000
    """
    if json_file not in (None, "-"):
        check_writable(str(json_file))
    fields = dict(_header(_text("--header", text)) for text in headers)
    content = _body(body)
    paths = [path for target in targets for path in _paths(target)]
    requests = [Request(path, method.upper(), fields, content) for path in paths]
    with Bar() as bar:
        report = trial(
            preload,
            exercise=exercise,
            wsgi=wsgi,
            asgi=asgi,
            requests=requests,
            workers=workers,
            work=work,
            repeat=repeat,
            arms=arms,
            warm=warm,
            compare=not no_compare,
            blame=blame,
            server=server,
            timeout=timeout,
            progress=bar.progress,
        )
    data = json.dumps(report.to_json(), indent=1) + "\n" if json_file else ""
    if json_file == "-":
        click.echo(data, nl=False)
    else:
        if json_file is not None:
            save_text(json_file, data)
        from cowlab.report._console import console
        from cowlab.report._trial import render

        render(report, console())
    if report.interrupted:
        return 130
    return 1 if report.failed else 0


def _text(option: str, given: str) -> str:
    """What was typed, also where the locale is none (C) and made bytes of it."""
    try:
        return given.encode("utf-8", "surrogateescape").decode()
    except UnicodeDecodeError:
        raise UsageError(f"{option} {given!a} is not UTF-8") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        raise UsageError(f"--header {text!r} is not of the form 'Name: value'")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise UsageError(f"--header {text!r} has characters beyond latin-1") from None
    return name.strip(), value.strip()


def _paths(text: str) -> list[str]:
    if not text.startswith("@"):
        return [_text("--request", text)]
    try:
        lines = _read(text[1:]).decode().splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{text[1:]} is not text in UTF-8: {error}") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise UsageError(f"there is no path in {text[1:]}")
    return found


def _body(text: str | None) -> bytes:
    if text is None:
        return b""
    if text.startswith("@"):
        return _read(text[1:])
    return text.encode("utf-8", "surrogateescape")


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from None
