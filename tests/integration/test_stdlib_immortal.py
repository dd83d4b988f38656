"""CPython's own tests pass with everything immortal, frozen and sealed.

A few modules by default; ``COWLAB_STDLIB=1`` runs all of them (two minutes).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import immortality

import cowlab

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
    run = subprocess.run(
        [sys.executable, str(PROGRAM), module],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(cowlab.__file__).parents[1])},
    )
    assert run.returncode == 0, run.stderr[-4000:]
    made, tests = (int(part.split()[0]) for part in run.stdout.strip().split(","))
    assert made > 20_000
    assert tests > 30
