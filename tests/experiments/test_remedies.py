"""The remedies experiment, small and real, and its judge on made-up figures."""

import signal
import subprocess
import sys

import pytest
from conftest import IMMORTALITY, requires

from cowlab import Unsupported
from cowlab._experiment import MIB, load
from cowlab._result import Result, Sample
from cowlab._runner import judge, run

ROWS = 20_000


@pytest.fixture(scope="module")
def measured():
    return run("remedies", repeat=1, parameters={"rows": ROWS, "children": 2})


@requires("gil")
def test_what_is_not_possible_here_says_so(measured):
    assert not measured.failed
    for failure in measured.failures:
        assert failure.arm in ("numpy", "ksm", "immortal")
        assert failure.why
    assert ("immortal" in measured.arms) == IMMORTALITY


@requires("gil")
def test_objects_are_copied_and_the_rest_is_not(measured):
    rows = ROWS * (64 + 3 * 32) * 2
    for arm in ("objects", "freeze"):
        assert measured.median(arm, "growth") > 0.9 * rows
    if "ksm" in measured.arms:
        assert measured.median("ksm", "growth") < 0.5 * rows
    for arm in ("array", "shared-memory", "file", "pickled", "immortal"):
        if arm in measured.arms:
            assert measured.median(arm, "copied") < 0.2 * rows
            assert measured.median(arm, "growth") < 0.3 * rows


def test_ksm_is_left_as_it_was(tmp_path, monkeypatch):
    """Settings that may be written, and ones that may not."""
    from cowlab.experiments import remedies

    for name, value in {"run": "0", "pages_to_scan": "100"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    monkeypatch.setattr(remedies, "KSM", tmp_path)
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library(0))
    with pytest.raises(LookupError), remedies._ksm():
        assert (tmp_path / "run").read_text() == "1"
        raise LookupError
    assert (tmp_path / "run").read_text() == "0\n"
    assert (tmp_path / "pages_to_scan").read_text() == "100\n"
    monkeypatch.setattr(remedies, "KSM_SETTINGS", {"run": "1", "nowhere": "1"})
    with pytest.raises(Unsupported, match="CONFIG_KSM"), remedies._ksm():
        pass
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library(-1))
    monkeypatch.setattr(remedies, "KSM_SETTINGS", {"run": "1"})
    with pytest.raises(Unsupported, match="needs Linux 6"), remedies._ksm():
        pass


def test_ksm_is_left_as_it_was_by_one_that_is_killed(tmp_path):
    for name, value in {"run": "0", "pages_to_scan": "100"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    program = f"""
import ctypes, os, pathlib, signal
from cowlab.experiments import remedies

class Library:
    def prctl(self, *words):
        return 0

ctypes.CDLL = lambda *_, **__: Library()
remedies.KSM = pathlib.Path({str(tmp_path)!r})
with remedies._ksm():
    print((remedies.KSM / "run").read_text(), flush=True)
    os.killpg(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
    )
    # Its output is at its end when the shell, which restores, has left, too.
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n")
    assert (tmp_path / "run").read_text() == "0\n"
    assert (tmp_path / "pages_to_scan").read_text() == "100\n"


def test_time_that_ksm_did_not_have_is_a_warning(monkeypatch):
    from cowlab.experiments import remedies

    counts = iter(range(100))
    monkeypatch.setattr(remedies, "_scans", lambda: next(counts))
    assert remedies._wait_for_ksm(60.0)
    assert next(counts) == 1 + remedies.KSM_SCANS
    monkeypatch.setattr(remedies, "_scans", lambda: 7)
    assert not remedies._wait_for_ksm(0.0)


class Library:
    """A C library whose prctl has one answer, so that KSM is not asked for here."""

    def __init__(self, answer):
        self.prctl = lambda *_: answer


@requires("gil")
def test_each_way_has_its_size_and_the_cost_of_a_read(measured):
    assert measured.median("array", "data") == ROWS * 24
    assert measured.median("file", "data") == ROWS * 24
    assert measured.median("objects", "data") > ROWS * 150
    for arm in measured.arms:
        assert 0 < measured.median(arm, "read") < 1e-3


def judged(**growths):
    """The verdict where the arms grow by these numbers of MiB."""
    usual = {"objects": 300, "freeze": 300, "array": 1, "shared-memory": 1, "file": 1}
    usual |= {"pickled": 2, "immortal": 1} | growths
    samples = [
        Sample(arm, {"growth": growth * MIB, "read": 1e-7, "data": MIB})
        for arm, growth in usual.items()
        if growth is not None
    ]
    exp = load("remedies")
    result = Result(exp.name, exp.title, exp.columns, {"rows": 1}, {}, tuple(samples))
    (answer,) = judge(exp, result).claims
    return answer


def test_the_verdict_follows_the_figures():
    usual = judged()
    assert usual.verdict == "reproduced"
    assert "freeze leaves 100%" in usual.why
    assert "immortal" in usual.why
    assert judged(immortal=None).verdict == "reproduced"
    assert judged(array=100).verdict == "refuted"
    assert judged(immortal=100).verdict == "refuted"
    assert judged(freeze=3).verdict == "different"
    assert judged(objects=3).verdict == "unanswered"
