"""From what a probe of the C core did to a capability with a reason and a remedy."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping

from cowlab._capability import Capability, Outcome, World

__all__ = ["Explain", "attempt", "native"]

Explain = Callable[[World, Outcome], tuple[str, str]]
"""(reason, remedy) of an outcome that is not yes."""

SECCOMP_REMEDY = (
    "a seccomp profile that allows it (docker run --security-opt seccomp=PROFILE)"
)


def attempt(world: World, name: str) -> Outcome:
    """Run the probe; one that cannot even be started is an outcome too."""
    try:
        return world.probe(name)
    except ImportError:
        return Outcome(None, step="cowlab's C core is not built for this interpreter")
    except OSError as error:
        return Outcome(None, error.errno or 0, step="start a child for the probe")


def native(
    world: World,
    name: str,
    explain: Mapping[int, Explain],
    *,
    source: str = "",
    value: object = None,
    outcome: Outcome | None = None,
) -> Capability:
    """The capability that a probe of the C core finds.

    ``explain`` maps an errno to the words for it; 0 is for what was done without an
    error and without effect.
    """
    outcome = outcome or attempt(world, name)
    source = source or outcome.step
    if outcome.available:
        return Capability(name, True, value, source=source)
    reason, remedy = _explanation(world, outcome, explain)
    return Capability(name, outcome.available, value, reason, remedy, source)


def _explanation(
    world: World, outcome: Outcome, explain: Mapping[int, Explain]
) -> tuple[str, str]:
    step = outcome.step
    if outcome.timed_out:
        return f"{step}: no answer in time, the probe was killed", ""
    if outcome.signal:
        ended_by = _signal_name(outcome.signal)
        if ended_by == "SIGSYS":
            return f"{step}: a seccomp filter kills for it", SECCOMP_REMEDY
        return f"{step}: {ended_by}", ""
    if outcome.errno == 0 and outcome.available is None:
        return step, ""
    if outcome.errno in explain:
        return explain[outcome.errno](world, outcome)
    if outcome.errno == 0:
        return f"{step}: no effect", ""
    reason = f"{step}: {os.strerror(outcome.errno)}"
    return reason, _general_remedy(world, outcome)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _general_remedy(world: World, outcome: Outcome) -> str:
    about_proc = "/proc/" in outcome.step
    refused = outcome.errno in (errno.EACCES, errno.EPERM)
    if refused and about_proc:
        if _not_dumpable(world):
            return (
                "this process has changed its user and is not dumpable: start it as"
                " that user, or prctl(PR_SET_DUMPABLE, 1)"
            )
        return "be the owner of the process, or have CAP_SYS_PTRACE"
    if outcome.errno == errno.ENOENT and about_proc:
        return "a newer kernel, or /proc mounted without restrictions"
    if refused or outcome.errno == errno.ENOSYS:
        return SECCOMP_REMEDY if world.seccomp() else "a newer kernel, or be root"
    return ""


def _not_dumpable(world: World) -> bool:
    """The kernel gives /proc/self of a process that is not dumpable to root."""
    try:
        return os.stat(world.path("/proc/self/maps")).st_uid != os.geteuid()
    except OSError:
        return False
