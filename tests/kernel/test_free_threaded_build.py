"""A free-threaded build: what reads the kernel works, what reads objects refuses.

All the tests on one, from a virtual environment of it with setuptools, wheel, pytest
and hypothesis: ``PATH=ENVIRONMENT/bin:$PATH tools/test-here``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

import cowlab
from cowlab import _native

SOURCES = Path(__file__).parents[2] / "src"

free_threaded = pytest.mark.skipif(
    "t" not in sys.abiflags, reason="this build of CPython has a GIL"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={name: os.environ[name] for name in os.environ if name != "PYTHON_GIL"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_core_compiles_for_one_without_a_warning() -> None:
    """As far as this interpreter's headers know the difference: from 3.13 on."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    include = sysconfig.get_path("include")
    if not shutil.which(compiler[0]) or not Path(include, "Python.h").exists():
        pytest.skip("no C compiler, or no headers of this interpreter")
    flags = "-std=c11 -D_GNU_SOURCE -DPy_GIL_DISABLED=1 -Wall -Wextra -Wshadow -Werror"
    allowed = "-Wno-missing-field-initializers -Wno-unused-parameter"
    sources = [str(path) for path in sorted(SOURCES.glob("py_*.c"))]
    assert sources
    done = subprocess.run(
        [
            *(*compiler, "-fsyntax-only", *flags.split(), *allowed.split()),
            *("-isystem", include, *sources),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@free_threaded
def test_loading_the_core_leaves_the_gil_off() -> None:
    code = "import sys, cowlab._native; print(sys._is_gil_enabled())"
    done = run("-W", "error", "-c", code)
    assert (done.stdout, done.stderr) == ("False\n", "")


def recording() -> None:
    with cowlab.record():
        pass


@free_threaded
@pytest.mark.parametrize(
    "call",
    [
        cowlab.arenas,
        cowlab.pools,
        cowlab.trim,
        cowlab.seal,
        cowlab.census,
        cowlab.pins,
        cowlab.immortalize,
        cowlab.prehash,
        cowlab.prepare_fork,
        lambda: cowlab.whatis(0),
        lambda: cowlab.whatis_many([]),
        lambda: cowlab.measure(int, record="pages"),
        recording,
        lambda: cowlab.run("workers"),
        lambda: cowlab.run("workers", pythons=[sys.executable]),
        _native.frame_stacks,
    ],
)
def test_what_reads_objects_says_so(call: Callable[[], object]) -> None:
    with pytest.raises(cowlab.Unsupported, match=r"free-threaded.* default build"):
        call()


@free_threaded
@pytest.mark.parametrize(
    "command", ["heap", "heap --trim", "blame os:getpid", "run workers"]
)
def test_the_command_line_says_so_in_one_line(command: str) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    done = run("-m", "cowlab", *command.split())
    assert done.returncode == 1
    assert "free-threaded" in done.stderr
    assert done.stderr.count("\n") == 1


FREEZE = """
import gc, cowlab
table = [[number] for number in range(50_000)]
print(cowlab.measure(gc.collect).copied)
gc.collect()
report = cowlab.freeze()
print(report.frozen, report.added, cowlab.measure(gc.collect).copied)
"""


@free_threaded
def test_a_frozen_heap_is_not_copied_by_a_collection() -> None:
    before, frozen, added, after = map(int, run("-c", FREEZE).stdout.split())
    assert frozen == added > 50_000
    assert before > 500
    assert after < before / 5
