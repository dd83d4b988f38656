"""One thing that a machine allows or not, and where the probes look for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from cowlab._errors import Unsupported

__all__ = ["Capability", "Outcome", "Probe", "World"]


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that this machine allows, or not, with the reason.

    ``available`` is None where it cannot be told here. ``value`` is what was found (a
    number of bytes, a setting, a version), plain data. ``reason`` says why not, and
    ``remedy`` what would enable it; both are "" where there is nothing to say.
    ``source`` is how it was found out. True in a condition only if available.
    """

    name: str
    available: bool | None
    value: Any = None
    reason: str = ""
    remedy: str = ""
    source: str = ""

    def __bool__(self) -> bool:
        return self.available is True

    def __str__(self) -> str:
        """``NAME: no: REASON (to enable it: REMEDY)``, one line: a reason to skip."""
        word = {True: "yes", False: "no", None: "not to be told"}[self.available]
        parts = [f"{self.name}: {word}"]
        if self.reason:
            parts.append(f": {self.reason}")
        if self.remedy:
            parts.append(f" (to enable it: {self.remedy})")
        return "".join(parts)

    def require(self) -> None:
        """Raise :class:`cowlab.Unsupported` with the reason unless it is available."""
        if not self:
            raise Unsupported(str(self))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class Outcome(NamedTuple):
    """What a probe of the C core did: see ``cowlab._native.probe``."""

    available: bool | None
    errno: int = 0
    signal: int = 0
    timed_out: bool = False
    value: int = 0
    detail: int = 0
    step: str = ""


def _native_probe(name: str) -> Outcome:
    from cowlab import _native

    return Outcome(*_native.probe(name))


@dataclass(frozen=True, slots=True)
class World:
    """Where the probes look: this machine, unless a test puts another in its place."""

    proc: str = "/proc"
    sys: str = "/sys"
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    probe: Callable[[str], Outcome] = _native_probe

    def read(self, path: str) -> str:
        """The text of a file below ``/proc`` or ``/sys``; OSError as it comes."""
        with open(self.path(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def path(self, path: str) -> str:
        """Where ``/proc/...`` or ``/sys/...`` lies in this world."""
        for name, root in (("/proc", self.proc), ("/sys", self.sys)):
            if path == name or path.startswith(f"{name}/"):
                return root + path[len(name) :]
        return path

    def number(self, path: str) -> int | None:
        """The number in a file; None where there is none to be read."""
        try:
            return int(self.read(path))
        except (OSError, ValueError):
            return None

    def status(self) -> dict[str, str]:
        """The fields of /proc/self/status; empty where it cannot be read."""
        try:
            lines = self.read("/proc/self/status").splitlines()
        except OSError:
            return {}
        pairs = (line.partition(":") for line in lines)
        return {name: value.strip() for name, _, value in pairs}

    def seccomp(self) -> bool:
        """Whether a seccomp filter stands between this process and the kernel."""
        return self.status().get("Seccomp", "0") != "0"


@dataclass(frozen=True, slots=True)
class Probe:
    """How one capability is found out, what cowlab uses it for, and does without it."""

    name: str
    group: str
    purpose: str
    without: str
    run: Callable[[World, str], Capability]
