"""The benchmark's harness runs and adds up; its figures are not judged here."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import cowlab

BENCH = Path(__file__).parents[2] / "bench"


def bench(*args, **env):
    root = str(Path(cowlab.__file__).parents[1])
    return subprocess.run(
        [sys.executable, str(BENCH), *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": root, **env},
    )


@pytest.fixture(scope="module")
def harness():
    spec = importlib.util.spec_from_file_location("harness", BENCH / "harness.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["harness"]


@pytest.mark.any_python
def test_every_row_runs_or_says_why_not():
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler for the floors")
    done = bench("--quick", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["quick"] is True
    for row in report["rows"]:
        if row["unavailable"]:
            continue
        assert len(row["scores"]) == len(row["samples"]["cowlab"])
        assert min(row["samples"]["cowlab"]) > 0, row
        assert (row["met"] is None) == (row["budget"] is None)


def test_a_floor_that_cannot_be_compiled_is_told():
    done = bench("--quick", "--json", "smaps_rollup", CC="false")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert "does not compile" in row["unavailable"]


def test_an_unknown_row_is_wrong_usage():
    done = bench("nothing")
    assert done.returncode == 2
    assert "there is no row 'nothing'; there are: import" in done.stderr


def test_a_score_is_the_ratio_of_each_round(harness):
    asked = []

    @contextmanager
    def prepare(size):
        def contender(name, value):
            asked.append(name)
            return value

        yield {
            "cowlab": lambda: contender("cowlab", 3.0),
            "floor": lambda: contender("floor", 2.0),
        }

    size = harness.Size(rounds=4, loops=1, memory=0, objects=0)
    row = harness.Row("x", "x", "us", prepare, harness.Budget(1.5))
    result = harness.run(row, size)
    assert result.scores == [1.5] * 4
    assert result.met is True
    assert result.wide is False
    # Warmed once each; then they take turns at being first.
    order = ["cowlab", "floor", "floor", "cowlab"]
    assert asked == ["cowlab", "floor", *order, *order]


@pytest.mark.parametrize(
    ("limit", "at_least", "met"),
    [(1.0, False, False), (2.0, False, True), (1.0, True, True), (2.0, True, False)],
)
def test_budgets(harness, limit, at_least, met):
    assert harness.Budget(limit, "ms", at_least).met(1.5) is met


def test_a_wide_spread_is_told(harness):
    row = harness.Row("x", "x", "ms", lambda size: None, harness.Budget(5, "ms"))
    assert harness.Measured(row, {}, [1.0, 1.0, 2.0]).wide is True
    assert harness.Measured(row, {}, [1.0, 1.0, 1.1]).wide is False
