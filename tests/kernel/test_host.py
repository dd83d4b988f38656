"""host() on this machine, and on this machine confined as others are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import confine
import pytest
from conftest import requires

import cowlab
from cowlab import Capability, Unsupported, _native, host
from cowlab._host import GROUPS

TESTS = Path(__file__).parents[1]
ROOT = Path(cowlab.__file__).parents[1]

# All is imported first: the user that it becomes may not be able to read the files.
SAY = f"""
import json, sys
sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]
from cowlab import _native, host
import confine
try:
    for way in sys.argv[1:]:
        confine.confine(way)
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(confine.UNCONFINED)
json.dump(host().to_json()["capabilities"], sys.stdout)
"""

WORLDS = {
    "as it is": [],
    "nobody": ["nobody"],
    "user namespace": ["userns"],
    "Docker's seccomp": ["docker"],
    "an old kernel": ["old"],
    "a container's user": ["docker", "nobody"],
    "all three": ["userns", "docker", "nobody"],
}


@cache
def confined(*ways: str) -> dict[str, dict[str, object]]:
    """What host() says in a fresh interpreter that is confined in these ways."""
    done = subprocess.run(
        [sys.executable, "-c", SAY, *ways],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == confine.UNCONFINED:
        pytest.skip(f"this machine does not allow {ways}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("ways", WORLDS.values(), ids=WORLDS)
def test_each_answer_has_what_belongs_to_it(ways):
    found = confined(*ways)
    assert list(found) == list(host())
    for name, capability in found.items():
        assert capability["name"] == name
        assert capability["group"] in GROUPS
        assert capability["source"], name
        assert capability["purpose"], name
        if capability["available"] is not True:
            assert capability["reason"], name
            assert capability["without"] or capability["value"], name


@pytest.mark.parametrize("ways", WORLDS.values(), ids=WORLDS)
def test_what_needs_no_privilege_is_there_in_every_world(ways):
    """Under a filter like Docker's the page map, a child's memory and mprotect work."""
    found = confined(*ways)
    free = host()
    for name in ("pagemap", "smaps_rollup", "mprotect", "child_mem", "copy_unit"):
        assert found[name]["available"] == free[name].available, found[name]
    assert found["copy_unit"]["value"] == free.copy_unit.value


def test_a_filter_like_dockers_takes_the_recorders_away_and_is_named():
    found = confined("docker", "nobody")
    for name in ("perf_fault_address", "perf_sigtrap", "userfaultfd"):
        assert found[name]["available"] is False
        assert "a seccomp filter refuses it" in found[name]["reason"]
        assert "seccomp" in found[name]["remedy"]
    assert found["privileges"]["value"]["seccomp"] == "filter"


def test_an_unprivileged_user_has_no_frame_numbers():
    found = confined("nobody")
    assert found["frame_numbers"]["available"] is False
    assert "CAP_SYS_ADMIN" in found["frame_numbers"]["remedy"]
    assert found["privileges"]["value"]["capabilities"] == []


def test_an_old_kernel_is_told_by_what_it_lacks():
    found = confined("old")
    assert found["pagemap_scan"]["available"] is False
    assert "Linux 6.7" in found["pagemap_scan"]["remedy"]
    assert found["ksm_merge"]["available"] is False
    assert "Linux 6.4" in found["ksm_merge"]["remedy"]


def test_one_cpu_is_told():
    assert confined("one")["cpus"]["value"] == 1


def test_a_user_namespace_is_told():
    found = confined("userns")
    assert found["privileges"]["value"]["user_namespace"] is True


@pytest.mark.parametrize("way", ["kill", "trap"])
def test_a_filter_that_kills_is_an_answer(way):
    found = confined(f"{way}=perf_event_open")
    assert found["perf_sigtrap"]["available"] is False
    assert "a seccomp filter kills for it" in found["perf_sigtrap"]["reason"]
    assert found["pagemap"]["available"] == host().pagemap.available


HANG = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]
import confine
from cowlab import _native
try:
    listener = confine.seccomp(
        [confine.Rule("pidfd_open", confine.USER_NOTIF)],
        confine.SECCOMP_FILTER_FLAG_NEW_LISTENER,
    )
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(confine.UNCONFINED)
print(_native.probe("pidfd", 1000))
"""


def test_a_probe_that_hangs_is_killed_and_told():
    """Nobody answers the filter's notification: pidfd_open never returns."""
    done = subprocess.run(
        [sys.executable, "-c", HANG], capture_output=True, text=True, check=False
    )
    if done.returncode == confine.UNCONFINED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    available, _, _, timed_out, *_, step = eval(done.stdout)
    assert (available, timed_out, step) == (False, True, "pidfd_open")


def state() -> object:
    """What a probe must leave as it was."""
    return (
        sorted(os.listdir("/proc/self/fd")),
        [signal.getsignal(number) for number in signal.valid_signals()],
        signal.pthread_sigmask(signal.SIG_BLOCK, []),
        os.listdir("/proc/self/task"),
        Path("/proc/self/task", str(os.getpid()), "children").read_text(),
    )


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("name", _native.probes())
def test_a_probe_leaves_nothing_behind(name):
    if not Path("/proc/self/task", str(os.getpid()), "children").exists():
        pytest.skip("this kernel has no /proc/PID/task/TID/children")
    before = state()
    for _ in range(3):
        _native.probe(name)
    assert state() == before


@pytest.mark.parametrize("ignored", [False, True])
def test_the_callers_sigchld_is_its_own(ignored):
    seen = []
    handler = signal.SIG_IGN if ignored else lambda *_: seen.append(1)
    old = signal.signal(signal.SIGCHLD, handler)
    try:
        found = _native.probe("pagemap")
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert seen == []
    assert found[0] == host().pagemap.available


def test_probes_from_many_threads():
    found = []

    def ask():
        found.extend(_native.probe(name)[0] for name in ("pagemap", "mprotect"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0.001)  # the kernel ends it after Python has
    assert found == [host().pagemap.available, host().mprotect.available] * 8


def test_a_process_that_is_not_dumpable_is_told_so():
    """As after a server has dropped root: /proc/self then belongs to root."""
    found = confined("nobody", "undumpable")["pagemap"]
    assert found["available"] is False
    assert "Permission denied" in found["reason"]
    assert "not dumpable" in found["remedy"]


def test_copy_unit_is_a_page_or_a_huge_page():
    page = host().page_size.value
    assert host().copy_unit.value in (page, host().thp.value["size"])


def test_an_unknown_probe_is_refused():
    with pytest.raises(ValueError, match="there is no probe named 'x'"):
        _native.probe("x")


def test_host_is_remembered_and_can_be_fresh():
    assert host() is host()
    old = host()
    assert host(fresh=True) is not old


def test_host_is_a_mapping_and_has_attributes():
    here = host()
    assert here["pagemap"] is here.pagemap
    assert "pagemap" in here
    assert "x" not in here
    assert {"pagemap", "to_json"} <= set(dir(here))
    with pytest.raises(AttributeError, match="no capability 'x'"):
        _ = here.x
    with pytest.raises(KeyError):
        here["x"]


def test_a_capability_in_a_condition_and_as_a_demand():
    yes = Capability("a", True)
    no = Capability("a", False, None, "it is off", "switch it on")
    assert yes
    assert not no
    assert not Capability("a", None)
    yes.require()
    with pytest.raises(
        Unsupported, match=r"a: no: it is off \(to enable it: switch it on\)"
    ):
        no.require()


def test_none_of_the_interpreters_facts_is_wrong_here():
    here = host()
    assert here.immortality.available == (sys.version_info >= (3, 12))
    assert here.gil.available == ("t" not in sys.abiflags)
    assert here.release_build.available == (not hasattr(sys, "gettotalrefcount"))
    assert here.pymalloc.available == (
        os.environ.get("PYTHONMALLOC", "pymalloc") == "pymalloc"
        and not sys.flags.dev_mode
        and bool(here.release_build)
        and bool(here.gil)
    )


@requires("gil")  # without it there is no choice of these
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("malloc", "malloc"),
        ("debug", "pymalloc_debug"),
        ("pymalloc", "pymalloc"),
    ],
)
def test_the_allocator_is_named(setting, value):
    say = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from cowlab import host;"
        "c = host().pymalloc; print(c.available, c.value, c.reason, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", say],
        env={**os.environ, "PYTHONMALLOC": setting},
        capture_output=True,
        text=True,
        check=True,
    )
    available, found, reason = done.stdout.strip().split("|")
    assert found == value
    assert (available == "True") == (setting == "pymalloc")
    assert bool(reason) == (setting != "pymalloc")
