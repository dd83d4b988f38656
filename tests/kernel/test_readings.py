"""Readings of real processes in every state they can be in."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from processes import (
    KEPT,
    MIB,
    PAGE,
    address_of,
    as_root,
    become_nobody,
    call,
    in_child,
    isolated,
    process,
    stranger,
)

from cowlab import (
    Gone,
    KernelThread,
    MapsEntry,
    ReadingError,
    Smaps,
    SmapsEntry,
    Unreadable,
    Unsupported,
    Zombie,
    _native,
    maps,
    pagemap,
    smaps,
    smaps_rollup,
    stat,
    status,
)
from cowlab._smaps import SmapsRollup

READINGS: list[Callable[[int], Any]] = [
    maps,
    smaps,
    smaps_rollup,
    lambda pid: pagemap(pid, [(0x10000, 0x20000)]),
]
each_reading = pytest.mark.parametrize(
    "reading", READINGS, ids=["maps", "smaps", "smaps_rollup", "pagemap"]
)


def at(entries: Smaps, address: int) -> SmapsEntry:
    """The mapping that has an address."""
    (entry,) = (e for e in entries if e.start <= address < e.end)
    return entry


def holding(entries: tuple[MapsEntry, ...], address: int) -> MapsEntry:
    (entry,) = (e for e in entries if e.start <= address < e.end)
    return entry


# ---- this process, and memory of known size ----


def test_none_is_this_process() -> None:
    assert smaps_rollup().pid == smaps().pid == stat().pid == os.getpid()
    assert stat().comm == stat(os.getpid()).comm
    assert status().pid == os.getpid() and status().tgid == os.getpid()
    assert status().uid[1] == os.geteuid()


def test_a_thread_reads_its_process() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(smaps_rollup().pid))
    thread.start()
    thread.join()
    assert found == [os.getpid()]


def test_memory_of_a_known_size() -> None:
    with process(lambda: isolated(8 * MIB)) as (pid, address):
        entry = at(smaps(pid), address)
        assert (entry.start, entry.size) == (address, 8 * MIB)
        assert entry.virtual_size == 8 * MIB
        assert entry.rss == entry.pss == entry.private_dirty == 8 * MIB
        assert entry.uss == entry.anonymous == 8 * MIB and entry.shared_rss == 0
        assert entry.kind == "anonymous" and entry.path is None
        assert entry.perms == "rw-p" and entry.flags is not None
        assert {"rd", "wr"} <= entry.flags


def test_memory_that_a_fork_shares() -> None:
    address = isolated(4 * MIB)
    try:
        with process(lambda: None) as (pid, _):
            entry = at(smaps(pid), address)
            assert entry.rss == entry.shared_dirty == 4 * MIB
            assert entry.pss == 2 * MIB and entry.uss == 0
            assert at(smaps(), address).pss == 2 * MIB
        assert at(smaps(), address).uss == 4 * MIB
    finally:
        KEPT.clear()


def test_the_rollup_is_the_sum_of_smaps() -> None:
    with stranger() as pid:
        rollup = smaps_rollup(pid)
        total = _native.sum_of_smaps(pid, SmapsRollup)
        entries = smaps(pid)
    assert rollup.source == "smaps_rollup" and total.source == "sum of smaps"
    for name in ("rss", "anonymous", "private_dirty", "referenced", "swap"):
        assert getattr(rollup, name) == getattr(total, name), name
        assert getattr(total, name) == sum(getattr(e, name) for e in entries), name
    assert rollup.pss is not None and total.pss is not None
    assert 0 <= rollup.pss - total.pss <= 1024 * len(entries)


def test_maps_and_smaps_have_the_same_mappings() -> None:
    with process(lambda: None) as (pid, _):
        plain, full = maps(pid), smaps(pid)
    names = list(MapsEntry.__slots__)
    assert [[getattr(e, n) for n in names] for e in plain] == [
        [getattr(e, n) for n in names] for e in full
    ]
    assert sum(e.kind == "stack" for e in plain) == 1


def test_counters_move() -> None:
    before = stat()
    isolated(64 * PAGE)
    after = stat()
    KEPT.clear()
    assert after.minor_faults - before.minor_faults >= 64
    assert after.start_ticks == before.start_ticks and after.threads >= 1
    assert abs(after.rss_pages * PAGE - (status().vm_rss or 0)) < 64 * MIB


# ---- processes that have no memory to read ----


def error_as_nobody(reading: Callable[[int], Any], pid: int) -> str:
    def read() -> str:
        become_nobody()
        try:
            reading(pid)
        except ReadingError as error:
            return type(error).__name__
        return "read"

    return in_child(read)


@each_reading
def test_a_zombie_is_one_to_an_ordinary_user_too(
    reading: Callable[[int], Any],
) -> None:
    """To whom the kernel denies what has no memory."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert error_as_nobody(reading, pid) == "Zombie"
    finally:
        os.waitpid(pid, 0)


@each_reading
def test_a_zombie(reading: Callable[[int], Any]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(Zombie, match=f"process {pid} has ended and waits") as e:
            reading(pid)
        assert isinstance(e.value, Gone) and e.value.errno == errno.ESRCH
        assert stat(pid).state == status(pid).state == "Z"
        assert status(pid).vm_rss is None
    finally:
        os.waitpid(pid, 0)
    with pytest.raises(Gone, match=f"there is no process {pid}") as gone:
        reading(pid)
    assert not isinstance(gone.value, Zombie)


@pytest.mark.parametrize("reading", [*READINGS, stat, status])
def test_a_process_that_is_gone(reading: Callable[[int], Any]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(Gone, match="there is no process") as caught:
        reading(pid)
    assert str(pid) in str(caught.value.filename)


def kernel_thread() -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if stat(int(entry.name)).kernel_thread:
                    return int(entry.name)
            except Gone:
                continue
    pytest.skip("no kernel thread can be seen from here: a PID namespace")


@each_reading
@pytest.mark.parametrize("user", ["this user", "nobody"])
def test_a_kernel_thread(reading: Callable[[int], Any], user: str) -> None:
    pid = kernel_thread()

    def read() -> None:
        if user == "nobody":
            become_nobody()
        reading(pid)

    with pytest.raises((KernelThread, Unreadable)) as caught:
        in_child(read)
    if reading is not READINGS[3] or (os.geteuid() == 0 and user != "nobody"):
        # The page map of another user's thread is denied before anything else.
        assert isinstance(caught.value, KernelThread)
        assert "kernel thread" in str(caught.value)
    assert stat(pid).rss_pages == 0 and status(pid).vm_rss is None


EXIT = {"x86_64": 60, "aarch64": 93}
LEADERLESS = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(flush=True)
ctypes.CDLL(None).syscall({EXIT.get(platform.machine(), 93)}, 0)
"""


def test_a_process_whose_main_thread_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEADERLESS], stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            while stat(child.pid).state != "Z":
                time.sleep(0.001)
            with pytest.raises(Unreadable, match="ask for one of those, as") as caught:
                smaps_rollup(child.pid)
            other = int(str(caught.value.strerror).split()[-1])
            assert smaps_rollup(other).rss
        finally:
            child.kill()


def test_a_process_killed_while_it_is_read_is_never_read_in_part() -> None:
    mappings = 4000

    def setup() -> int:
        # Every other page has other rights, so that each is a mapping.
        size = mappings * PAGE
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        KEPT.append(memory)
        address = address_of(memory)
        for page in range(0, mappings, 2):
            call("mprotect", ctypes.c_void_p(address + page * PAGE), PAGE, 0)
        return address

    ends = []
    for delay in (0.0, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015):
        with process(setup) as (pid, _):
            killer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
            killer.start()
            try:
                assert len(smaps(pid)) >= mappings
                ends.append("whole")
            except Gone:
                ends.append("gone")
            killer.join()
    assert "gone" in ends


@each_reading
def test_a_process_that_calls_exec_has_not_ended(
    reading: Callable[[int], Any], tmp_path: Path
) -> None:
    script = tmp_path / "again.sh"
    script.write_text(f"exec /bin/sh {script}\n")
    with subprocess.Popen(["/bin/sh", script]) as child:
        try:
            for _ in range(100):
                try:
                    reading(child.pid)
                except Unreadable as error:
                    assert error.errno == errno.EAGAIN and "exec" in str(error)
        finally:
            child.kill()


TOGGLE = """
import ctypes, mmap
from ctypes import c_size_t, c_void_p
pages, page = 2000, mmap.PAGESIZE
memory = mmap.mmap(-1, pages * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = b"x" * len(memory)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None).mprotect
print(flush=True)
while True:
    for i in range(0, pages, 2):
        protect(c_void_p(start + i * page), c_size_t(page), 1)
    protect(c_void_p(start), c_size_t(pages * page), 3)
"""


def test_mappings_that_come_and_go_are_not_counted_twice() -> None:
    # Between two pieces of the text the kernel lets the process change.
    with subprocess.Popen(
        [sys.executable, "-c", TOGGLE], stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            for _ in range(20):
                try:
                    entries = smaps(child.pid)
                except Unreadable as error:
                    assert error.errno == errno.EAGAIN
                    continue
                assert all(a.end <= b.start for a, b in pairwise(entries))
        finally:
            child.kill()


# ---- permissions ----


@each_reading
def test_a_denied_reading_names_the_capability(reading: Callable[[int], Any]) -> None:
    target = os.getpid() if os.geteuid() == 0 else 1

    def read() -> None:
        become_nobody()
        reading(target)

    with pytest.raises(Unreadable, match="CAP_SYS_PTRACE") as caught:
        in_child(read)
    assert caught.value.errno == errno.EACCES
    assert caught.value.filename.startswith(f"/proc/{target}/")


def test_stat_and_status_are_for_everybody() -> None:
    target = os.getpid() if os.geteuid() == 0 else 1

    def read() -> tuple[int, int]:
        become_nobody()
        return stat(target).pid, status(target).pid

    assert in_child(read) == (target, target)


@as_root("to change the user")
def test_a_process_that_changed_its_user_is_told_how_to_read_itself() -> None:
    def read() -> None:
        os.setgid(65534)
        os.setuid(65534)
        assert smaps_rollup().rss
        pagemap(None, [(0x10000, 0x20000)])

    with pytest.raises(Unreadable, match="PR_SET_DUMPABLE"):
        in_child(read)


NEW_MOUNTS = 0x20000


class NoMount(Exception):
    """Why a process can have no mount of its own here."""


def own_proc(options: bytes | None) -> None:
    """A /proc of our own with these options, or none at all."""
    try:
        call("unshare", NEW_MOUNTS)
        call("mount", b"none", b"/proc", None, 0x40000, None)  # MS_PRIVATE
        if options is None:
            call("mount", b"none", b"/proc", b"tmpfs", 0, None)
        else:
            call("mount", b"proc", b"/proc", b"proc", 0, options)
    except OSError as error:
        raise NoMount(str(error)) from None


@as_root("to mount /proc")
@pytest.mark.parametrize("reading", [*READINGS, stat, status])
def test_a_hidden_process_is_not_called_gone(reading: Callable[[int], Any]) -> None:
    target = os.getpid()

    def read() -> None:
        own_proc(b"hidepid=2")
        become_nobody()
        reading(target)

    try:
        with pytest.raises(Unreadable, match="hidepid"):
            in_child(read)
    except NoMount as error:
        pytest.skip(f"no mount of our own: {error}")


@as_root("to mount over /proc")
@each_reading
def test_without_proc(reading: Callable[[int], Any]) -> None:
    def read() -> None:
        own_proc(None)
        reading(1)

    try:
        with pytest.raises(Unsupported, match="no /proc is mounted here"):
            in_child(read)
    except NoMount as error:
        pytest.skip(f"no mount of our own: {error}")


SHIM = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
typedef int opener(const char *, int, ...);
static int hide(const char *path, int flags, const char *name)
{
    if (strstr(path, HIDDEN)) {
        errno = ENOENT;
        return -1;
    }
    return ((opener *)dlsym(RTLD_NEXT, name))(path, flags);
}
int open(const char *path, int flags, ...) { return hide(path, flags, "open"); }
int open64(const char *path, int flags, ...) { return hide(path, flags, "open64"); }
"""
READ_WITHOUT = """
import cowlab
try:
    print(cowlab.smaps_rollup().source)
except cowlab.Unsupported as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("hidden", "answer"),
    [
        ("/smaps_rollup", "sum of smaps"),
        ("/smaps", "this kernel has no /proc/PID/smaps"),
    ],
)
def test_a_kernel_without_the_file(tmp_path: Path, hidden: str, answer: str) -> None:
    import sysconfig

    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    (tmp_path / "shim.c").write_text(SHIM)
    library = tmp_path / "shim.so"
    try:
        flags = ["-D_GNU_SOURCE", f'-DHIDDEN="{hidden}"', "-shared", "-fPIC"]
        subprocess.run(
            [compiler, *flags, "-o", library, tmp_path / "shim.c", "-ldl"],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{compiler} cannot make a library that hides a file")
    done = subprocess.run(
        [sys.executable, "-c", READ_WITHOUT],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == answer, done.stderr


# ---- leaks ----


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("reading", "times"),
    [
        (smaps_rollup, 10_000),
        (READINGS[3], 10_000),
        (stat, 10_000),
        (status, 10_000),
        (maps, 2_000),
        (smaps, 2_000),
    ],
    ids=["smaps_rollup", "pagemap", "stat", "status", "maps", "smaps"],
)
def test_reads_leak_nothing(reading: Callable[[int], Any], times: int) -> None:
    # A small process, so that ten thousand readings of it take no time.
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            check_leaks(lambda: reading(child.pid), times)
        finally:
            child.kill()


@pytest.mark.usefixtures("uncollected")
@each_reading
def test_failed_reads_leak_nothing(reading: Callable[[int], Any]) -> None:
    pid = 2**22 + 1  # beyond what the kernel ever gives

    def fail() -> None:
        try:
            reading(pid)
        except Gone:
            return
        raise AssertionError("there is no such process")

    check_leaks(fail, 2_000)


def check_leaks(reading: Callable[[], Any], times: int) -> None:
    """What leaks grows in each of three rounds; what else this process does, which has
    run many tests before, does not."""
    rounds, each = 3, times // 3
    blocks, dirty, fds = [], [], []
    for count in (50, *[each] * rounds):
        for _ in range(count):
            reading()
        blocks.append(sys.getallocatedblocks())
        dirty.append(private_dirty())
        fds.append(descriptors())
    assert len(set(fds)) == 1, fds
    # A free-threaded build frees some later: hundreds, however many readings.
    noise = 200 if "t" not in sys.abiflags else 900
    assert min(b - a for a, b in pairwise(blocks)) < noise / rounds, blocks
    assert min(b - a for a, b in pairwise(dirty)) < MIB / 2 / rounds, dirty


def private_dirty() -> int:
    found = smaps_rollup().private_dirty
    assert found is not None
    return found
