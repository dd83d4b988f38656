"""The table of conditions: each is found when it holds, and only then."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from conftest import requires

import cowlab
from cowlab._conditions import CONDITIONS, Finding, conditions
from cowlab._prepare import STEPS


def found(name: str) -> Finding | None:
    return next((one for one in conditions() if one.name == name), None)


def test_the_table_is_whole() -> None:
    names = [condition.name for condition in CONDITIONS]
    assert len(set(names)) == len(names)
    for condition in CONDITIONS:
        assert condition.action in ("refuse", "warn", "skip")
        assert set(condition.steps) <= set(STEPS)
        assert bool(condition.steps) == (condition.action == "skip")
        assert condition.why
        assert condition.remedy
        assert not re.search(r"[.;]$", condition.why + condition.remedy)


def test_threads() -> None:
    assert found("threads") is None
    stop = threading.Event()
    other = threading.Thread(target=stop.wait, name="the-other-one")
    other.start()
    try:
        finding = found("threads")
    finally:
        stop.set()
        other.join()
    assert finding is not None
    assert finding.found == "1 other thread: the-other-one"


def test_tracer() -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *event: None)
    try:
        finding = found("tracer")
    finally:
        sys.setprofile(before)
    assert finding is not None
    assert "sys.setprofile" in finding.found


@pytest.mark.skipif(
    not hasattr(sys, "monitoring"), reason="sys.monitoring begins with 3.12"
)
def test_monitoring_tool() -> None:
    monitoring = sys.monitoring
    monitoring.use_tool_id(4, "watcher")
    try:
        assert "watcher" not in str(found("tracer"))
        monitoring.set_events(4, monitoring.events.LINE)
        assert "sys.monitoring tool 'watcher'" in str(found("tracer"))
        monitoring.set_events(4, 0)
    finally:
        monitoring.free_tool_id(4)


def test_tracemalloc() -> None:
    assert found("tracemalloc") is None
    tracemalloc.start()
    try:
        assert found("tracemalloc") is not None
        # Its hook lies over pymalloc, which is still there to trim and seal.
        assert found("allocator") is None
    finally:
        tracemalloc.stop()


def test_sockets_listening_is_fine_connected_is_not() -> None:
    before = found("connected-socket")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert found("connected-socket") == before
        with socket.create_connection(server.getsockname()) as client:
            finding = found("connected-socket")
            assert finding is not None
            assert f"{client.fileno()} to " in finding.found
    assert found("connected-socket") == before


def test_a_pair_that_wakes_an_event_loop_is_fine() -> None:
    before = found("connected-socket")
    left, right = socket.socketpair()
    with left, right:
        assert found("connected-socket") == before


def test_files_read_is_fine_written_is_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    # A process of its own: the finding names the first few files only, and the
    # test run itself may have more.
    code = (
        "import sys, cowlab\n"
        "file = open(*sys.argv[1:])\n"
        "print(*(one for one in cowlab.conditions() if one.name == 'written-file'))"
    )
    for mode, named in (("w", True), ("r", False), ("r+b", True)):
        done = subprocess.run(
            [sys.executable, "-c", code, path, mode],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert (str(path) in done.stdout) is named, mode


@requires("gil")  # without it there is no choice of these
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"PYTHONMALLOC": "malloc"}, {"allocator"}),
        ({"PYTHONMALLOC": "debug"}, {"allocator"}),
        ({"PYTHONMALLOC": "pymalloc"}, set()),
        ({"PYTHONTRACEMALLOC": "1"}, {"tracemalloc"}),
        (
            {"PYTHONTRACEMALLOC": "1", "PYTHONDEVMODE": "1"},
            {"allocator", "tracemalloc"},
        ),
    ],
)
def test_what_is_set_at_the_start(settings: dict[str, str], expected: set[str]) -> None:
    code = "from cowlab import conditions\nprint(*(one.name for one in conditions()))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(cowlab.__file__).parents[1],
    )
    assert {"allocator", "tracemalloc"} & set(run.stdout.split()) == expected


def test_versions_and_builds() -> None:
    assert (found("no-immortality") is None) == (sys.version_info >= (3, 12))
    assert (found("debug-build") is None) == (not hasattr(sys, "gettotalrefcount"))
    assert (found("free-threaded") is None) == ("t" not in sys.abiflags)


def test_a_finding_is_one_line_with_its_remedy() -> None:
    for finding in conditions():
        assert "\n" not in str(finding)
        assert finding.remedy in str(finding)


def test_the_documentation_has_the_same_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "prepare.md"
    if not page.exists():
        pytest.skip("docs/ is not part of what is tested here")
    text = page.read_text()
    for condition in CONDITIONS:
        row = next(
            line
            for line in text.splitlines()
            if line.startswith(f"| {condition.name} |")
        )
        assert condition.why in row
        assert condition.remedy in row
        assert all(f"`{step}`" in row for step in condition.steps)
