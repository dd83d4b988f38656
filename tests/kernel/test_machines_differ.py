"""The same measurement on every kind of machine: the pages must not differ."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import confine
import pytest
from conftest import requires

import cowlab

TESTS = Path(__file__).parents[1]
ROOT = Path(cowlab.__file__).parents[1]

WORLDS = {
    "as it is": [],
    "nobody": ["nobody"],
    "user namespace": ["userns"],
    "a container's user": ["docker", "nobody"],
    "an old kernel": ["old"],
    "one CPU": ["one"],
    "all of it": ["one", "old", "docker", "nobody"],
}

# All that is needed is loaded before the user changes, who may not read the files.
MEASURE = f"""
import json, mmap, sys
sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]
import cowlab, confine, ctypes
page = mmap.PAGESIZE
block = mmap.mmap(-1, 1024 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.write(b"x" * len(block))
def task():
    for at in range(0, 512 * page, page):
        block[at] = 1
cowlab.measure(task), cowlab.smaps_rollup(), cowlab.host().to_json()
try:
    for way in sys.argv[1:]:
        confine.confine(way)
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(confine.UNCONFINED)
report = cowlab.measure(task)
rollup = cowlab.smaps_rollup()
json.dump(
    {{
        "copied": report.copied,
        "warnings": report.warnings,
        "balance": report.inherited
        - report.kept - report.copied - report.sole - report.dropped - report.unknown,
        "rss": rollup.rss,
        "pss": rollup.pss,
        "mappings": len(cowlab.smaps()),
    }},
    sys.stdout,
)
"""


RECORD = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(TESTS)!r}]
import cowlab, confine
confine.confine("docker")
try:
    cowlab.record("lines").start()
except cowlab.Unsupported as error:
    print(error)
"""


@requires("gil")
def test_a_recorder_that_a_filter_refuses_says_so():
    done = subprocess.run(
        [sys.executable, "-c", RECORD], capture_output=True, text=True, check=True
    )
    assert "a seccomp filter refuses it" in done.stdout
    assert 'or record "protect"' in done.stdout


@requires("pagemap")
@pytest.mark.parametrize("ways", WORLDS.values(), ids=WORLDS)
def test_the_same_pages_are_copied(ways):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *ways],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == confine.UNCONFINED:
        pytest.skip(f"this machine does not allow {ways}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # The task's own objects lie in a few more pages.
    assert 512 <= found["copied"] < 512 + 64
    assert found["balance"] == 0
    # Without PAGEMAP_SCAN the shared zero page cannot be told apart, and that is said.
    said = [text for text in found["warnings"] if "PAGEMAP_SCAN" not in text]
    assert said == []
    if cowlab.host().pagemap_scan and "old" not in ways:
        assert found["warnings"] == []
    assert 0 < found["pss"] <= found["rss"]
    assert found["mappings"] > 10
