"""What this process may do: perf events, userfaultfd, other processes' memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping

from cowlab._capability import Capability, Outcome, Probe, World
from cowlab._host_explain import SECCOMP_REMEDY, Explain, attempt, native

__all__ = ["PROBES", "perf_refusal"]

PARANOID = "/proc/sys/kernel/perf_event_paranoid"
YAMA = "/proc/sys/kernel/yama/ptrace_scope"

CAPABILITIES = {
    19: "SYS_PTRACE",
    21: "SYS_ADMIN",
    24: "SYS_RESOURCE",
    38: "PERFMON",
    40: "CHECKPOINT_RESTORE",
}
"""The bits of CapEff that a capability here depends on."""

FIRST_NAMESPACE = ["0", "0", "4294967295"]
"""uid_map outside of all user namespaces; it is empty in one without a mapping."""

UFFD_WAYS = {
    1: "faults of user and kernel",
    2: "faults of user only",
    3: "faults of user and kernel, through /dev/userfaultfd",
}


def _privileges(world: World, name: str) -> Capability:
    status = world.status()
    source = "/proc/self/status, /proc/self/uid_map"
    if not status:
        return Capability(
            name, None, None, "/proc/self/status cannot be read", "mount /proc", source
        )
    try:
        uid_map = world.read("/proc/self/uid_map").split()
    except OSError:
        uid_map = FIRST_NAMESPACE
    effective = int(status.get("CapEff", "0"), 16)
    value = {
        "euid": os.geteuid(),
        "capabilities": [
            word for bit, word in CAPABILITIES.items() if effective >> bit & 1
        ],
        "seccomp": {"0": "none", "1": "strict", "2": "filter"}.get(
            status.get("Seccomp", ""), "not told"
        ),
        "no_new_privs": status.get("NoNewPrivs") == "1",
        "user_namespace": uid_map != FIRST_NAMESPACE,
    }
    return Capability(name, True, value, source=source)


def _frame_numbers(world: World, outcome: Outcome) -> tuple[str, str]:
    return (
        "the kernel shows 0 for every frame number",
        "CAP_SYS_ADMIN, outside of a user namespace",
    )


def _refused_perf(allowed: int) -> Explain:
    """EACCES or EPERM; without privileges perf_event_open wants a level of at most
    ``allowed``."""

    def explain(world: World, outcome: Outcome) -> tuple[str, str]:
        reason = f"{outcome.step}: {os.strerror(outcome.errno)}"
        if "mmap" in outcome.step:
            return (
                f"{reason}: this user's perf rings have used up"
                " kernel.perf_event_mlock_kb",
                "close other recorders, or raise kernel.perf_event_mlock_kb",
            )
        # Upstream the level is answered with EACCES, by a distribution's patch perhaps
        # with EPERM; a filter usually says EPERM. Both can stand in the way.
        filtered = world.seccomp() and outcome.errno == errno.EPERM
        level = world.number(PARANOID)
        forbidden = level is not None and level > allowed
        whys, remedies = [], []
        if filtered:
            whys.append("a seccomp filter refuses it")
            remedies.append(f"docker run --cap-add PERFMON, or {SECCOMP_REMEDY}")
        if forbidden:
            whys.append(f"kernel.perf_event_paranoid is {level}")
            remedies.append(
                f"sysctl kernel.perf_event_paranoid={allowed}, as root, or CAP_PERFMON"
            )
        if not whys:
            whys, remedies = ["a security module refuses it"], ["CAP_PERFMON"]
        return f"{reason}: {', and '.join(whys)}", "; and ".join(remedies)

    return explain


def perf_refusal(number: int) -> tuple[str, str]:
    """Why perf_event_open has just failed with EACCES or EPERM in this process, and
    what would allow it. Nothing is probed: it can be asked while measuring."""
    outcome = Outcome(False, number, step="perf_event_open")
    return _refused_perf(2)(World(), outcome)


def _no_perf(world: World, outcome: Outcome) -> tuple[str, str]:
    reason = f"{outcome.step}: {os.strerror(outcome.errno)}"
    if world.seccomp():
        return f"{reason}: a seccomp filter hides it", SECCOMP_REMEDY
    return (
        f"{reason}: this kernel has no perf events",
        "a kernel with CONFIG_PERF_EVENTS=y",
    )


def _old_sigtrap(world: World, outcome: Outcome) -> tuple[str, str]:
    return f"{outcome.step}: {os.strerror(outcome.errno)}", "Linux 5.13 or later"


def _perf(allowed: int) -> dict[int, Explain]:
    refused = _refused_perf(allowed)
    return {
        errno.EACCES: refused,
        errno.EPERM: refused,
        errno.ENOSYS: _no_perf,
        errno.ENOENT: _no_perf,
        errno.EOPNOTSUPP: _no_perf,
    }


def _refused_userfaultfd(world: World, outcome: Outcome) -> tuple[str, str]:
    reason = f"{outcome.step}: {os.strerror(outcome.errno)}"
    if world.seccomp():
        return f"{reason}: a seccomp filter refuses it", SECCOMP_REMEDY
    return (
        reason,
        "Linux 5.11 or later, or sysctl vm.unprivileged_userfaultfd=1, as root",
    )


def _userfaultfd(since: str) -> Callable[[World, str], Capability]:
    def old(world: World, outcome: Outcome) -> tuple[str, str]:
        return (
            f"{outcome.step}: {os.strerror(outcome.errno)}",
            f"Linux {since} or later with CONFIG_USERFAULTFD=y, on x86-64 or aarch64",
        )

    def run(world: World, name: str) -> Capability:
        outcome = attempt(world, name)
        value = UFFD_WAYS.get(outcome.detail) if outcome.available else None
        explain = {
            errno.EPERM: _refused_userfaultfd,
            errno.EACCES: _refused_userfaultfd,
            errno.EINVAL: old,
        }
        return native(world, name, explain, value=value, outcome=outcome)

    return run


def _refused_memory(world: World, outcome: Outcome) -> tuple[str, str]:
    reason = f"{outcome.step}: {os.strerror(outcome.errno)}"
    scope = world.number(YAMA)
    if scope is not None and scope >= 2:
        return (
            f"{reason}, kernel.yama.ptrace_scope is {scope}",
            "CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=1, as root",
        )
    if world.seccomp() and "/proc/" not in outcome.step:
        return f"{reason}: a seccomp filter refuses it", SECCOMP_REMEDY
    return reason, "be the owner of the process, or have CAP_SYS_PTRACE"


_MEMORY: dict[int, Explain] = {
    errno.EPERM: _refused_memory,
    errno.EACCES: _refused_memory,
}


def _cgroup_limit(world: World, name: str) -> Capability:
    """Whether a child group could be made. None is made: the tree is not ours."""
    from cowlab._host_kernel import _cgroup

    source = "access(2) to the directory; nothing is made"
    group = _cgroup(world, "cgroup")
    if not group:
        return Capability(name, False, None, group.reason, group.remedy, source)
    path = group.value["path"]
    if os.access(world.path(path), os.W_OK | os.X_OK):
        return Capability(name, True, None, source=source)
    return Capability(
        name,
        False,
        None,
        "this process may not write to its cgroup's directory",
        "run it as root, or in a delegated group (systemd-run --user --scope"
        " -p Delegate=yes)",
        source,
    )


def _by_native(
    explain: Mapping[int, Explain] | None = None, source: str = ""
) -> Callable[[World, str], Capability]:
    def run(world: World, name: str) -> Capability:
        return native(world, name, explain or {}, source=source)

    return run


PROBES = (
    Probe(
        "privileges",
        "privileges",
        "What the answers below depend on.",
        "",
        _privileges,
    ),
    Probe(
        "frame_numbers",
        "privileges",
        "Which physical page an address has: kpagecount and kpageflags.",
        "kpagecount() and kpageflags() raise Unreadable; nothing else needs it",
        _by_native({0: _frame_numbers}, "a page's entry read in a child"),
    ),
    Probe(
        "perf_fault_address",
        "privileges",
        "Recording the address of every copied page, from outside, at 1.4 x its cost.",
        'record("addresses") raises Unsupported; "protect" has lines, by mprotect;'
        ' "pages" has the number of pages only',
        _by_native(_perf(2), "a copied page's address read from the ring in a child"),
    ),
    Probe(
        "perf_sigtrap",
        "privileges",
        "record(): stopping at every copied page, where the Python line is known.",
        'record("lines") raises Unsupported; "protect" has lines too, at a greater cost'
        ' and with system calls that fail; "pages" has the number of pages only',
        _by_native(
            {**_perf(2), errno.EINVAL: _old_sigtrap, errno.E2BIG: _old_sigtrap},
            "SIGTRAP taken with a copied page's address in a child",
        ),
    ),
    Probe(
        "perf_kernel_writes",
        "privileges",
        "Recording pages that system calls copy (read(2) into an inherited buffer).",
        'blame puts such pages under "unrecorded"',
        _by_native(_perf(1), "read(2) into a shared page recorded in a child"),
    ),
    Probe(
        "userfaultfd",
        "privileges",
        "Being told of a write before it happens.",
        "nothing: perf events and mprotect come first",
        _userfaultfd("5.7"),
    ),
    Probe(
        "userfaultfd_async",
        "privileges",
        "Which pages were written since a moment, at no cost a fault.",
        "nothing: the exclusive bit is used",
        _userfaultfd("6.7"),
    ),
    Probe(
        "mprotect",
        "privileges",
        "The recorder's last resort: SIGSEGV at the first write to a page.",
        'record("protect") raises Unsupported',
        _by_native(source="SIGSEGV taken with the address in a child"),
    ),
    Probe(
        "process_vm_readv",
        "privileges",
        "Nothing needs it; another process's memory is read through /proc.",
        "nothing: /proc/CHILD/mem is read",
        _by_native(_MEMORY, "a value of a child read"),
    ),
    Probe(
        "child_mem",
        "privileges",
        "Reading a child's or a witness's heap as it was at the fork.",
        "pools(), arenas() and blame of another process raise Unreadable",
        _by_native(_MEMORY, "a value of a child read"),
    ),
    Probe(
        "pidfd",
        "privileges",
        "Seeing the end of a child that somebody else may reap.",
        "measure() raises Unsupported; readings work",
        _by_native(source="a child killed and waited for"),
    ),
    Probe(
        "cgroup_limit",
        "privileges",
        "Experiments in a child cgroup with a memory limit of its own.",
        "the experiments with memory.high, memory.max and pressure are left out",
        _cgroup_limit,
    ),
)
