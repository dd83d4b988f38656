"""What this kernel can do: page map, huge pages, merging, cgroups, pressure, swap."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable

from cowlab._capability import Capability, Outcome, Probe, World
from cowlab._host_explain import attempt, native

__all__ = ["PROBES"]

THP = "/sys/kernel/mm/transparent_hugepage"
KSM = "/sys/kernel/mm/ksm"
OVERCOMMIT = {0: "heuristic", 1: "always", 2: "never"}
NO_LIMIT = 1 << 62
"""cgroup v1 writes "no limit" as the largest number of whole pages."""


def _kernel(world: World, name: str) -> Capability:
    linux = platform.system() == "Linux"
    return Capability(
        name,
        linux,
        f"{platform.system()} {platform.release()} {platform.machine()}",
        "" if linux else "this is not Linux",
        "" if linux else "run it on Linux, in a container or a virtual machine",
        "uname",
    )


def _page_size(world: World, name: str) -> Capability:
    return Capability(name, True, os.sysconf("SC_PAGE_SIZE"), source="sysconf")


def _cpus(world: World, name: str) -> Capability:
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return Capability(name, True, os.cpu_count(), source="os.cpu_count")
    mine = len(os.sched_getaffinity(0))
    return Capability(name, True, mine, source="sched_getaffinity")


def _soft_dirty(world: World, outcome: Outcome) -> tuple[str, str]:
    return (
        "the kernel takes the write to clear_refs, but the bit does not follow:"
        " it was built without CONFIG_MEM_SOFT_DIRTY",
        "a kernel with CONFIG_MEM_SOFT_DIRTY=y",
    )


def _since(version: str, option: str = "") -> Callable[..., tuple[str, str]]:
    """An explanation for what came with a version of the kernel."""

    def explain(world: World, outcome: Outcome) -> tuple[str, str]:
        built = f" built with {option}" if option else ""
        return (
            f"{outcome.step}: {os.strerror(outcome.errno)}",
            f"Linux {version} or later{built}",
        )

    return explain


def _thp(world: World, name: str) -> Capability:
    setting = _chosen(world, f"{THP}/enabled")
    found = native(
        world,
        name,
        {
            0: _why_no_huge_page,
            errno.ENOENT: lambda *_: (
                "this kernel has no transparent huge pages",
                "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y",
            ),
            errno.E2BIG: lambda *_: (
                "a huge page of this kernel is too large to try",
                "",
            ),
        },
        source="one huge page filled in a child",
    )
    value = {
        "setting": setting,
        "defrag": _chosen(world, f"{THP}/defrag"),
        "size": world.number(f"{THP}/hpage_pmd_size"),
    }
    return Capability(
        name, found.available, value, found.reason, found.remedy, found.source
    )


def _why_no_huge_page(world: World, outcome: Outcome) -> tuple[str, str]:
    if _chosen(world, f"{THP}/enabled") == "never":
        return (
            "the setting is never",
            f"echo madvise > {THP}/enabled, as root",
        )
    if world.status().get("THP_enabled") == "0":
        return (
            "switched off for this process (PR_SET_THP_DISABLE)",
            "start it without that prctl",
        )
    return (
        "the kernel gave small pages: no free memory in one piece",
        "echo 1 > /proc/sys/vm/compact_memory, as root, and try again",
    )


def _chosen(world: World, path: str) -> str | None:
    """The chosen word of "always [madvise] never"."""
    try:
        text = world.read(path)
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] or None


def _copy_unit(world: World, name: str) -> Capability:
    outcome = attempt(world, name)
    if not outcome.available:
        return native(world, name, {}, outcome=outcome)
    if outcome.detail:
        source = f"writes to a shared page of {outcome.detail} bytes, faults counted"
        return Capability(name, True, outcome.value, source=source)
    return Capability(
        name,
        True,
        outcome.value,
        "measured on small pages: no huge page was to be had",
        "see thp",
        "writes to shared small pages, faults counted",
    )


def _ksmd(world: World, name: str) -> Capability:
    source = f"{KSM}/run"
    run = world.number(source)
    if run is None:
        return Capability(
            name,
            False,
            None,
            "this kernel has no KSM, or /sys is hidden",
            "a kernel with CONFIG_KSM=y, and /sys mounted",
            source,
        )
    may_start = os.access(world.path(source), os.W_OK)
    value = {"run": run, "may_start": may_start}
    if run == 1:
        return Capability(name, True, value, source=source)
    return Capability(
        name,
        False,
        value,
        "ksmd is not running" + (", this process may start it" if may_start else ""),
        f"echo 1 > {source}" + ("" if may_start else ", as root"),
        source,
    )


def _cgroup(world: World, name: str) -> Capability:
    """The cgroup that the memory of this process is charged to."""
    source = "/proc/self/cgroup, /proc/self/mountinfo"
    try:
        groups = world.read("/proc/self/cgroup").splitlines()
        mounts = world.read("/proc/self/mountinfo").splitlines()
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        return Capability(name, None, None, reason, "mount /proc", source)
    for version in (1, 2):
        place = _memory_cgroup(world, version, groups, mounts)
        if place is None:
            continue
        try:
            limits = _limits(world, version, *place)
        except (OSError, ValueError):
            continue
        value = {"version": version, "path": place[1], **limits}
        return Capability(name, True, value, source=source)
    return Capability(
        name,
        False,
        {"version": None},
        "no memory controller is mounted here that holds this process",
        "mount cgroup2 with the memory controller on /sys/fs/cgroup",
        source,
    )


def _memory_cgroup(
    world: World, version: int, groups: list[str], mounts: list[str]
) -> tuple[str, str] | None:
    """The mount point and directory of this process's group, or None."""
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if ("memory" in controllers.split(",")) if version == 1 else not controllers:
            break
    else:
        return None
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if version == 1:
            found = kind == "cgroup" and "memory" in options.split(",")
        else:
            found = kind == "cgroup2"
        if found:
            root, point = before.split(" ")[3:5]
            # In a container the mount may show only the group's own part of the tree.
            inside = path if root == "/" else path.removeprefix(root)
            return point, f"{point}/{inside.strip('/')}".rstrip("/")
    return None


def _limits(world: World, version: int, top: str, path: str) -> dict[str, int | None]:
    """Usage and the limits that bind, those of the ancestors included."""
    if version == 1:
        stat = world.read(f"{path}/memory.stat").splitlines()
        fields = dict(line.split(" ", 1) for line in stat)
        limit = int(fields["hierarchical_memory_limit"])
        usage = int(world.read(f"{path}/memory.usage_in_bytes"))
        return {
            "usage": usage,
            "limit": None if limit >= NO_LIMIT else limit,
            "high": None,
        }
    # The root of the tree has neither of these files: then v2 has no memory here.
    usage = int(world.read(f"{path}/memory.current"))
    limits: dict[str, list[int]] = {"max": [], "high": []}
    while path.startswith(top):
        for name, found in limits.items():
            number = world.number(f"{path}/memory.{name}")
            if number is not None:
                found.append(number)
        path = path.rpartition("/")[0]
    return {
        "usage": usage,
        "limit": min(limits["max"], default=None),
        "high": min(limits["high"], default=None),
    }


def _psi(world: World, name: str) -> Capability:
    source = "/proc/pressure/memory"
    try:
        # With psi=0 on the kernel's command line it opens, and cannot be read.
        world.read(source)
    except FileNotFoundError:
        reason = "this kernel has no pressure stall information"
        remedy = "a kernel with CONFIG_PSI=y"
    except OSError as error:
        reason = f"{source}: {error.strerror}"
        remedy = "psi=1 on the kernel's command line"
    else:
        return Capability(name, True, source=source)
    return Capability(name, False, None, reason, remedy, source)


def _swap(world: World, name: str) -> Capability:
    source = "/proc/meminfo"
    try:
        lines = dict(line.split(":", 1) for line in world.read(source).splitlines())
        total, free = (
            int(lines[field].split()[0]) * 1024 for field in ("SwapTotal", "SwapFree")
        )
    except (OSError, KeyError, ValueError) as error:
        return Capability(name, None, None, f"{source}: {error}", "", source)
    value = {"total": total, "free": free}
    if total:
        return Capability(name, True, value, source=source)
    reason = "this machine has no swap"
    return Capability(name, False, value, reason, "swapon a file or zram", source)


def _overcommit(world: World, name: str) -> Capability:
    source = "/proc/sys/vm/overcommit_memory"
    mode = world.number(source)
    if mode is None:
        return Capability(name, None, None, f"cannot read {source}", "", source)
    value = {"mode": mode, "meaning": OVERCOMMIT.get(mode, "unknown")}
    if mode != 2:
        return Capability(name, True, value, source=source)
    return Capability(
        name,
        False,
        value,
        "a fork must be able to pay for a full copy of its parent: large parents get"
        " ENOMEM",
        "sysctl vm.overcommit_memory=0, as root",
        source,
    )


def _by_native(
    explain: dict[int, Callable[[World, Outcome], tuple[str, str]]] | None = None,
    source: str = "",
) -> Callable[[World, str], Capability]:
    def run(world: World, name: str) -> Capability:
        return native(world, name, explain or {}, source=source)

    return run


_OLD_KSM = _since("6.4", "CONFIG_KSM=y")
_OLD_SCAN = _since("6.7")

PROBES = (
    Probe(
        "kernel",
        "kernel",
        "Everything that reads /proc or forks.",
        "the package imports, and each function says that it needs Linux",
        _kernel,
    ),
    Probe(
        "page_size",
        "kernel",
        "The unit of every count of pages.",
        "",
        _page_size,
    ),
    Probe(
        "cpus",
        "kernel",
        "How many processes run at once; on one CPU, timings include the observer's.",
        "",
        _cpus,
    ),
    Probe(
        "pagemap",
        "kernel",
        "The page map's exclusive bit: which inherited pages a child has copied.",
        "measure() and blame() raise Unsupported; smaps() still gives Private_Dirty,"
        " which does not tell copied pages from fresh ones",
        _by_native(
            {
                0: lambda *_: (
                    "the exclusive bit does not follow a fork and a write: /proc is not"
                    " this kernel's own",
                    "run it on a plain Linux kernel",
                )
            },
            "a page followed through a fork and a write in a child",
        ),
    ),
    Probe(
        "pagemap_scan",
        "kernel",
        "PAGEMAP_SCAN: holes in large mappings are skipped, and zero pages told apart.",
        "every entry of sparse mappings is read, 5 ns a page; pages of zeros that"
        " nobody wrote may count as inherited, and the report says so",
        _by_native(
            {errno.ENOTTY: _OLD_SCAN, errno.EINVAL: _OLD_SCAN},
            "one page found by the ioctl in a child",
        ),
    ),
    Probe(
        "smaps_rollup",
        "kernel",
        "PSS, USS and RSS of a whole process in one read.",
        "smaps() and measure() add up smaps, which is slower, and say so in the source",
        _by_native(source="a child's file read"),
    ),
    Probe(
        "soft_dirty",
        "kernel",
        "Nothing needs it; it could tell which pages were written since a moment.",
        "nothing: the exclusive bit is used",
        _by_native({0: _soft_dirty}, "a bit cleared and set again in a child"),
    ),
    Probe(
        "clear_refs",
        "kernel",
        "Which pages of a file a phase of a program really touches (Referenced).",
        "the working-set experiments cannot reset Referenced between phases",
        _by_native(source="Referenced seen to fall in a child"),
    ),
    Probe(
        "thp",
        "kernel",
        "Experiments with transparent huge pages.",
        "the huge-page arms of the experiments are left out",
        _thp,
    ),
    Probe(
        "copy_unit",
        "kernel",
        "Bytes that one write to a shared page copies.",
        "a measurement in huge pages cannot be told in bytes",
        _copy_unit,
    ),
    Probe(
        "ksm_merge",
        "kernel",
        "Asking the kernel to merge equal pages again after they were copied.",
        "the experiment with KSM is left out",
        _by_native(
            {errno.EINVAL: _OLD_KSM}, "PR_SET_MEMORY_MERGE, set and read in a child"
        ),
    ),
    Probe(
        "ksmd",
        "kernel",
        "The kernel's thread that does the merging.",
        "the experiment with KSM starts it where it may, and else is left out",
        _ksmd,
    ),
    Probe(
        "cgroup",
        "kernel",
        "What the machine charges a group of processes for, and its limits.",
        "group reports and budgets go by PSS alone",
        _cgroup,
    ),
    Probe(
        "psi",
        "kernel",
        "Pressure: whether a lack of memory harms anybody.",
        "the experiment with memory pressure is left out",
        _psi,
    ),
    Probe(
        "swap",
        "kernel",
        "Where anonymous memory can go under pressure.",
        "nothing: swapped pages cannot occur, no page is unknown for that reason",
        _swap,
    ),
    Probe(
        "overcommit",
        "kernel",
        "Whether a large process can fork.",
        "measure() of a large parent fails with ENOMEM",
        _overcommit,
    ),
)
