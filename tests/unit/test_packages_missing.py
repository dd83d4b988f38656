"""Without numpy, rich or matplotlib: an error that names the line to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import requires

import cowlab

ROOT = Path(cowlab.__file__).parents[1]
TESTS = Path(__file__).parents[1]

PROGRAM = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]
for package in ("numpy", "rich", "matplotlib"):
    sys.modules[package] = None
import cowlab
from made_result import a_result
from cowlab import Comparison
from cowlab._trial_report import TrialReport
result = a_result()
trial = TrialReport({{}}, {{}}, ())
both = Comparison((result, result))
try:
    {{0}}
except cowlab.Unsupported as error:
    print(error)
"""


def without_packages(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM.replace("{0}", code)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("call", "package", "line"),
    [
        ("str(result)", "rich", "pip install rich"),
        ("print(both)", "rich", "pip install rich"),
        ("str(trial)", "rich", "pip install rich"),
        ("trial._repr_html_()", "rich", "pip install rich"),
        ("result.plot()", "matplotlib", "pip install 'cowlab[plots]'"),
        ("cowlab.pagemap(None, []).numpy()", "numpy", "pip install numpy"),
        pytest.param(
            *("cowlab.pools().dtype", "numpy", "pip install numpy"),
            marks=requires("gil"),
        ),
        ("cowlab.shared_memory(None, None)", "numpy", "pip install numpy"),
    ],
)
def test_what_needs_a_package_names_it(call: str, package: str, line: str) -> None:
    said = without_packages(call)
    assert f"needs {package}: {line}\n" in said


@pytest.mark.parametrize(
    "call",
    [
        "print(bool(result._repr_html_() and both._repr_html_()))",
        "print(bool(str(cowlab.measure(int)) and cowlab.measure(int)._repr_html_()))",
        "print(len(memoryview(cowlab.pagemap(None, []))) == 0)",
    ],
)
def test_what_needs_none_works(call: str) -> None:
    assert without_packages(call) == "True\n"
