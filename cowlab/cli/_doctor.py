"""``cowlab doctor``: what this machine allows, and what would enable the rest."""

from __future__ import annotations

import json

import click

__all__ = ["command"]


@click.command()
@click.argument("names", nargs=-1, metavar="[CAPABILITY]...")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(names: tuple[str, ...], as_json: bool) -> int:
    """What this machine, this process and this interpreter allow.

    Each thing is tried in a short-lived child: yes, or no with the reason and what
    would enable it. Nothing is changed. With CAPABILITY only that is tried, and the
    exit code is 1 if it is missing.
    """
    from cowlab._errors import UsageError
    from cowlab._host import Host
    from cowlab._suggest import suggest

    host = Host()
    for name in names:
        if name not in host:
            raise UsageError(
                f"There is no capability {name!r}. {suggest(name, tuple(host))}"
            )
    if as_json:
        report = host.to_json(names or None)
        click.echo(json.dumps(report, indent=2))
    else:
        from cowlab.report._console import console
        from cowlab.report._host import print_host

        print_host(host, console(), names or None)
    return int(not all(host[name] for name in names))
