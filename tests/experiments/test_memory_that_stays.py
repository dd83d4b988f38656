"""survivor-placement and tracemalloc-gap, small and real."""

import pytest
from conftest import requires

from cowlab._runner import run


@pytest.fixture(scope="module")
def placed():
    return run("survivor-placement", repeat=1, parameters={"tuples": 200_000})


@requires("gil")
def test_placement_decides(placed):
    assert not placed.failures
    assert placed.median("every-100", "share") > 0.8
    assert placed.median("random-1%", "share") > 0.8
    assert placed.median("first-1%", "share") < 0.2
    assert placed.median("none", "share") < 0.15


@requires("gil")
def test_a_trim_gives_back_what_the_bars_say(placed):
    assert placed.median("every-100", "trimmed_share") <= 0.68
    assert placed.median("random-1%", "trimmed_share") <= 0.60
    assert placed.median("all", "trimmed_share") > 0.95
    answers = {answer.id: answer for answer in placed.claims}
    assert answers["A16"].verdict in ("reproduced", "different")
    assert answers["A16-cure"].verdict == "refuted"


@requires("gil")
def test_the_bars_add_up_to_the_growth():
    result = run("tracemalloc-gap", repeat=1, parameters={"pairs": 100_000})
    assert not result.failures
    names = ("requested", "rounding", "pools", "tracer", "libc", "rest")
    total = sum(result.median("traced", name) for name in names)
    growth = result.median("traced", "growth")
    assert total == pytest.approx(growth, rel=0.01)
    assert result.median("traced", "ratio") > 2
    assert result.median("plain", "growth") < growth / 2
    assert result.claims[0].verdict in ("reproduced", "different")
