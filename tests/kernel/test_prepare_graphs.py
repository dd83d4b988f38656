"""A prepared program does what it would have done, and ends as it would have ended."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import requires
from fresh import run_python
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytestmark = requires("gil")

PROGRAM = Path(__file__).with_name("graph_program.py")
KINDS = [
    "list",
    "tuple",
    "dict",
    "frozenset",
    "set",
    "deque",
    "ordered",
    "str",
    "interned",
    "bytes",
    "int",
    "float",
    "datetime",
    "array",
    "view",
    "thing",
    "slotted",
    "class",
    "instance",
    "generator",
    "closure",
    "partial",
    "bound",
    "error",
    "iterator",
    "weak",
    "namespace",
    "lock",
    "named",
    "local",
    "mixed dict",
    "called back",
    "weak values",
]
STEPS = [
    "read",
    "collect",
    "drop",
    "replace",
    "mutate",
    "clear",
    "make",
    "cycle",
    "thread",
]

nodes = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.lists(st.integers(0, 999), max_size=4).map(tuple)
    ),
    min_size=1,
    max_size=40,
)
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 999), st.integers(0, 999)),
    max_size=40,
)

EVERYTHING = [(kind, (i, 3 * i + 1)) for i, kind in enumerate(KINDS * 2)]
ALL_STEPS = [
    (step, 7 * i + j, i * j) for i, step in enumerate(STEPS) for j in range(12)
]


def run(prepare: int, nodes: object, steps: object, *, fill: bool = False) -> list[str]:
    plan = json.dumps(
        {"prepare": prepare, "fill": fill, "nodes": nodes, "steps": steps}
    )
    done = run_python(PROGRAM, plan, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return sorted(done.stdout.splitlines())


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes=nodes, steps=steps, times=st.integers(1, 2), fill=st.booleans())
@example(nodes=EVERYTHING, steps=ALL_STEPS, times=1, fill=False)
@example(nodes=EVERYTHING, steps=ALL_STEPS, times=2, fill=True)
def test_random_graphs(nodes: object, steps: object, times: int, fill: bool) -> None:
    plain = run(0, nodes, steps)
    assert len(plain) == 2
    assert run(times, nodes, steps, fill=fill) == plain
