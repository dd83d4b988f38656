"""Blame names the planted cause, type and line, on real forks; the recorder and others.

Each workload runs in an interpreter of its own: see blame_workloads.py.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import IMMORTALITY, requires

import cowlab
from cowlab._recorder import MODES

pytestmark = requires("gil")

HERE = Path(__file__).parent
ROOT = Path(cowlab.__file__).parents[1]


@cache
def refused(mode: str) -> str | None:
    """Why this machine does not record in a mode; None where it does."""
    try:
        with cowlab.record(mode):
            return None
    except cowlab.Unsupported as error:
        return str(error)


def needs(mode: str) -> None:
    if why := refused(mode):
        pytest.skip(why)


def fresh(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def workload(name: str, mode: str = "lines") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        fresh(str(HERE / "blame_workloads.py"), name, mode)
    )
    return found


def check(found: dict[str, Any]) -> None:
    assert found["blamed"] == found["copied"]
    assert found["planted"] >= found["least"], found
    assert found["right"] >= 0.95 * found["planted"], found
    if not (found["unsure_kernel"] and not found["causes"].get("kernel write")):
        assert found["unsure"] <= max(4, 0.02 * found["copied"]), found


PLANTED = [
    "iterate",
    "attribute",
    "collect",
    "hash_bytes",
    "hash_frozenset",
    "instance_dict",
    "weak_reference",
    "generator",
    "first_calls",
    "exports",
    "kernel_write",
    "deletion",
    "holes",
    "numpy_in_place",
    "extension_write",
    "two_threads",
]


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_type_and_line(name: str) -> None:
    needs("lines")
    if name == "numpy_in_place":
        pytest.importorskip("numpy")
    check(workload(name))


@pytest.mark.skipif(not IMMORTALITY, reason="no immortality in this interpreter")
def test_reading_what_is_immortal_and_frozen_blames_almost_nothing() -> None:
    needs("lines")
    found = workload("prepared")
    assert found["planted"] <= 0.02 * found["of"], found
    assert found["copied"] < 100, found


def test_without_perf_the_lines_are_the_same() -> None:
    needs("protect")
    found = workload("iterate", "protect")
    check({**found, "unsure": 0})


def test_addresses_alone_name_cause_and_type() -> None:
    needs("addresses")
    found = workload("iterate", "addresses")
    assert found["causes"]["reference count"] >= 0.95 * found["planted"]
    assert found["counts"]["lost"] == 0


def test_pages_alone_are_unrecorded() -> None:
    found = workload("iterate", "pages")
    assert found["causes"] == {"unrecorded": found["copied"]}


# ---- beside others ------------------------------------------------------------------

# None of these collects: a collection, in the parent or in the child, would be the
# first to write to many of the pages.
TASK = """
import faulthandler, gc, json, os, signal, sys, threading
import cowlab
gc.disable()
data = [[i] for i in range(20_000)]
def task():
    for one in data:
        pass
{}
report = cowlab.measure(task, record="lines")
rows = report.blame.by_line()
print(json.dumps([report.copied, rows[0].pages, rows[0].name.rpartition(":")[2]]))
"""

TRACE = "sys.settrace(lambda *event: None)"
MONITOR = """
monitoring = sys.monitoring
monitoring.use_tool_id(3, "test")
monitoring.set_events(3, monitoring.events.LINE | monitoring.events.PY_START)
monitoring.register_callback(3, monitoring.events.LINE, lambda *event: None)
"""


@pytest.mark.parametrize(
    "beside",
    ["", "faulthandler.enable()", TRACE, "sys.setprofile(lambda *event: None)"]
    + ([MONITOR] if sys.version_info >= (3, 12) else []),
    ids=["nothing", "faulthandler", "settrace", "setprofile", "monitoring"][
        : 5 if sys.version_info >= (3, 12) else 4
    ],
)
def test_lines_are_right_beside(beside: str) -> None:
    needs("lines")
    copied, pages, line = json.loads(fresh("-c", TASK.format(beside)))
    assert pages >= 0.75 * copied
    assert line in ("7", "8")


def test_the_jit_changes_nothing() -> None:
    needs("lines")
    if not getattr(getattr(sys, "_jit", None), "is_available", bool)():
        pytest.skip("this interpreter has no JIT")
    code = TASK.format("")
    copied, pages, line = json.loads(fresh("-c", code, env={"PYTHON_JIT": "1"}))
    assert pages >= 0.75 * copied
    assert line in ("7", "8")


def test_previous_handlers_are_kept_and_called() -> None:
    needs("lines")
    code = (
        "import os, signal, cowlab\n"
        "got = []\n"
        "signal.signal(signal.SIGTRAP, lambda *_: got.append(1))\n"
        "with cowlab.record('lines'):\n"
        "    os.kill(os.getpid(), signal.SIGTRAP)\n"
        "os.kill(os.getpid(), signal.SIGTRAP)\n"
        "print(len(got))"
    )
    assert fresh("-c", code) == "2"


def test_a_crash_still_is_one() -> None:
    """SIGSEGV outside what is guarded goes to faulthandler, then ends the process."""
    code = (
        "import ctypes, faulthandler, cowlab\n"
        "faulthandler.enable()\n"
        "with cowlab.record('protect'):\n"
        "    ctypes.string_at(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr


def test_threads_started_later_and_code_that_is_gone() -> None:
    """A thread's code object is freed before the record is read."""
    needs("lines")
    code = (
        "import json, threading, gc, cowlab\n"
        "gc.disable()\n"
        "data = [[i] for i in range(20_000)]\n"
        "def task():\n"
        "    space = {'data': data}\n"
        "    exec('def gone():\\n for x in data:\\n  pass', space)\n"
        "    thread = threading.Thread(target=space['gone'])\n"
        "    thread.start(); thread.join()\n"
        "    space.clear(); del thread; gc.collect()\n"
        "rows = cowlab.measure(task, record='lines').blame.by_function()\n"
        "print(json.dumps([[row.name, row.pages] for row in rows]))"
    )
    rows = dict(json.loads(fresh("-c", code)))
    assert rows["<string>:gone"] >= 200


def test_a_thread_that_blocks_the_signal_is_unrecorded_and_not_lost() -> None:
    needs("lines")
    code = (
        "import gc, json, signal, cowlab\n"
        "gc.disable()\n"
        "data = [[i] for i in range(20_000)]\n"
        "def task():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTRAP})\n"
        "    for x in data:\n"
        "        pass\n"
        "report = cowlab.measure(task, record='lines')\n"
        "causes = {row.name: row.pages for row in report.blame.by_cause()}\n"
        "print(json.dumps([report.copied, causes]))"
    )
    copied, causes = json.loads(fresh("-c", code))
    assert sum(causes.values()) == copied
    assert causes["unrecorded"] >= 0.8 * copied


def test_threads_that_were_there_before() -> None:
    needs("lines")
    code = (
        "import gc, json, os, threading, cowlab\n"
        "gc.disable()\n"
        "data = [[i] for i in range(20_000)]\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    go = threading.Event()\n"
        "    def old():\n"
        "        go.wait()\n"
        "        for x in data:\n"
        "            pass\n"
        "    thread = threading.Thread(target=old)\n"
        "    thread.start()\n"
        "    with cowlab.record() as recorder:\n"
        "        go.set()\n"
        "        thread.join()\n"
        "    rows = recorder.blame().by_function()\n"
        "    print(json.dumps([rows[0].name, rows[0].pages]), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )
    name, pages = json.loads(fresh("-c", code))
    assert name == "<string>:old"
    assert pages >= 200


def test_the_cost_does_not_depend_on_the_length_of_the_function() -> None:
    """Not timed: one code object is interned once, whatever its length."""
    needs("lines")
    body = "\n".join(f" x = {i}" for i in range(2000))
    code = (
        "import cowlab\n"
        "data = [[i] for i in range(20_000)]\n"
        f"source = '''def long():\n{body}\n for x in data:\n  pass'''\n"
        "space = {'data': data}\n"
        "exec(source, space)\n"
        "blame = cowlab.measure(space['long'], record='lines').blame\n"
        "print(blame.by_line()[0].name)"
    )
    assert fresh("-c", code) in ("<string>:2002", "<string>:2003")


# ---- in a process that was forked by somebody else ----------------------------------


def in_child(task: Any) -> Any:
    """Run in a forked child; its answer, as JSON. Nobody collects meanwhile: pages that
    the parent's collector writes to are the child's alone, and nobody saw by whom."""
    was_on = gc.isenabled()
    gc.disable()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(into, json.dumps(task()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        text = file.read()
    if was_on:
        gc.enable()
    assert os.waitpid(pid, 0)[1] == 0
    return json.loads(text)


DATA = [[i, i] for i in range(20_000)]


def use_data() -> None:
    for _ in DATA:
        pass


@pytest.mark.parametrize("mode", MODES)
def test_a_forked_process_records_itself(mode: str) -> None:
    needs(mode)

    def task() -> Any:
        with cowlab.record(mode) as recorder:
            use_data()
        blame = recorder.blame()
        return [
            blame.copied,
            blame.heap,
            {row.name: row.pages for row in blame.by_cause()},
            {row.name: row.pages for row in blame.by_function()},
        ]

    copied, heap, causes, functions = in_child(task)
    assert copied >= 200
    if mode == "pages":
        assert causes == {"unrecorded": copied}
        return
    assert heap == "parent"
    assert causes["reference count"] >= 0.9 * copied
    if mode != "addresses":
        assert functions[f"{__file__}:use_data"] >= 0.9 * copied


def test_a_record_is_read_from_outside_while_it_grows(tmp_path: Path) -> None:
    needs("lines")
    path = tmp_path / "record"
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            recorder = cowlab.record("lines", path).start()
            use_data()
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            del recorder
        finally:
            os._exit(0)
    os.read(ready[0], 1)
    record = cowlab.read_record(path)
    blame = record.blame()
    os.write(done[1], b"x")
    os.waitpid(pid, 0)
    for end in (*ready, *done):
        os.close(end)
    assert (record.pid, record.parent, record.state) == (pid, os.getpid(), "on")
    seen = [fault for fault in record.faults if fault.function == "use_data"]
    assert len(seen) >= 200
    assert {fault.file for fault in seen} == {__file__}
    # From this process, which is the parent, whose memory is as it was.
    assert blame.heap == "parent"
    assert blame.by_cause()[0].name == "reference count"
    assert blame.by_type()[0].name == "list"
    assert blame.by_function()[0].pages >= 200


def test_one_recorder_at_a_time() -> None:
    other = cowlab.record("pages")
    with (
        cowlab.record("pages"),
        pytest.raises(cowlab.Unsupported, match="stop that one first"),
    ):
        other.start()
    with cowlab.record("pages"):
        pass


def test_a_fork_of_a_recorded_process_can_record(tmp_path: Path) -> None:
    with cowlab.record("pages"):

        def task() -> Any:
            with cowlab.record("pages") as inner:
                use_data()
            return inner.read().pid == os.getpid()

        assert in_child(task)


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        cowlab.record("everything")
    with pytest.raises(ValueError, match="mode must be one of"):
        cowlab.measure(use_data, record="everything")
    with pytest.raises(cowlab.Unsupported, match="not started"):
        cowlab.record("pages").read()
    used = tmp_path / "used"
    used.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        cowlab.record("pages", used).start()
    assert used.read_bytes() == b"mine"


@pytest.mark.parametrize("content", [b"", b"x", b"COWLREC1" * 64, bytes(100_000)])
def test_a_file_that_is_no_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(cowlab.Truncated, match="not a cowlab record"):
        cowlab.read_record(path)


def test_a_damaged_record_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "record"
    with cowlab.record("pages", path):
        pass
    whole = path.read_bytes()[:8192]
    size = path.stat().st_size
    for at in range(8, 400, 4):
        broken = bytearray(whole)
        broken[at : at + 4] = b"\xff\xff\xff\x7f"
        with open(path, "r+b") as file:
            file.write(broken)
            file.truncate(size)
        with contextlib.suppress(cowlab.Truncated):
            cowlab.read_record(path)
