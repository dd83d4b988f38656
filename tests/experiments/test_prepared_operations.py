"""After preparation everyday reads copy nothing, but for a list that is known.

A sample of the operations by default; ``COWLAB_OPERATIONS=1`` takes all (two minutes).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cowlab
from cowlab.experiments._operations import OPERATIONS

ITSELF = "the object: the operation changes it"
DICT = "the word before the object, for the __dict__ that is made on demand"
LIBC = "free blocks of the C library, which no seal closes"
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
    "copy": DICT,
    "deepcopy": DICT,
    "instance-dict": DICT,
    "pickle": DICT,
    "list-filter": LIBC,
    "new": LIBC,
    "new-in-holes": LIBC,
    "call-first": "the code object: from 3.13 on it specialises itself",
    "generator-all": "the generator's state",
    "generator-next": "the generator's state",
    "lock": "the lock's state, and its reference count: locks stay mortal",
    "memoryview": "the count of exports",
    "pickle-text": "the string, which keeps its UTF-8",
    "raise": "the exception's traceback and context",
    "weakref": "the word before the object, for its weak references",
}
"""The operations that copy more than a tenth of what they did, each with its writer."""

NAMES = [operation.name for operation in OPERATIONS]
SAMPLE = [*NAMES[::15], "bytes-hash-all", "weakref"]


@pytest.mark.skipif(
    sys.version_info < (3, 12) or hasattr(sys, "gettotalrefcount"),
    reason="no immortality: it begins with CPython 3.12, and not in debug builds",
)
def test_prepared_operations_copy_nothing_but_for_a_known_list() -> None:
    names = NAMES if os.environ.get("COWLAB_OPERATIONS") else SAMPLE
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("prepared_operations.py")),
            *names,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(cowlab.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name for name, _, _ in rows} == set(names)
    above = {
        name: (plain, prepared)
        for name, plain, prepared in rows
        if prepared > max(16, plain / 10)
    }
    assert above.keys() <= REMAINING.keys(), above
    assert "weakref" in above  # so that the test can see one


def test_the_list_names_operations_that_there_are() -> None:
    assert REMAINING.keys() <= set(NAMES)
