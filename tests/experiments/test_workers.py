"""The workers experiment, small and real, and its judges on made-up figures."""

import pytest
from conftest import IMMORTALITY, requires

from cowlab._experiment import MIB, load
from cowlab._result import Result, Sample
from cowlab._runner import judge, run

ROWS = 40_000


@pytest.fixture(scope="module")
def measured():
    arms = ["idle-8", "plain-1", "plain-4", "prepared-4"]
    return run("workers", repeat=1, parameters={"rows": ROWS}, arms=arms)


@requires("gil")
def test_each_worker_adds_what_it_reads(measured):
    assert not measured.failures
    rows = ROWS * (64 + 3 * 32)
    for arm, workers in (("plain-1", 1), ("plain-4", 4)):
        assert measured.median(arm, "growth") > 0.9 * rows * workers
        assert measured.median(arm, "copied") > 0.9 * rows * workers
        assert measured.median(arm, "rss_growth") < 0.3 * rows * workers
    if IMMORTALITY:
        assert measured.median("prepared-4", "growth") < 0.2 * rows


@requires("gil")
def test_idle_children_have_the_parents_rss_and_a_ninth_of_it(measured):
    parent = measured.median("idle-8", "parent_rss")
    # Less the libraries' pages that a child has no need of yet.
    assert 0.5 * parent < measured.median("idle-8", "child_rss") < 1.05 * parent
    assert measured.median("idle-8", "child_pss") < parent / 5
    assert measured.median("idle-8", "private_dirty") < MIB


@requires("gil")
def test_too_few_rows_answer_nothing(measured):
    assert [answer.verdict for answer in measured.claims] == ["unanswered"] * 2


def made_up(**arms):
    """The answers to a usual run's figures, in MiB, but for ``arms``."""
    usual = {
        "idle-8": {"child_rss": 100, "child_pss": 11, "parent_rss": 100},
        "plain-1": {"pss": 190},
        "plain-2": {"pss": 280},
        "plain-4": {"pss": 460},
        "plain-8": {"pss": 820, "growth": 720, "rss_growth": 5, "private_dirty": 90},
        "prepared-1": {"pss": 100},
        "prepared-8": {"pss": 105},
    }
    samples = []
    for arm, figures in usual.items():
        given = {"parent_rss": 100, "copied": 720} | figures
        given |= arms.get(arm.replace("-", ""), {})
        samples.append(Sample(arm, {k: v * MIB for k, v in given.items()}))
    exp = load("workers")
    result = Result(exp.name, exp.title, exp.columns, {}, {}, tuple(samples))
    return {answer.id: answer for answer in judge(exp, result).claims}


def test_the_usual_run_reproduces_both_claims():
    answers = made_up()
    assert {answer.verdict for answer in answers.values()} == {"reproduced"}
    assert "8.2x" in answers["A12"].why
    assert "prepared 105 MiB" in answers["A12"].why


def test_workers_that_share_all_refute_the_first():
    assert made_up(plain8={"pss": 100})["A12"].verdict == "refuted"
    assert made_up(plain8={"pss": 470})["A12"].verdict == "different"


def test_an_rss_that_sees_copies_refutes_the_second():
    assert made_up(plain8={"rss_growth": 700})["A13"].verdict == "refuted"
    assert made_up(idle8={"child_pss": 100})["A13"].verdict == "refuted"
