"""Workers of multiprocessing over a small dataset, and the judge on made-up figures."""

import sys

import pytest
from conftest import IMMORTALITY, requires

from cowlab._experiment import MIB, load
from cowlab._result import Result, Sample
from cowlab._runner import judge, run


@requires("gil")
def test_workers_of_a_prepared_parent_keep_the_dataset_shared():
    pytest.importorskip("numpy", reason="numpy is not installed here")
    small = {"rows": 20_000, "workers": 2, "epochs": 2}
    measured = run("dataset-workers", repeat=1, parameters=small)
    assert not measured.failures
    plain = measured.median("plain", "growth")
    # A dict, two texts and two arrays of each sample, in each worker.
    assert plain > 0.9 * 2 * 20_000 * 350
    assert measured.median("freeze", "growth") > 0.9 * plain
    for arm in measured.arms:
        assert measured.median(arm, "pss") > measured.median(arm, "growth")
    if IMMORTALITY:
        assert measured.median("prepared", "growth") < 0.2 * plain
        assert measured.median("prepared", "uss") < 0.3 * measured.median(
            "plain", "uss"
        )


def test_an_arm_without_numpy_says_so(monkeypatch):
    from cowlab import Unsupported
    from cowlab.experiments.dataset_workers import run_arm

    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(Unsupported, match="pip install numpy"):
        run_arm("plain", rows=100, workers=1, epochs=1, batch=10)


def judged(growth, prepared, parent=180):
    exp = load("dataset-workers")
    growths = {"plain": growth, "prepared": prepared}
    samples = [
        Sample(
            arm,
            {
                "growth": size * MIB,
                "first": size * MIB / 2,
                "parent": parent * MIB,
                "pss": (parent + size) * MIB,
            },
        )
        for arm, size in growths.items()
        if size is not None
    ]
    settings = exp.settings({})
    result = Result(exp.name, exp.title, exp.columns, settings, {}, tuple(samples))
    return judge(exp, result)


def test_the_verdict_follows_the_figures():
    usual = judged(314, 6)
    (answer,) = usual.claims
    assert answer.verdict == "different"
    assert "grows by 1.9% of what plain grows by" in answer.why
    assert "50% of the growth comes in the first of 3 epochs" in usual.notes[0]
    assert judged(600, 6).claims[0].verdict == "reproduced"
    assert judged(40, 6).claims[0].verdict == "refuted"
    assert judged(4, 1).claims[0].verdict == "unanswered"
    assert "not measured here" in judged(314, None).claims[0].why
