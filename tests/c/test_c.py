"""The C parts without Python: each test_*.c here is a program that must exit with 0.

To add one, add a file: it includes "check.h" and the cl_*.h that it tests, and has a
main(). It is compiled with the address and undefined-behaviour sanitizers where the
compiler has them (the reason is printed where not) and linked with every src/cl_*.c.
`make test-c` runs these alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parent.parent / "src"
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all".split()
FLAGS = "-std=c11 -D_GNU_SOURCE -g -O0".split()  # warnings are lint's affair

Compile = Callable[..., None]

pytestmark = pytest.mark.any_python


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """What compiles; skips, with the reason, where there is no compiler."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not shutil.which(command[0]):
        pytest.skip(f"no C compiler: {command[0]} is not on the PATH")
    trial = tmp_path_factory.mktemp("trial")
    (trial / "trial.c").write_text("int main(void) { return 0; }\n")
    done = subprocess.run(
        [*command, *SANITIZE, "trial.c", "-o", "trial"],
        cwd=trial,
        capture_output=True,
        text=True,
        check=False,
    )
    sanitize = SANITIZE
    if done.returncode or subprocess.run([trial / "trial"], check=False).returncode:
        warnings.warn(
            f"{command[0]} has no working sanitizers, tested without: {done.stderr}",
            stacklevel=1,
        )
        sanitize = []

    def run(*arguments: object) -> None:
        words = [*command, *FLAGS, *sanitize, "-I", SOURCES, "-I", HERE, *arguments]
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="session")
def objects(compiled: Compile, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every src/cl_*.c, compiled; their include path has no Python.h."""
    folder = tmp_path_factory.mktemp("objects")

    def make(source: Path) -> Path:
        out = folder / f"{source.stem}.o"
        compiled("-c", source, "-o", out)
        return out

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(make, sorted(SOURCES.glob("cl_*.c"))))


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("test_*.c")))
def test_c(name: str, compiled: Compile, objects: list[Path], tmp_path: Path) -> None:
    program = tmp_path / name
    compiled(HERE / f"{name}.c", *objects, "-lpthread", "-o", program)
    done = subprocess.run(
        [program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
