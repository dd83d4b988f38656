"""``cowlab list``: the experiments, and the claims they answer."""

from __future__ import annotations

import click

from cowlab._experiment import load, names

__all__ = ["command"]


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """The experiments; with NAME that one's claims, arms and parameters."""
    from rich.table import Table
    from rich.text import Text

    from cowlab.report._console import console

    out = console()
    if name is not None:
        _describe(name)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("experiment", overflow="fold")
    table.add_column("claims", overflow="fold")
    table.add_column("what it shows", overflow="fold")
    for known in names():
        experiment = load(known)
        claims = " ".join(claim.id for claim in experiment.claims)
        table.add_row(Text(known), Text(claims), Text(experiment.title))
    out.print(table)
    out.print(Text("cowlab list NAME tells more, cowlab run NAME runs it.", "dim"))


def _describe(name: str) -> None:
    from rich.text import Text

    from cowlab.report._console import console, print_indented

    experiment = load(name)
    out = console()
    out.print(Text(f"{experiment.name}: {experiment.title}", style="bold"))

    def section(title: str, lines: list[tuple[str, str]]) -> None:
        if lines:
            out.print(Text(title, style="bold"))
        width = max((len(head) for head, _ in lines), default=0)
        for head, text in lines:
            line = Text(f"  {head:{width}}  {text}".rstrip())
            print_indented(out, line, width + 4)

    section("claims", [(c.id, f"{c.origin}: {c.text}") for c in experiment.claims])
    section("arms", [(arm.name, arm.about) for arm in experiment.arms])
    settings = []
    for key, parameter in experiment.parameters.items():
        choices = f" ({', '.join(parameter.choices)})" if parameter.choices else ""
        settings.append((f"{key}={parameter.default}", parameter.about + choices))
    section("parameters (--set)", settings)
    section("columns", [(c.title, c.about) for c in experiment.columns if c.about])
