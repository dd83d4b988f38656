"""Without the C core cowlab imports, and says by name what cannot work, and why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import requires

import cowlab


@pytest.fixture(scope="module")
def coreless(tmp_path_factory):
    """A directory with a cowlab whose C core is not built."""
    place = tmp_path_factory.mktemp("coreless")
    shutil.copytree(
        Path(cowlab.__file__).parent,
        place / "cowlab",
        ignore=shutil.ignore_patterns("*.so", "__pycache__", "_src"),
    )
    return place


def python(place, code):
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_imports(coreless):
    done = python(coreless, "import cowlab; print(cowlab.__file__)")
    assert done.stdout.startswith(str(coreless)), done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "smaps_rollup(0)",
        "maps(0)",
        "stat(0)",
        "pagemap(0, [])",
        "pools()",
        "measure(int)",
        "record()",
        pytest.param("immortalize(())", marks=requires("release_build")),
    ],
)
def test_what_cannot_work_says_so(coreless, call):
    code = f"""
import cowlab
try:
    cowlab.{call}
except cowlab.Unsupported as error:
    print(error)
"""
    done = python(coreless, code)
    assert "C core is not built for this interpreter" in done.stdout, done.stderr
    assert "install cowlab" in done.stdout


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("sys.platform = 'darwin'", "this is darwin"),
        ("sys.implementation.name = 'pypy'", "this is pypy"),
    ],
)
def test_the_reason_is_the_machine_s(coreless, patch, reason):
    code = f"""
import sys, cowlab._errors
{patch}
try:
    cowlab.smaps
except cowlab.Unsupported as error:
    print(error)
"""
    assert reason in python(coreless, code).stdout


def test_the_host_is_told_apart_without_it(coreless):
    code = "import cowlab; print(cowlab.host().pymalloc.reason)"
    assert "not built for this interpreter" in python(coreless, code).stdout


def test_the_command_line_says_it_in_one_line(coreless):
    pytest.importorskip("click")
    pytest.importorskip("rich")
    code = "import sys; from cowlab.cli import main; sys.argv[1:] = ['smaps']; main()"
    done = python(coreless, code)
    assert done.returncode == 1
    assert "not built for this interpreter" in done.stderr
    assert "Traceback" not in done.stderr
