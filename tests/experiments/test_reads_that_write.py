"""The catalogue of reads that write: large, and right where the answer is known."""

from __future__ import annotations

import sys

import pytest

import cowlab
from cowlab.experiments._operations import OPERATIONS
from cowlab.experiments.reads_that_write import COLUMNS, FIELD

ARMS = [
    "nothing",
    "list-iterate",
    "bytes-hash-all",
    "call-first",
    "generator-all",
    "gc-collect",
    "new-in-holes",
    "delete",
]


@pytest.fixture(scope="module")
def result() -> cowlab.Result:
    try:
        with cowlab.record("lines"):
            pass
    except cowlab.Unsupported as error:
        pytest.skip(str(error))
    found = cowlab.run(
        "reads-that-write", arms=ARMS, parameters={"objects": 4000}, repeat=1
    )
    assert isinstance(found, cowlab.Result)
    assert not found.failures, found.failures
    return found


def test_the_catalogue_has_eighty_operations_and_more() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS) >= 80


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_works(operation: object) -> None:
    if operation.name == "gc-freeze":  # type: ignore[attr-defined]
        pytest.skip("would freeze the objects of the tests")
    operation.warm()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arm", "column", "field"),
    [
        ("list-iterate", "counts", "reference count of list"),
        ("bytes-hash-all", "caches", "hash cache of bytes"),
        ("generator-all", "contents", "generator state of generator"),
        ("gc-collect", "gc", "GC links of list"),
        ("new-in-holes", "heap", "allocation"),
    ],
)
def test_the_field_is_the_right_one(
    result: cowlab.Result, arm: str, column: str, field: str
) -> None:
    assert result.median(arm, column) > 0.7 * result.median(arm, "copied")
    assert result.median(arm, FIELD + field) > 50


def test_columns_add_up(result: cowlab.Result) -> None:
    for arm in ARMS:
        parts = sum(result.median(arm, name) for name in COLUMNS)
        assert parts == pytest.approx(result.median(arm, "copied"))
    assert result.median("nothing", "copied") < 50


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no immortality")
def test_preparing_ends_the_reads(result: cowlab.Result) -> None:
    for arm in ("list-iterate", "bytes-hash-all"):
        assert result.median(arm, "prepared") < 0.1 * result.median(arm, "copied")
