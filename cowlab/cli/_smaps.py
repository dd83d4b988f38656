"""``cowlab smaps``: where a process's memory is, and what two processes share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from cowlab._errors import UsageError

if TYPE_CHECKING:
    from cowlab._memory import MemoryReport, SharedReport

__all__ = ["command"]


@click.command()
@click.argument("pids", nargs=-1, metavar="[PID [PID]]")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the N largest rows; 0 shows all.",
)
def command(pids: tuple[str, ...], as_json: bool, limit: int) -> None:
    """Where the memory of process PID is: by kind and by file, the largest first.

    With two PIDs: what they share. Without any: this command itself.
    """
    from cowlab._memory import memory, shared_memory

    if len(pids) > 2:
        raise UsageError(f"one process or two, not {len(pids)}")
    numbers = [_pid(text) for text in pids]
    if len(numbers) == 2:
        if numbers[0] == numbers[1]:
            raise UsageError(f"{numbers[0]} twice: give two different processes")
        both = shared_memory(*numbers)
        if as_json:
            _print_json(both)
        else:
            from cowlab.report._console import console
            from cowlab.report._smaps import print_shared

            print_shared(both, console(), limit)
        return
    report = memory(numbers[0] if numbers else None)
    if as_json:
        _print_json(report)
    else:
        from cowlab.report._console import console
        from cowlab.report._smaps import print_memory

        print_memory(report, console(), limit)


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) == 0:
        raise UsageError(
            f"{text!r} is no process number: it is a positive integer, as pgrep prints"
        )
    return int(text[:20])


def _print_json(report: MemoryReport | SharedReport) -> None:
    click.echo(json.dumps(report.to_json(), indent=2))
