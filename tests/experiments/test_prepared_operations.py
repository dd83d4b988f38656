"""After preparation everyday reads copy nothing, but for a list that is known.

A sample of the operations by default; ``COWLAB_OPERATIONS=1`` takes all (one minute).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from conftest import immortality
from fresh import run_python

from cowlab.experiments._operations import OPERATIONS

ITSELF = "the object: the operation changes it"
REMAINING = {
    "attribute-write": ITSELF,
    "bytearray-write": ITSELF,
    "dict-new-key": ITSELF,
    "dict-write": ITSELF,
    "list-append": ITSELF,
    "list-write": ITSELF,
    "readv": ITSELF,
    "set-add": ITSELF,
    "slot-write": ITSELF,
    "cached-property": "the instance, which keeps the result",
    "call-first": "the code object: from 3.13 on it specialises itself",
    "call-remembered": "the links of the cache: what was asked for last comes first",
    "generator-all": "the generator's state",
    "generator-next": "the generator's state",
    "lock": "the lock's state, and its reference count: locks stay mortal",
    "memoryview": "the count of exports",
    "path-str": "the path, which keeps its text",
    "raise": "the exception's traceback and context",
}
"""The operations that copy more than a tenth of what they did, each with its writer."""

NAMES = [operation.name for operation in OPERATIONS]
SAMPLE = [*NAMES[::20], "bytes-hash-all", "list-filter", "pickle", "memoryview"]


@immortality
def test_prepared_operations_copy_nothing_but_for_a_known_list() -> None:
    names = NAMES if os.environ.get("COWLAB_OPERATIONS") else SAMPLE
    program = Path(__file__).with_name("prepared_operations.py")
    done = run_python(program, *names, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name for name, _, _ in rows} == set(names)
    above = {
        name: (plain, prepared)
        for name, plain, prepared in rows
        if prepared > max(16, plain / 10)
    }
    assert above.keys() <= REMAINING.keys(), above
    assert "memoryview" in above  # so that the test can see one


def test_the_list_is_a_tenth_of_the_operations_that_there_are() -> None:
    assert REMAINING.keys() <= set(NAMES)
    assert len(REMAINING) <= len(NAMES) / 10
