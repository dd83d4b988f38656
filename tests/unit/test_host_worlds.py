"""The answers on machines that are not this one: made-up /proc and /sys, and made-up
ends of the probes."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from cowlab._capability import Outcome, World
from cowlab._host import Host


@pytest.fixture
def machine(tmp_path):
    """A function that makes a Host of files and of outcomes by probe."""

    def make(files=None, outcomes=None, environ=None):
        for path, text in (files or {}).items():
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        world = World(
            proc=str(tmp_path / "proc"),
            sys=str(tmp_path / "sys"),
            environ=environ or {},
            probe=lambda name: (outcomes or {}).get(name, Outcome(True, step="done")),
        )
        return Host(world)

    return make


SECCOMP = {"/proc/self/status": "Name:\tx\nSeccomp:\t2\n"}
NO_SECCOMP = {"/proc/self/status": "Name:\tx\nSeccomp:\t0\n"}
PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def no(step, number=0, **more):
    return Outcome(False, number, step=step, **more)


@pytest.mark.parametrize(
    ("name", "files", "outcome", "reason", "remedy"),
    [
        pytest.param(
            "perf_sigtrap",
            {**NO_SECCOMP, PARANOID: "3\n"},
            no("perf_event_open with sigtrap", errno.EACCES),
            "kernel.perf_event_paranoid is 3",
            "sysctl kernel.perf_event_paranoid=2",
            id="perf, Debian's sysctl",
        ),
        pytest.param(
            "perf_fault_address",
            {**NO_SECCOMP, PARANOID: "4\n"},
            no("perf_event_open", errno.EPERM),
            "kernel.perf_event_paranoid is 4",
            "CAP_PERFMON",
            id="perf, Ubuntu's sysctl",
        ),
        pytest.param(
            "perf_fault_address",
            {**SECCOMP, PARANOID: "2\n"},
            no("perf_event_open", errno.EPERM),
            "a seccomp filter refuses it",
            "--cap-add PERFMON",
            id="perf, Docker",
        ),
        pytest.param(
            "perf_fault_address",
            {**NO_SECCOMP, PARANOID: "2\n"},
            no("perf_event_open", errno.EACCES),
            "a security module refuses it",
            "CAP_PERFMON",
            id="perf, SELinux",
        ),
        pytest.param(
            "perf_kernel_writes",
            {**NO_SECCOMP, PARANOID: "2\n"},
            no("perf_event_open", errno.EACCES),
            "kernel.perf_event_paranoid is 2",
            "sysctl kernel.perf_event_paranoid=1",
            id="perf, kernel writes want more",
        ),
        pytest.param(
            "perf_kernel_writes",
            {**SECCOMP, PARANOID: "2\n"},
            no("perf_event_open", errno.EPERM),
            "a seccomp filter refuses it, and kernel.perf_event_paranoid is 2",
            "; and sysctl kernel.perf_event_paranoid=1",
            id="perf, filter and sysctl",
        ),
        pytest.param(
            "perf_fault_address",
            NO_SECCOMP,
            no("perf_event_open", errno.ENOSYS),
            "this kernel has no perf events",
            "CONFIG_PERF_EVENTS=y",
            id="perf, not built",
        ),
        pytest.param(
            "perf_fault_address",
            SECCOMP,
            no("perf_event_open", errno.ENOSYS),
            "a seccomp filter hides it",
            "a seccomp profile",
            id="perf, hidden",
        ),
        pytest.param(
            "perf_fault_address",
            NO_SECCOMP,
            no("mmap the ring of a perf event", errno.EPERM),
            "perf_event_mlock_kb",
            "raise kernel.perf_event_mlock_kb",
            id="perf, no memory for rings left",
        ),
        pytest.param(
            "perf_sigtrap",
            NO_SECCOMP,
            no("perf_event_open with sigtrap", errno.EINVAL),
            "Invalid argument",
            "Linux 5.13",
            id="sigtrap, old kernel",
        ),
        pytest.param(
            "perf_sigtrap",
            {},
            no("get SIGTRAP with a copied page's address"),
            "get SIGTRAP with a copied page's address: no effect",
            "",
            id="sigtrap, accepted and never sent",
        ),
        pytest.param(
            "userfaultfd",
            SECCOMP,
            no("userfaultfd", errno.EPERM),
            "a seccomp filter refuses it",
            "a seccomp profile",
            id="userfaultfd, Docker",
        ),
        pytest.param(
            "userfaultfd",
            NO_SECCOMP,
            no("userfaultfd", errno.EPERM),
            "Operation not permitted",
            "vm.unprivileged_userfaultfd=1",
            id="userfaultfd, before user-mode-only",
        ),
        pytest.param(
            "userfaultfd_async",
            {},
            no("ioctl UFFDIO_API with write protection", errno.EINVAL),
            "UFFDIO_API",
            "Linux 6.7",
            id="userfaultfd, no asynchronous mode",
        ),
        pytest.param(
            "pagemap",
            {},
            no("follow the exclusive bit through a fork and a write"),
            "does not follow a fork and a write",
            "plain Linux kernel",
            id="page map, an imitation of /proc",
        ),
        pytest.param(
            "pagemap",
            {},
            no("read /proc/self/pagemap", errno.ENOENT),
            "read /proc/self/pagemap: No such file or directory",
            "/proc mounted without restrictions",
            id="page map, no file",
        ),
        pytest.param(
            "pagemap_scan",
            {},
            no("ioctl PAGEMAP_SCAN", errno.ENOTTY),
            "Inappropriate ioctl",
            "Linux 6.7",
            id="scan, old kernel",
        ),
        pytest.param(
            "smaps_rollup",
            {},
            no("read /proc/CHILD/smaps_rollup", errno.ENOENT),
            "No such file",
            "a newer kernel",
            id="no smaps_rollup",
        ),
        pytest.param(
            "soft_dirty",
            {},
            no("see the soft-dirty bit cleared and set again"),
            "CONFIG_MEM_SOFT_DIRTY",
            "CONFIG_MEM_SOFT_DIRTY=y",
            id="soft-dirty, silently accepted",
        ),
        pytest.param(
            "frame_numbers",
            {},
            no("read the frame number"),
            "0 for every frame number",
            "CAP_SYS_ADMIN",
            id="frame numbers",
        ),
        pytest.param(
            "thp",
            {
                "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
            },
            no("fill a huge page with one fault"),
            "the setting is never",
            "echo madvise >",
            id="huge pages, never",
        ),
        pytest.param(
            "thp",
            {
                "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
                "/proc/self/status": "THP_enabled:\t0\n",
            },
            no("fill a huge page with one fault"),
            "switched off for this process",
            "without that prctl",
            id="huge pages, prctl",
        ),
        pytest.param(
            "thp",
            {
                "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
                "/proc/self/status": "THP_enabled:\t1\n",
            },
            no("fill a huge page with one fault"),
            "no free memory in one piece",
            "compact_memory",
            id="huge pages, none free",
        ),
        pytest.param(
            "thp",
            {},
            no("read the size of a huge page", errno.ENOENT),
            "no transparent huge pages",
            "CONFIG_TRANSPARENT_HUGEPAGE=y",
            id="huge pages, not built",
        ),
        pytest.param(
            "ksm_merge",
            {},
            no("prctl PR_SET_MEMORY_MERGE", errno.EINVAL),
            "Invalid argument",
            "Linux 6.4 or later built with CONFIG_KSM=y",
            id="KSM, old kernel",
        ),
        pytest.param(
            "process_vm_readv",
            {**NO_SECCOMP, "/proc/sys/kernel/yama/ptrace_scope": "2\n"},
            no("process_vm_readv", errno.EPERM),
            "kernel.yama.ptrace_scope is 2",
            "CAP_SYS_PTRACE",
            id="another's memory, Yama",
        ),
        pytest.param(
            "process_vm_readv",
            SECCOMP,
            no("process_vm_readv", errno.EPERM),
            "a seccomp filter refuses it",
            "a seccomp profile",
            id="another's memory, Docker on an old kernel",
        ),
        pytest.param(
            "pidfd",
            NO_SECCOMP,
            no("pidfd_open", errno.ENOSYS),
            "pidfd_open",
            "a newer kernel",
            id="pidfd, old kernel",
        ),
        pytest.param(
            "pidfd",
            {},
            no("pidfd_open", signal=signal.SIGSYS),
            "a seccomp filter kills for it",
            "a seccomp profile",
            id="killed by a filter",
        ),
        pytest.param(
            "mprotect",
            {},
            no("write to a protected page", signal=signal.SIGSEGV),
            "SIGSEGV",
            "",
            id="crashed",
        ),
        pytest.param(
            "userfaultfd",
            {},
            no("be told of a write by userfaultfd", timed_out=True),
            "no answer in time",
            "",
            id="hung",
        ),
        pytest.param(
            "pagemap",
            {},
            Outcome(None, errno.EAGAIN, step="start a child for the probe"),
            "start a child for the probe: Resource temporarily unavailable",
            "",
            id="no process to be had",
        ),
    ],
)
def test_each_no_has_its_reason_and_remedy(
    machine, name, files, outcome, reason, remedy
):
    capability = machine(files, {name: outcome})[name]
    assert capability.available is outcome.available
    assert reason in capability.reason
    assert remedy in capability.remedy


def test_without_the_core_the_probes_say_so():
    def absent(name):
        raise ImportError("No module named 'cowlab._native'")

    capability = Host(World(probe=absent)).pagemap
    assert capability.available is None
    assert "C core is not built" in capability.reason


def test_a_probe_that_cannot_start_is_not_a_no():
    def full(name):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    capability = Host(World(probe=full)).pagemap
    assert capability.available is None
    assert "start a child" in capability.reason


def test_an_empty_world_has_an_answer_to_everything(machine):
    """No /proc, no /sys: nothing raises, and it can be written down."""
    report = json.loads(json.dumps(machine().to_json()))
    for name, capability in report["capabilities"].items():
        assert capability["available"] is True or capability["reason"], name


CGROUP_MOUNT = "25 24 0:22 {root} {point} rw,nosuid shared:9 - {kind} cgroup {options}"


def cgroup_files(tmp_path, version, group, root="/", files=()):
    """A machine whose memory controller is mounted at /sys/fs/cgroup/mem."""
    point = tmp_path / "sys/fs/cgroup/mem"
    mount = CGROUP_MOUNT.format(
        root=root,
        point=point,
        kind="cgroup" if version == 1 else "cgroup2",
        options="rw,memory" if version == 1 else "rw,nsdelegate",
    )
    line = f"4:memory:{group}" if version == 1 else f"0::{group}"
    found = {
        "/proc/self/cgroup": f"12:cpu,cpuacct:/x\n{line}\n",
        "/proc/self/mountinfo": f"1 0 8:1 / / rw - ext4 /dev/x rw\n{mount}\n",
    }
    found |= {f"/sys/fs/cgroup/mem{path}": text for path, text in files}
    return found


def test_cgroup_v1_and_its_hierarchical_limit(machine, tmp_path):
    files = cgroup_files(
        tmp_path,
        1,
        "/jobs/one",
        files=[
            ("/jobs/one/memory.usage_in_bytes", "4096\n"),
            (
                "/jobs/one/memory.stat",
                "cache 0\nhierarchical_memory_limit 1073741824\n",
            ),
        ],
    )
    value = machine(files).cgroup.value
    assert value["version"] == 1
    assert value["usage"] == 4096
    assert value["limit"] == 1 << 30
    assert value["path"].endswith("/mem/jobs/one")


def test_cgroup_v1_without_a_limit(machine, tmp_path):
    files = cgroup_files(
        tmp_path,
        1,
        "/",
        files=[
            ("/memory.usage_in_bytes", "4096\n"),
            ("/memory.stat", "hierarchical_memory_limit 9223372036854771712\n"),
        ],
    )
    assert machine(files).cgroup.value["limit"] is None


def test_cgroup_v2_takes_the_ancestors_lowest_limit(machine, tmp_path):
    files = cgroup_files(
        tmp_path,
        2,
        "/slice/job",
        files=[
            ("/slice/job/memory.current", "8192\n"),
            ("/slice/job/memory.max", "max\n"),
            ("/slice/job/memory.high", "3000000\n"),
            ("/slice/memory.max", "2000000\n"),
            ("/slice/memory.high", "max\n"),
        ],
    )
    value = machine(files).cgroup.value
    assert (value["version"], value["usage"]) == (2, 8192)
    assert (value["limit"], value["high"]) == (2_000_000, 3_000_000)


def test_cgroup_of_a_container_whose_mount_shows_only_its_part(machine, tmp_path):
    files = cgroup_files(
        tmp_path,
        2,
        "/docker/abc",
        root="/docker/abc",
        files=[("/memory.current", "1\n"), ("/memory.max", "4096\n")],
    )
    assert machine(files).cgroup.value["limit"] == 4096


def test_cgroup_v2_without_the_memory_controller_is_a_no(machine, tmp_path):
    files = cgroup_files(tmp_path, 2, "/x", files=[("/x/cgroup.procs", "")])
    capability = machine(files).cgroup
    assert capability.available is False
    assert "no memory controller" in capability.reason
    assert machine(files).cgroup_limit.available is False


def test_a_cgroup_without_write_permission(machine, tmp_path, monkeypatch):
    files = cgroup_files(
        tmp_path,
        2,
        "/x",
        files=[("/x/memory.current", "1\n"), ("/x/memory.max", "max\n")],
    )
    assert machine(files).cgroup_limit.available is True
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    capability = machine(files).cgroup_limit
    assert capability.available is False
    assert "delegated" in capability.remedy


@pytest.mark.parametrize(
    ("run", "available", "reason"),
    [("1", True, ""), ("0", False, "not running"), ("2", False, "not running")],
)
def test_ksmd(machine, run, available, reason):
    capability = machine({"/sys/kernel/mm/ksm/run": f"{run}\n"}).ksmd
    assert capability.available is available
    assert reason in capability.reason
    assert capability.value["run"] == int(run)


def test_no_ksm(machine):
    capability = machine({"/sys/kernel/mm/x": ""}).ksmd
    assert capability.available is False
    assert "CONFIG_KSM=y" in capability.remedy


def test_psi_that_opens_and_cannot_be_read(machine, monkeypatch):
    """psi=0 on the command line: read gives EOPNOTSUPP."""
    host = machine()

    def read(self, path):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)

    monkeypatch.setattr(World, "read", read)
    capability = host.psi
    assert capability.available is False
    assert capability.remedy == "psi=1 on the kernel's command line"


def test_psi(machine):
    assert machine({"/proc/pressure/memory": "some avg10=0.00\n"}).psi


def test_no_psi(machine):
    capability = machine().psi
    assert capability.available is False
    assert capability.remedy == "a kernel with CONFIG_PSI=y"


def test_swap(machine):
    meminfo = "MemTotal: 9 kB\nSwapTotal: {} kB\nSwapFree: 4 kB\n"
    host = machine({"/proc/meminfo": meminfo.format(8)})
    assert host.swap.available is True
    assert host.swap.value == {"total": 8192, "free": 4096}
    host = machine({"/proc/meminfo": meminfo.format(0)})
    assert host.swap.available is False


@pytest.mark.parametrize(("mode", "available"), [(0, True), (1, True), (2, False)])
def test_overcommit(machine, mode, available):
    capability = machine({"/proc/sys/vm/overcommit_memory": f"{mode}\n"}).overcommit
    assert capability.available is available
    assert capability.value["mode"] == mode
    assert ("ENOMEM" in capability.reason) is not available


def test_the_copy_unit_without_a_huge_page_says_so(machine):
    capability = machine({}, {"copy_unit": Outcome(True, value=4096)}).copy_unit
    assert capability.value == 4096
    assert "no huge page" in capability.reason


def test_the_copy_unit_of_a_kernel_that_copies_huge_pages(machine):
    huge = 2 << 20
    outcome = Outcome(True, value=huge, detail=huge)
    capability = machine({}, {"copy_unit": outcome}).copy_unit
    assert capability.value == huge
    assert capability.reason == ""


def test_privileges_of_a_server_in_a_container(machine):
    value = machine(
        {
            "/proc/self/status": (
                "CapEff:\t00000040002c0000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
            ),
            "/proc/self/uid_map": "0 100000 65536\n",
        }
    ).privileges.value
    assert value["capabilities"] == ["SYS_PTRACE", "SYS_ADMIN", "PERFMON"]
    assert value["seccomp"] == "filter"
    assert value["no_new_privs"]
    assert value["user_namespace"]


def test_a_free_threaded_build_is_refused_by_name(machine, monkeypatch):
    monkeypatch.setattr("sys.abiflags", "t")
    capability = machine().gil
    assert capability.available is False
    assert "free-threaded" in capability.reason
    assert capability.value["free_threaded_build"] is True


def test_a_debug_build(machine, monkeypatch):
    monkeypatch.setattr("sys.gettotalrefcount", lambda: 1, raising=False)
    capability = machine().release_build
    assert (capability.available, capability.value) == (False, "debug")


@pytest.mark.parametrize(
    ("built", "on", "value"),
    [(False, False, "not built"), (True, False, "off"), (True, True, "on")],
)
def test_the_jit(machine, monkeypatch, built, on, value):
    class Jit:
        is_available = staticmethod(lambda: built)
        is_enabled = staticmethod(lambda: on)

    monkeypatch.setattr("sys._jit", Jit, raising=False)
    capability = machine().jit
    assert capability.value == value
    assert capability.available is on


def test_an_unknown_version(machine, monkeypatch):
    monkeypatch.setattr("sys.version_info", (3, 16, 0, "final", 0))
    capability = machine().python
    assert capability.available is False
    assert capability.remedy == "CPython 3.11 to 3.15"


def test_the_document_tells_what_each_capability_is_for():
    text = (Path(__file__).parents[2] / "docs/doctor.md").read_text()
    missing = [name for name in Host() if f"**{name}**" not in text]
    assert missing == []


def test_where_this_is_not_linux_it_says_so(monkeypatch):
    """No core, no /proc, none of the calls that Linux alone has."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.delattr(os, "sched_getaffinity")

    def absent(name):
        raise ImportError("No module named 'cowlab._native'")

    host = Host(World(proc="/no", sys="/no", probe=absent))
    assert host.kernel.available is False
    assert "run it on Linux" in host.kernel.remedy
    json.dumps(host.to_json())
