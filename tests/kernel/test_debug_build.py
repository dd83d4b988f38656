"""A debug build of CPython asserts on what sealing, trimming and immortality break."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable

import pytest
from heap_programs import run

import cowlab
from cowlab import _native

pytestmark = pytest.mark.skipif(
    not hasattr(sys, "gettotalrefcount"), reason="this is a release build"
)


@pytest.mark.parametrize(
    "act",
    [cowlab.trim, _native.trim_pools, _native.seal_pools, cowlab.immortalize],
)
def test_refused_by_name(act: Callable[[], object]) -> None:
    with pytest.raises(cowlab.Unsupported, match="debug build"):
        act()


def test_preparation_says_what_it_left_out_and_does_the_rest() -> None:
    program = """
    import cowlab, gc
    rows = [[i] for i in range(20_000)]
    report = cowlab.prepare_fork()
    (found,) = [one for one in report.conditions if one.name == "debug-build"]
    left_out = {step.name for step in report.steps if not step.done}
    assert {"trim", "immortalize", "seal"} <= set(found.steps) <= left_out, report
    assert report.step("freeze").figures["frozen"] > 20_000, report
    assert cowlab.measure(gc.collect).copied < 500
    print(report)
    """
    assert "debug build" in run(textwrap.dedent(program))
