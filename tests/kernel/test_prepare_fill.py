"""prepare_fork(fill=...): what a child would fill is filled, and goes on working."""

from __future__ import annotations

import pytest
from conftest import FEW_PAGES, immortality, requires
from fresh import HEAP, fresh

import cowlab
from cowlab._prepare import prepare_fork

pytestmark = requires("gil")

INSTANCES = (
    HEAP
    + """
import pickle, weakref

class Thing:
    def __init__(self, i):
        self.number, self.text = float(i), "t\u00ebxt %d" % i

table = [Thing(i) for i in range(10_000)]

def dicts():
    return len([thing.__dict__ for thing in table])

def utf8():
    return len([pickle.dumps(thing.text) for thing in table])

def weakrefs():
    return len([weakref.ref(thing) for thing in table])
"""
)


@immortality
@pytest.mark.parametrize("name", ["dicts", "utf8", "weakrefs"])
def test_a_cache_that_is_filled_is_not_filled_by_a_child(name: str) -> None:
    without, copied, figures = fresh(
        INSTANCES
        + f"""
cowlab.prepare_fork()
without = cowlab.measure({name}).copied
report = cowlab.prepare_fork(fill="{name}")
copied = cowlab.measure({name}).copied
print(json.dumps([without, copied, report.step("fill").figures]))
"""
    )
    assert without > 100
    assert copied <= FEW_PAGES
    assert figures[name] >= 10_000
    assert figures["bytes"] >= 10_000 * 16
    assert sum(figures.values()) == figures[name] + figures["bytes"]


@immortality
def test_what_was_filled_goes_on_working() -> None:
    seen = fresh(
        INSTANCES
        + """
cowlab.prepare_fork(fill=True)

def use():
    first, second = table[:2]
    space = first.__dict__
    first.number = 5
    space["text"] = "new"
    second.more = 6
    del second.number
    called = []
    ref = weakref.ref(first, called.append)
    return [
        space, first.text, vars(second), hasattr(second, "number"),
        ref() is first, weakref.ref(first) is weakref.ref(first),
        pickle.loads(pickle.dumps(table[2])).__dict__, table[3].text.encode(),
    ]

child = cowlab.measure(use).value
assert child == use()
print(json.dumps(len(child)))
"""
    )
    assert seen == 8


@immortality
def test_no_code_of_the_program_runs_while_the_walk_does() -> None:
    """Neither a handler of encoding errors nor what finalises a copy."""
    assert (
        fresh(
            HEAP
            + """
import codecs, datetime
called = []
def strict(error):
    called.append([[i] for i in range(1000)])
    gc.collect()
    return "", error.end
class Moment(datetime.datetime):
    def __del__(self):
        called.append([[i] for i in range(1000)])
table = [chr(0xd800) + "ë%d" % i for i in range(300)]
table += [Moment(2020, 1, 1, fold=1) for _ in range(300)]
codecs.register_error("strict", strict)
cowlab.prepare_fork(fill=True)
print(json.dumps(len(called)))
"""
        )
        == 0
    )


def test_what_there_is_to_fill_is_named() -> None:
    with pytest.raises(cowlab.UsageError, match=r"fill: there is no 'dict'.*dicts"):
        prepare_fork(fill=["dict"])
