"""``cowlab heap``: arenas, size classes, pins, and what a trim would return."""

from __future__ import annotations

import json

import click

from cowlab.cli._long import check_writable, draw

__all__ = ["command"]


@click.command()
@click.argument("pid", type=int, required=False)
@click.option(
    "--trim", "do_trim", is_flag=True, help="Trim this process, then show it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
@click.option("--plot", "to", metavar="FILE", help="Write a plot.")
def command(pid: int | None, do_trim: bool, as_json: bool, to: str | None) -> int:
    """pymalloc's arenas, of the process PID or of this one.

    How much of each is live, a picture of their pools, and what a trim would return.
    What pins an arena is known of this process only. Another process trims itself:
    cowlab.trim().
    """
    from cowlab._errors import UsageError
    from cowlab._pins import pins, reclaimable
    from cowlab._pools import scan

    if pid is not None and pid <= 0:
        raise UsageError(f"PID must be positive, not {pid}")
    if to is not None:
        check_writable(to)
    if do_trim:
        if pid is not None:
            raise UsageError("A process trims itself only: call cowlab.trim() in it")
        from cowlab._trim import trim

        done = trim()
        click.echo(f"returned {done.bytes / (1 << 20):.1f} MiB in {done.seconds:.3f} s")
    heap = scan(pid, blocks=True)
    if to is not None:
        from cowlab.report._heap import plot

        draw(plot(heap), to)
    if as_json:
        report = {
            "schema": 1,
            "pid": pid,
            "reclaimable": reclaimable(heap),
            "arenas": [row._asdict() for row in heap.arenas],
            "size_classes": [row._asdict() for row in heap.pools.by_size_class()],
        }
        click.echo(json.dumps(report, indent=2))
    else:
        from cowlab.report._console import console
        from cowlab.report._heap import print_heap

        found = pins(0.5) if pid is None else []
        print_heap(heap, console(), reclaimable(heap), found)
    return 0
