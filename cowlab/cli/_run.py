"""``cowlab run``: an experiment on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator

import click

from cowlab._errors import UsageError
from cowlab._result import Comparison, Result, save_text
from cowlab._runner import run
from cowlab.cli._long import Bar, check_writable

__all__ = ["command"]


@click.command()
@click.argument("name")
@click.option("--repeat", type=int, help="Samples of each arm.", metavar="N")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter, such as rows=100000; see `cowlab list NAME`.",
)
@click.option("--arm", "arms", multiple=True, help="Only this arm; repeatable.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="Run under this interpreter; repeat it to compare several.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="For one sample.")
@click.option(
    "--json", "json_file", metavar="FILE", help="Save all of it; - is stdout."
)
@click.option(
    "--csv", "csv_file", metavar="FILE", help="Save the samples; - is stdout."
)
def command(
    name: str,
    repeat: int | None,
    settings: tuple[str, ...],
    arms: tuple[str, ...],
    pythons: tuple[str, ...],
    timeout: float | None,
    json_file: str | None,
    csv_file: str | None,
) -> int:
    """Run the experiment NAME (`cowlab list` has them all) and judge its claims."""
    if json_file is not None and json_file == csv_file:
        raise UsageError("--json and --csv would both write the same file")
    for file in (json_file, csv_file):
        if file not in (None, "-"):
            check_writable(str(file))
    with _taking_the_arm_along(), Bar() as bar:
        result = run(
            name,
            repeat=repeat,
            parameters=_parse(settings),
            arms=arms,
            pythons=pythons,
            timeout=timeout,
            progress=bar.progress,
        )
    _deliver(result, json_file, csv_file)
    if result.interrupted:
        return 130
    return 1 if result.failed else 0


@contextlib.contextmanager
def _taking_the_arm_along() -> Iterator[None]:
    """A signal that ends this program ends the arm too, which has its own session."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    ours = [n for n, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:  # not those that nohup, say, has us ignore
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _parse(settings: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting!r} is not of the form KEY=VALUE")
        values[key.strip()] = value
    return values


def _deliver(
    result: Result | Comparison, json_file: str | None, csv_file: str | None
) -> None:
    """To the files first, so that a broken pipe loses none of it."""
    texts = []
    if json_file is not None:
        texts.append((json_file, json.dumps(result.to_json(), indent=1) + "\n"))
    if csv_file is not None:
        texts.append((csv_file, result.to_csv()))
    for file, text in texts:
        if file != "-":
            save_text(file, text)
    results = result.results if isinstance(result, Comparison) else (result,)
    to_stdout = [text for file, text in texts if file == "-"]
    if to_stdout:
        click.echo(to_stdout[0], nl=False)
        for failure in (f for r in results for f in r.failures):
            click.echo(f"{failure.arm} {failure.kind}: {failure.why}", err=True)
        return
    from cowlab.report._console import console
    from cowlab.report._text import render

    render(results, console())
