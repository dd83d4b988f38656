"""CPython's own tests pass with everything immortal, frozen and sealed.

A few modules by default; ``COWLAB_STDLIB=1`` runs all of them (two minutes).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from conftest import immortality
from fresh import run_python

PROGRAM = Path(__file__).with_name("stdlib_immortal.py")
QUICK = ["test_generators", "test_ordered_dict"]
ALL = [
    *QUICK,
    "test_weakref",
    "test_bytes",
    "test_collections",
    "test_contextlib",
    "test_copy",
    "test_coroutines",
    "test_dataclasses",
    "test_deque",
    "test_descr",
    "test_dict",
    "test_enum",
    "test_exceptions",
    "test_functools",
    "test_itertools",
    "test_json",
    "test_list",
    "test_pickle",
    "test_re",
    "test_set",
    "test_threading",
    "test_tuple",
]


def has_tests() -> bool:
    try:
        return importlib.util.find_spec("test.test_list") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(
    not has_tests(),
    reason="this interpreter came without its own test suite (Debian's"
    " libpython3-testsuite, for one, is a package apart)",
)
@immortality
@pytest.mark.parametrize("module", ALL if os.environ.get("COWLAB_STDLIB") else QUICK)
def test_everything_immortal(module: str, tmp_path: Path) -> None:
    run = run_python(PROGRAM, module, cwd=tmp_path, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
    made, tests = (int(part.split()[0]) for part in run.stdout.strip().split(","))
    assert made > 20_000
    assert tests > 30
