"""What this machine, this process and this interpreter allow, found out by doing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cowlab import _host_interpreter, _host_kernel, _host_privileges
from cowlab._capability import Capability, Probe, World

__all__ = ["GROUPS", "Capability", "Host", "host"]

SCHEMA = 1

GROUPS = {
    "kernel": "this kernel",
    "privileges": "this process's privileges",
    "interpreter": "this interpreter",
}

_PROBES: dict[str, Probe] = {
    probe.name: probe
    for module in (_host_kernel, _host_privileges, _host_interpreter)
    for probe in module.PROBES
}

# The fields of /proc/self/status that decide what a process may do.
_PRIVILEGES = ("Uid", "CapEff", "NoNewPrivs", "Seccomp", "Seccomp_filters")


class Host(Mapping[str, Capability]):
    """The capabilities by name: ``host["pagemap"]`` or ``host.pagemap``.

    Each is probed when it is first asked for, and then remembered. A probe of the
    kernel forks this process, runs for a millisecond in the child, and reaps it: ask
    before the measured part, not in it.
    """

    def __init__(self, world: World | None = None) -> None:
        self._world = world or World()
        self._found: dict[str, Capability] = {}

    def __getitem__(self, name: str) -> Capability:
        if name not in self._found:
            self._found[name] = _PROBES[name].run(self._world, name)
        return self._found[name]

    def __getattr__(self, name: str) -> Capability:
        if name not in _PROBES:
            raise AttributeError(f"there is no capability {name!r}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PROBES)

    def __len__(self) -> int:
        return len(_PROBES)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_PROBES})

    def group(self, name: str) -> str:
        """Which of GROUPS a capability belongs to."""
        return _PROBES[name].group

    def purpose(self, name: str) -> str:
        """What cowlab uses it for."""
        return _PROBES[name].purpose

    def without(self, name: str) -> str:
        """What cowlab does instead where it is missing."""
        return _PROBES[name].without

    def __contains__(self, name: object) -> bool:
        return name in _PROBES

    def to_json(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """All capabilities, or those named, as plain data with their group, purpose
        and fall-back."""
        return {
            "schema": SCHEMA,
            "capabilities": {
                name: {
                    "group": self.group(name),
                    **self[name].to_json(),
                    "purpose": self.purpose(name),
                    "without": self.without(name),
                }
                for name in (self if names is None else names)
            },
        }


_remembered: dict[tuple[str, ...], Host] = {}


def host(*, fresh: bool = False) -> Host:
    """What this machine allows: a mapping of names to :class:`Capability`.

    Found by doing each thing once in a short-lived child, not from versions or mode
    bits. What was found is remembered until this process's user, capabilities or
    seccomp filters change; ``fresh=True`` probes again, as after a change of a sysctl.
    Children inherit what their parent has found.

    >>> from cowlab import host
    >>> host().page_size.value in (4096, 16384, 65536)
    True
    """
    status = World().status()
    key = tuple(status.get(name, "") for name in _PRIVILEGES)
    if fresh or key not in _remembered:
        _remembered.clear()
        _remembered[key] = Host()
    return _remembered[key]
