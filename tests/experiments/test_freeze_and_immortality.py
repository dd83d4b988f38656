"""Each remedy alone, both, and where to apply them, small and real."""

from __future__ import annotations

import sys

import pytest
from conftest import requires

from cowlab._runner import run

ROWS = 60_000


@pytest.fixture(scope="module")
def measured():
    return run("freeze-and-immortality", repeat=1, parameters={"rows": ROWS})


@requires("gil")
def test_freezing_is_for_collections_alone(measured):
    reads, collects = (
        {arm: measured.median(arm, metric) for arm in ("neither", "freeze")}
        for metric in ("reads", "collects")
    )
    assert reads["freeze"] > 0.9 * reads["neither"]
    assert collects["freeze"] < 0.2 * collects["neither"]
    assert measured.median("freeze-in-child", "collects") < 0.2 * collects["neither"]


@requires("gil")
@pytest.mark.skipif(sys.version_info < (3, 12), reason="immortality begins with 3.12")
def test_immortality_is_for_reads_alone(measured):
    plain = measured.median("neither", "reads")
    assert measured.median("immortal", "reads") < 0.1 * plain
    assert measured.median("immortal", "collects") > ROWS * 64 * 0.9
    assert measured.median("both", "collects") < ROWS * 64 * 0.2
    # In the child it writes what it was to keep shared.
    assert measured.median("immortal-in-child", "reads") > 0.9 * plain


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this version has immortality")
def test_311_says_which_arms_cannot_be(measured):
    said = "\n".join(str(failure) for failure in measured.failures)
    assert "3.12" in said
    assert {answer.id: answer.verdict for answer in measured.claims}["A11"] == (
        "unanswered"
    )
