"""Programs that heap tests run in interpreters of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

# Prints the allocator's own figures and ours, taken at one moment: nothing is
# allocated between the two calls. Another thread may run there now and then, so that
# a program with threads tries again.
COMPARE = """
import os, re, sys, tempfile
from cowlab import _native, _pools

ROW = re.compile(r"\\s*(\\d+)\\s+(\\d+)\\s+(\\d+)\\s+(\\d+)\\s+(\\d+)\\s*$")

def compare(label, tries=1):
    for _ in range(tries):
        problem, classes = compare_once(label)
        if not problem:
            print(label, classes, "classes equal")
            return
    raise AssertionError(problem)

def compare_once(label):
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        scan = _native.scan_heap
        sys._debugmallocstats(); rows = scan(None, False)
        os.dup2(saved, 2)
        os.close(saved)
        file.seek(0)
        text = file.read().decode()
    pools = _pools.Pools(rows[0], rows[2])
    ours = {
        c.size_class: (c.pools, c.used, c.free + c.virgin + c.retired)
        for c in pools.by_size_class(0)
    }
    theirs = {}
    for line in text.splitlines():
        found = ROW.match(line)
        if found:
            c, _, n, used, avail = map(int, found.groups())
            theirs[c] = (n, used, avail)
    arenas = int(re.search(r"arenas allocated current\\s*=\\s*([\\d,]+)", text)[1]
                 .replace(",", ""))
    mine = sum(a[9] == 0 for a in _pools.Table(rows[1], _pools.ArenaRow,
                                               "Q" * 8 + "I" * 6))
    if ours == theirs and mine == arenas:
        return None, len(theirs)
    return (label, mine, arenas, {c: (ours.get(c), theirs.get(c))
        for c in ours.keys() | theirs.keys() if ours.get(c) != theirs.get(c)}), 0
"""


def run(
    program: str, env: Mapping[str, str] | None = None, timeout: float = 120
) -> str:
    """The program's output; a program that fails fails the test, with its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
