"""A real gunicorn with a small table and a short load."""

from __future__ import annotations

import sys

import pytest
from conftest import requires

from cowlab._runner import run

pytest.importorskip("gunicorn", reason="gunicorn is not installed here")
pytest.importorskip("django", reason="Django is not installed here")


@pytest.fixture(scope="module")
def measured():
    small = {"rows": 15_000, "workers": 2, "requests": 150}
    return run("prefork-django", repeat=1, parameters=small)


@requires("gil")
def test_every_arm_did_the_work(measured):
    assert not measured.failures
    servers = ["each-loads", "plain", "freeze", "prepare"]
    assert measured.arms == [*servers, "trial-plain", "trial-prepare"]
    assert all(measured.median(arm, "rate") > 0 for arm in servers)
    assert all(0 < measured.median(arm, "cpu") < 1 for arm in measured.arms)


@requires("gil")
def test_workers_of_a_prepared_master_keep_sharing(measured):
    def size(arm):
        return measured.median(arm, "uss")

    assert size("plain") < size("each-loads")
    if sys.version_info >= (3, 12):
        assert size("prepare") < 0.6 * size("plain")
        assert measured.median("prepare", "faults") < measured.median("plain", "faults")


@requires("gil")
def test_a_trial_says_what_the_server_does(measured):
    def size(arm):
        return measured.median(arm, "pss")

    for arm in ("plain", "prepare"):
        assert size(f"trial-{arm}") == pytest.approx(size(arm), rel=0.2)
    server = size("prepare") / size("plain")
    tried = size("trial-prepare") / size("trial-plain")
    assert tried == pytest.approx(server, rel=0.12)
    (note,) = measured.notes
    assert f"{tried:.3f} of plain" in note


@requires("gil")
def test_too_small_a_table_gives_no_verdict(measured):
    answers = {answer.id: answer for answer in measured.claims}
    assert answers["A11"].verdict == "unanswered"
