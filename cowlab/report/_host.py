"""What a machine allows, as tables for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cowlab._capability import Capability
from cowlab._host import GROUPS, Host
from cowlab.report._console import print_indented

__all__ = ["print_host", "value_text"]

ANSWERS = {True: ("yes", "green"), False: ("no", "red"), None: ("?", "yellow")}


def print_host(host: Host, out: Console, names: Iterable[str] | None = None) -> None:
    """The capabilities, grouped, then what each missing one costs."""
    chosen = [name for name in host if names is None or name in set(names)]
    for group, title in GROUPS.items():
        rows = [host[name] for name in chosen if host.group(name) == group]
        if rows:
            out.print(_table(title, rows, host))
            out.print()
    missing = [name for name in chosen if not host[name] and host.without(name)]
    if not missing:
        return
    out.print(Text("Without them, cowlab does this:", style="bold"))
    width = max(map(len, missing))
    for name in missing:
        line = Text(f"  {name:{width}}  {host.without(name)}")
        print_indented(out, line, width + 4)


def _table(title: str, rows: list[Capability], host: Host) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=False,
    )
    table.add_column("capability", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    table.add_column(
        "what was found, or what it is for; why not, and what would enable it"
    )
    for capability in rows:
        word, style = ANSWERS[capability.available]
        words = _words(capability) or Text(host.purpose(capability.name), "dim")
        table.add_row(capability.name, Text(word, style), words)
    return table


def _words(capability: Capability) -> Text:
    parts = [value_text(capability), capability.reason]
    if capability.remedy:
        parts.append(f"to enable it: {capability.remedy}")
    return Text("; ".join(part for part in parts if part))


def size(value: int | None) -> str:
    """Bytes as a person reads them, in the largest unit that they fill.

    >>> size(4096), size(2 << 20), size(3 << 29), size(None)
    ('4 KiB', '2 MiB', '1.5 GiB', 'no limit')
    """
    if value is None:
        return "no limit"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{value} bytes"


def _thp(value: dict[str, Any]) -> str:
    if value["setting"] is None:
        return ""
    return f"{value['setting']}, defrag {value['defrag']}, {size(value['size'])}"


def _ksmd(value: dict[str, Any]) -> str:
    return {0: "stopped", 1: "running", 2: "stopped, merged pages undone"}.get(
        value["run"], f"run is {value['run']}"
    )


def _cgroup(value: dict[str, Any]) -> str:
    if value["version"] is None:
        return ""
    limit = "no limit" if value["limit"] is None else f"limit {size(value['limit'])}"
    high = "" if value["high"] is None else f", high {size(value['high'])}"
    return f"version {value['version']}, {size(value['usage'])} in use, {limit}{high}"


def _swap(value: dict[str, Any]) -> str:
    if not value["total"]:
        return ""
    return f"{size(value['total'])}, {size(value['free'])} free"


def _privileges(value: dict[str, Any]) -> str:
    words = [f"user {value['euid']}"]
    if value["user_namespace"]:
        words.append("in a user namespace")
    words.append(
        "CAP_" + ", CAP_".join(value["capabilities"])
        if value["capabilities"]
        else "none of the capabilities that matter here"
    )
    words.append(
        "no seccomp filter" if value["seccomp"] == "none" else "under a seccomp filter"
    )
    if value["no_new_privs"]:
        words.append("no new privileges")
    return ", ".join(words)


def _gil(value: dict[str, Any]) -> str:
    build = "free-threaded build, " if value["free_threaded_build"] else ""
    return build + ("on" if value["enabled"] else "off")


_TEXTS: dict[str, Callable[[Any], str]] = {
    "page_size": size,
    "copy_unit": size,
    "thp": _thp,
    "ksmd": _ksmd,
    "cgroup": _cgroup,
    "swap": _swap,
    "overcommit": lambda value: f"{value['mode']}, {value['meaning']}",
    "privileges": _privileges,
    "gil": _gil,
    "immortality": lambda value: f"None counts {value['count_of_none']:,}",
    "image": lambda value: f"{value['kind']} ({value['file']})",
}


def value_text(capability: Capability) -> str:
    """A capability's value in a few words; "" where it has none."""
    if capability.value is None:
        return ""
    return _TEXTS.get(capability.name, str)(capability.value)
