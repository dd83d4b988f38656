"""Check how the files of src/ depend on one another, and how long they are.

- only py_* includes Python.h, and only py_layout CPython's internal headers;
- includes point down: py_* may include cl_*, never the other way, and the
  headers include one another in no circle;
- a cl_*.c has no writable data of its own (needs a compiler and nm);
- a source file, of C or of Python, should not be longer than LONG lines and must
  not be longer than LONGEST.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

LONG, LONGEST = 600, 800
# Writable data that has to be.
MUTABLE = {("cl_faults.c", "handlers"): "signal handlers are the process's"}
ROOT = Path(__file__).parent.parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
INTERNAL = re.compile(r"^(internal/|pycore_|cpython/)")


def includes(path: Path) -> list[str]:
    """The names that a file includes, in order."""
    return INCLUDE.findall(path.read_text())


def python_headers(sources: list[Path]) -> Iterator[str]:
    """Who includes CPython's headers without being allowed to."""
    for path in sources:
        for name in includes(path):
            if name == "Python.h" and not path.name.startswith("py_"):
                yield f"{path.name} includes Python.h: only py_* may"
            if INTERNAL.match(name) and not path.name.startswith("py_layout"):
                yield f"{path.name} includes {name}: only py_layout may"


def arrows(sources: list[Path]) -> Iterator[str]:
    """Includes that point up, or in a circle."""
    graph: dict[str, set[str]] = {}
    names = {path.name for path in sources}
    for path in sources:
        own = {name for name in includes(path) if name in names}
        if path.suffix == ".h":
            graph[path.name] = own
        if path.name.startswith("cl_"):
            for name in sorted(own):
                if name.startswith("py_"):
                    yield f"{path.name} includes {name}: cl_* lies below py_*"
        for name in sorted(own):
            if name.endswith(".c"):
                yield f"{path.name} includes {name}, which is no header"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "headers include one another: " + " -> ".join(error.args[1])


def globals_of_c(sources: list[Path]) -> Iterator[str]:
    """Writable data in a cl_*.c; compiled without CPython's headers to be found."""
    compiler, nm = shutil.which("cc"), shutil.which("nm")
    if not compiler or not nm:
        print("check_layers: no cc or nm here, writable data not looked for")
        return
    with tempfile.TemporaryDirectory() as scratch:
        for path in sources:
            if not (path.name.startswith("cl_") and path.suffix == ".c"):
                continue
            out = Path(scratch, path.stem + ".o")
            done = subprocess.run(
                # Not position-independent: constant tables are constant then.
                [compiler, *"-std=c11 -D_GNU_SOURCE -fno-pic -c -o".split(), out, path],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                yield f"{path.name} does not compile on its own:\n{done.stderr}"
                continue
            symbols = subprocess.run(
                [nm, out], capture_output=True, text=True, check=True
            ).stdout
            for line in symbols.splitlines():
                kind, name = line.split()[-2:]
                if kind in "bBdDC" and (path.name, name) not in MUTABLE:
                    yield f"{path.name} has writable data: {name}"


def lengths() -> Iterator[str]:
    """Files that are too long to be read."""
    for folder in ("src", "cowlab", "experiments", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".c", ".h", ".py"}:
                count = len(path.read_text().splitlines())
                if count > LONGEST:
                    yield f"{path.relative_to(ROOT)} has {count} lines: split it"
                elif count > LONG:
                    print(f"check_layers: {path.relative_to(ROOT)} has {count} lines")


def main() -> int:
    sources = sorted((ROOT / "src").glob("*.[ch]"))
    problems = [
        *python_headers(sources),
        *arrows(sources),
        *globals_of_c(sources),
        *lengths(),
    ]
    for problem in problems:
        print(f"check_layers: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
