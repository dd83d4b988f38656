"""Arenas, size classes and pins, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cowlab._errors import needs
from cowlab._pins import Pin
from cowlab._pools import Heap
from cowlab.report._format import figure

__all__ = ["picture", "plot", "print_heap"]

SHADES = " .:-=+*#%@"
"""A pool that nobody uses or used, then from nearly empty to full."""

SHOWN = 24


def _shade(used: int, capacity: int) -> str:
    if used == 0 or capacity == 0:
        return SHADES[0]
    steps = len(SHADES) - 1
    return SHADES[1 + min(used * steps // capacity, steps - 1)]


def picture(heap: Heap, most: int | None = SHOWN) -> list[str]:
    """A line an arena, a cell a pool, shaded by how full it is; the emptiest first."""
    cells: dict[int, list[str]] = {}
    for arena in heap.arenas:
        cells[arena.address] = [SHADES[0]] * arena.pools
    for pool in heap.pools:
        row = cells[pool.arena]
        first = (pool.arena + 16383) & ~16383
        row[(pool.address - first) // 16384] = _shade(pool.used, pool.capacity)
    order = sorted(heap.arenas, key=lambda arena: arena.live)
    return [
        f"{arena.address:#x} {arena.live / arena.size:4.0%} "
        f"|{''.join(cells[arena.address])}|"
        for arena in order[:most]
    ]


def plot(heap: Heap) -> Any:
    """The same as a matplotlib figure: arenas down, pools across, full ones dark."""
    with needs("A plot", "'cowlab[plots]'"):
        from matplotlib.figure import Figure

    order = sorted(heap.arenas, key=lambda arena: arena.live)
    lines = {arena.address: i for i, arena in enumerate(order)}
    grid = [[0.0] * max(a.pools for a in order) for _ in order]
    for pool in heap.pools:
        first = (pool.arena + 16383) & ~16383
        column = (pool.address - first) // 16384
        grid[lines[pool.arena]][column] = pool.used / max(pool.capacity, 1)
    drawn = Figure(figsize=(8, max(2.0, len(order) / 12)))
    axes = drawn.subplots()
    image = axes.imshow(grid, aspect="auto", cmap="Greys", vmin=0, vmax=1)
    axes.set_xlabel("pool of 16 KiB")
    axes.set_ylabel("arena, the emptiest first")
    drawn.colorbar(image, label="share of its blocks in use")
    return drawn


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table below its title, which may be wider than it is."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return Group(Text(title, "bold"), table)


def print_heap(
    heap: Heap, out: Console, reclaimable: int, pins: Sequence[Pin] = ()
) -> None:
    """Totals, size classes, the picture, what pins, and what a trim would return."""
    totals = [
        (name, figure(sum(getattr(arena, name) for arena in heap.arenas), "MiB"))
        for name in ("size", "live", "free", "retired", "overhead", "resident")
    ]
    title = f"{len(heap.arenas):,} arenas, {len(heap.pools):,} pools"
    out.print(_table(title, ("", "MiB"), totals))
    out.print()
    columns = (
        "block",
        "pools",
        "used",
        "free",
        "never used",
        "retired",
        "MiB resident",
    )
    rows = [
        (
            str(c.block_size),
            *(f"{n:,}" for n in (c.pools, c.used, c.free, c.virgin, c.retired)),
            figure(c.resident, "MiB"),
        )
        for c in heap.pools.by_size_class()
    ]
    out.print(_table("Size classes (blocks)", columns, rows))
    out.print()
    out.print(
        Text(f"Arenas, live share, pools from empty to full |{SHADES[1:]}|", "bold")
    )
    for line in picture(heap):
        out.print(Text(line, no_wrap=True, overflow="crop"))
    if len(heap.arenas) > SHOWN:
        out.print(Text(f"and {len(heap.arenas) - SHOWN:,} fuller ones"))
    if pins:
        out.print()
        lines = [
            (
                f"{pin.address:#x}",
                f"{pin.share:.0%}",
                ", ".join(f"{n:,} {name}" for name, n in pin.survivors[:4]),
                f"{pin.buffers:,}",
            )
            for pin in pins[:SHOWN]
        ]
        headings = ("arena", "live", "survivors", "other blocks")
        out.print(_table("What pins the emptiest arenas", headings, lines))
    out.print()
    out.print(f"A trim would return {figure(reclaimable, 'MiB')} MiB.")
