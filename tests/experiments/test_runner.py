"""The runner, with real interpreters."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cowlab._errors import UsageError
from cowlab._experiment import load, source
from cowlab._interpreter import _BOOT as BOOT
from cowlab._interpreter import Interpreter
from cowlab._runner import run

TOY = str(Path(__file__).with_name("toy.py"))

# The experiments' own tests run arms under every interpreter.
pytestmark = pytest.mark.any_python


def test_every_sample_has_an_interpreter_of_its_own():
    result = run(TOY, arms=["good", "other"])
    pids = [sample.metrics["pid"] for sample in result.samples]
    assert len(set(pids)) == 4
    assert os.getpid() not in pids
    assert [claim.verdict for claim in result.claims] == [
        "reproduced",
        "unanswered",
        "unanswered",
    ]
    assert "10 rows" in result.claims[0].why
    assert not result.failed


def test_arms_alternate(tmp_path):
    log = tmp_path / "log"
    arms = ["good", "other", "dev"]
    run(TOY, arms=arms, repeat=3, parameters={"log": log})
    assert log.read_text().split() == [*arms, *arms[::-1], *arms]


def test_an_arm_is_not_measured_with_the_users_settings(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    result = run(TOY, arms=["good", "other", "dev"], repeat=1)
    for arm, malloc, dev in (("good", 0, 0), ("other", 1, 0), ("dev", 0, 1)):
        assert result.median(arm, "leaked") == 0
        assert result.median(arm, "kept") == 1
        assert result.median(arm, "numpy") == 0
        assert result.median(arm, "malloc") == malloc
        assert result.median(arm, "traced") == dev


def test_modules_of_the_current_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('wrong json')")
    (tmp_path / "cowlab.py").write_text("raise SystemExit('wrong cowlab')")
    monkeypatch.chdir(tmp_path)
    assert not run(TOY, arms=["good"], repeat=1).failed


def test_arms_that_fail_are_told_and_the_others_go_on():
    failing = {
        "crash": ("crashed", "killed by SIGABRT\n    these are my last words"),
        "exit": ("crashed", "status 7"),
        "closed": ("crashed", "Bad file descriptor"),
        "raise": ("raised", "KeyError: 'no such row'\n    Traceback"),
        "text": ("raised", "rows is no number"),
        "unsupported": ("unsupported", "install it"),
    }
    result = run(TOY, arms=[*failing, "good"])
    found = {failure.arm: failure for failure in result.failures}
    assert list(found) == list(failing)
    for arm, (kind, why) in failing.items():
        assert found[arm].kind == kind
        assert why in found[arm].why
    assert len(result.values("good", "rows")) == 2
    assert result.failed


def test_what_is_not_possible_here_fails_a_run_only_where_nothing_was():
    assert not run(TOY, arms=["unsupported", "good"], repeat=1).failed
    assert run(TOY, arms=["unsupported"]).failed


def test_an_arm_that_runs_past_its_time_is_killed():
    result = run(TOY, arms=["sleep"], timeout=1)
    assert [failure.kind for failure in result.failures] == ["timeout"]
    assert "1 s" in result.failures[0].why


def session(leader):
    """The stat lines of the processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(fields)
    return found


def test_what_an_arm_leaves_behind_does_not_matter():
    result = run(TOY, arms=["child", "twice", "noise"], repeat=1)
    assert not result.failures
    for sample in result.samples:
        assert sample.metrics["rows"] == 10
        deadline = time.monotonic() + 60
        while alive := session(sample.metrics["pid"]):
            assert time.monotonic() < deadline, (sample.arm, alive)
            time.sleep(0.01)


def test_an_arm_whose_thread_does_not_end_is_not_waited_for():
    begin = time.monotonic()
    result = run(TOY, arms=["thread"], repeat=1, timeout=1000)
    assert result.samples[0].metrics["rows"] == 10
    assert time.monotonic() - begin < 500


def test_warnings_of_an_arm_are_kept_with_its_sample():
    result = run(TOY, arms=["good"], repeat=1, parameters={"how": "careful"})
    assert result.samples[0].warnings == ("read careful",)


def test_progress_is_told():
    told = []
    run(TOY, arms=["good"], repeat=2, progress=lambda *step: told.append(step))
    assert told == [(0, 2, "good"), (1, 2, "good")]


@pytest.mark.parametrize(
    "wrong",
    [{"repeat": 0}, {"timeout": 0}, {"arms": ["goood"]}, {"parameters": {"x": 1}}],
)
def test_wrong_usage_is_told_before_anything_runs(wrong):
    with pytest.raises(UsageError):
        run(TOY, **wrong)


def test_an_experiment_object_is_found_again_by_its_source():
    toy = load(TOY)
    assert source(toy) == TOY
    assert source(load("refcount-privatisation")) == "refcount-privatisation"
    assert run(toy, arms=["good"], repeat=1).experiment == "toy"


@pytest.mark.usefixtures("uncollected")
def test_nothing_leaks():
    place = Interpreter.current()
    place.environment()
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        place.environment()
    assert os.listdir("/proc/self/fd") == before


def test_the_environment_names_no_host_user_or_path():
    found = Interpreter.current().environment()
    assert {
        "python",
        "build",
        "kernel",
        "page_size",
        "thp",
        "allocator",
    } <= found.keys()
    assert {"memory", "cgroup"} <= found.keys()
    text = str(list(found.values()))
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4
    assert "/" not in text.replace(os.uname().release, "")


def send_while_an_arm_sleeps(number, tmp_path, *options):
    """Exit code, stdout and stderr of a run that gets a signal, and what it left."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "cowlab", "run", TOY, "--repeat", "1"]
    command += ["--arm", "good", "--arm", "sleep", "--set", f"log={log}"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (log.exists() and "sleep" in log.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    (arm,) = (
        Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    )
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err, session(int(arm))


@pytest.fixture
def hang_up():
    """The default for a hangup: nohup has it ignored, which is inherited."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_takes_its_arm_along(number, tmp_path):
    code, _, err, left = send_while_an_arm_sleeps(number, tmp_path)
    assert (code, err, left) == (128 + number, b"", [])


def test_a_run_that_is_killed_takes_its_arm_along(tmp_path):
    code, _, _, left = send_while_an_arm_sleeps(signal.SIGKILL, tmp_path)
    assert code == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while left and (left := session(int(left[0][3]))):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_an_arm_does_not_begin_whose_runner_was_killed_while_it_started():
    place = Interpreter.current()
    reading, writing = os.pipe()
    os.close(reading)
    order = {"do": "run", "experiment": TOY, "arm": "sleep", "pipe": writing}
    order |= {"parameters": load(TOY).settings({}), "seconds": 1000}
    arm = subprocess.Popen(
        [place.python, "-P", "-c", BOOT, place.root, json.dumps(order)],
        pass_fds=[writing],
        start_new_session=True,
    )
    os.close(writing)
    try:
        assert arm.wait(60) == 1
    finally:
        arm.kill()
        arm.wait()


def test_ctrl_c_keeps_what_was_finished(tmp_path):
    saved = tmp_path / "result.json"
    code, out, err, left = send_while_an_arm_sleeps(
        signal.SIGINT, tmp_path, "--json", str(saved)
    )
    assert code == 130
    assert left == []
    assert b"Interrupted" in out
    assert b"good" in out
    assert b"Traceback" not in err
    assert '"interrupted": true' in saved.read_text()
