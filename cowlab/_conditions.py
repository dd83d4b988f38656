"""What stands in the way of preparing this process, looked up by doing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["CONDITIONS", "Condition", "Finding", "conditions"]

Action = Literal["refuse", "warn", "skip"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that can stand in the way.

    ``action``: "refuse" (nothing is done), "warn" (all is done, and the report says
    what to expect) or "skip" (the steps in ``steps`` are left out). ``why`` and
    ``remedy`` are one sentence each. ``probe`` gives what was found in this process, or
    None.
    """

    name: str
    action: Action
    why: str
    remedy: str
    probe: Callable[[], str | None]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that holds here. ``found`` is what was seen; ``str()`` is one
    line."""

    name: str
    action: Action
    found: str
    why: str
    remedy: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        left_out = f" ({', '.join(self.steps)} left out)" if self.steps else ""
        return f"{self.name}: {self.found}{left_out}; {self.why}; {self.remedy}"


def _free_threaded() -> str | None:
    return "a free-threaded build" if "t" in sys.abiflags else None


def _subinterpreter() -> str | None:
    from cowlab import _native

    return None if _native.is_main_interpreter() else "a subinterpreter"


def _debug_build() -> str | None:
    return "a debug build" if hasattr(sys, "gettotalrefcount") else None


def _no_immortality() -> str | None:
    if sys.version_info >= (3, 12):
        return None
    return f"CPython {sys.version_info[0]}.{sys.version_info[1]}"


def _allocator() -> str | None:
    from cowlab import _native

    if _free_threaded():
        return None  # it has its own allocator, and nobody chose it
    name = _native.allocator()
    if name in ("pymalloc", "pymalloc_debug"):
        return None if name == "pymalloc" else f"the {name} allocator"
    if name is None:
        # A hook (tracemalloc's) lies over the allocator; the environment still tells.
        asked = os.environ.get("PYTHONMALLOC", "")
        if not asked and sys.flags.dev_mode:
            return "development mode"
        return f"PYTHONMALLOC={asked}" if asked not in ("", "pymalloc") else None
    return f"the {name} allocator"


def _threads() -> str | None:
    idents = sys._current_frames()
    if len(idents) < 2:
        return None
    threading = sys.modules.get("threading")
    if threading is None:
        return f"{len(idents)} threads"
    here = threading.get_ident()
    names = [
        thread.name
        for thread in threading.enumerate()
        if thread.ident in idents and thread.ident != here
    ]
    others = len(idents) - 1
    listed = ", ".join(sorted(names)[:5])
    return f"{others} other thread{'s' * (others > 1)}" + (f": {listed}" * bool(names))


def _tracer() -> str | None:
    found = []
    if sys.gettrace() is not None:
        found.append("sys.settrace")
    if sys.getprofile() is not None:
        found.append("sys.setprofile")
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        for tool in range(6):
            name = monitoring.get_tool(tool)
            if name is not None and monitoring.get_events(tool):
                found.append(f"sys.monitoring tool {name!r}")
    return ", ".join(found) or None


def _tracemalloc() -> str | None:
    # Not `tracemalloc`: PYTHONTRACEMALLOC starts it without importing that.
    from _tracemalloc import is_tracing

    return "tracemalloc is tracing" if is_tracing() else None


def _descriptors() -> Iterator[tuple[int, str, os.stat_result]]:
    """Open descriptors beyond the standard streams: number, target, status."""
    for entry in os.listdir("/proc/self/fd"):
        descriptor = int(entry)
        if descriptor < 3:
            continue
        try:
            yield (
                descriptor,
                os.readlink(f"/proc/self/fd/{entry}"),
                os.fstat(descriptor),
            )
        except OSError:
            continue  # listdir's own descriptor, closed by now


def _connected_socket() -> str | None:
    found = []
    for descriptor, _, status in _descriptors():
        if not stat.S_ISSOCK(status.st_mode):
            continue
        import socket

        try:
            copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with copy:
            try:
                peer = copy.getpeername()
            except OSError:
                continue
            if copy.family == socket.AF_UNIX and not peer and not copy.getsockname():
                continue  # a socketpair, as event loops and arbiters use to wake up
            found.append(f"{descriptor} to {peer or copy.getsockname()!r}")
    return f"connected sockets: {', '.join(found[:5])}" if found else None


def _written_file() -> str | None:
    found = []
    for descriptor, path, status in _descriptors():
        if not stat.S_ISREG(status.st_mode) or path.startswith("/memfd:"):
            continue
        try:
            with open(f"/proc/self/fdinfo/{descriptor}", "rb") as info:
                text = info.read()
        except OSError:
            continue
        flags = next(
            (int(line[6:], 8) for line in text.splitlines() if line[:6] == b"flags:"), 0
        )
        if flags & os.O_ACCMODE != os.O_RDONLY:
            found.append(f"{descriptor} {path}")
    return f"files open for writing: {', '.join(found[:5])}" if found else None


def _huge_pages() -> str | None:
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return "transparent huge pages are `always`" if b"[always]" in text else None


CONDITIONS: tuple[Condition, ...] = (
    Condition(
        "free-threaded",
        "refuse",
        "its objects, heaps and garbage collector are laid out in another way",
        "use the default build of CPython",
        _free_threaded,
    ),
    Condition(
        "subinterpreter",
        "refuse",
        "it ends before the process does, and children do not go on with it",
        "prepare in the main interpreter",
        _subinterpreter,
    ),
    Condition(
        "debug-build",
        "skip",
        "it asserts on immortal strings and on sealed pools",
        "use a release build of CPython",
        _debug_build,
        ("trim", "fill", "immortalize", "seal"),
    ),
    Condition(
        "no-immortality",
        "skip",
        "objects can be immortal from CPython 3.12 on, so a read here writes a count",
        "use CPython 3.12 or later",
        _no_immortality,
        ("fill", "immortalize"),
    ),
    Condition(
        "allocator",
        "skip",
        "only pymalloc has pools that can be trimmed and sealed",
        "unset PYTHONMALLOC and PYTHONDEVMODE",
        _allocator,
        ("trim", "seal"),
    ),
    Condition(
        "threads",
        "warn",
        "they do not exist in a child, and what they hold locked stays locked there",
        "start threads after the fork",
        _threads,
    ),
    Condition(
        "tracer",
        "warn",
        "what it does at each line or call writes to memory that should stay shared",
        "remove it before measuring what preparation saves",
        _tracer,
    ),
    Condition(
        "tracemalloc",
        "warn",
        "its table of allocations is inherited and each child writes to it",
        "call tracemalloc.stop() before preparing",
        _tracemalloc,
    ),
    Condition(
        "connected-socket",
        "warn",
        "parent and children would share one connection",
        "connect after the fork, or close it before",
        _connected_socket,
    ),
    Condition(
        "written-file",
        "warn",
        "what is in its buffer can be written once by each process, or by none",
        "open it after the fork, or flush it before",
        _written_file,
    ),
    Condition(
        "huge-pages",
        "warn",
        "the kernel may join copied pages, and a join copies what is still shared",
        "set /sys/kernel/mm/transparent_hugepage/enabled to madvise",
        _huge_pages,
    ),
)
"""Every condition that preparation looks at, in the order of the report."""


def conditions() -> tuple[Finding, ...]:
    """The conditions that hold in this process now, each as a finding.

    Reads /proc/self and the interpreter's own state; changes nothing.
    """
    findings = []
    for condition in CONDITIONS:
        found = condition.probe()
        if found is not None:
            findings.append(
                Finding(
                    condition.name,
                    condition.action,
                    found,
                    condition.why,
                    condition.remedy,
                    condition.steps,
                )
            )
    return tuple(findings)
