"""What pins arenas, what a trim would return, and ``cowlab heap``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from conftest import requires
from heap_programs import run

import cowlab

pytestmark = requires("gil")


@requires("release_build")
def test_what_pins_and_what_would_come_back() -> None:
    program = """
    import cowlab
    from cowlab._pins import reclaimable
    from cowlab._pools import scan

    class Survivor:
        __slots__ = ("a", "b")

    made = [Survivor() for _ in range(200_000)]
    kept = made[::150]
    del made
    found = cowlab.pins(0.1)
    assert len(found) >= 5, found
    assert [p.live for p in found] == sorted(p.live for p in found)
    name = "__main__.Survivor"
    assert sum(dict(p.survivors).get(name, 0) for p in found) > 900, found
    assert all(p.share <= 0.1 and p.buffers >= 0 for p in found)
    expected = reclaimable(scan(blocks=True))
    returned = cowlab.trim().bytes
    assert abs(expected - returned) < 0.02 * returned + 65536, (expected, returned)
    """
    run(textwrap.dedent(program))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    return subprocess.run(
        [sys.executable, "-m", "cowlab", "heap", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@requires("release_build")
def test_of_its_own_process() -> None:
    done = command("--trim")
    assert done.returncode == 0, done.stderr
    for words in ("returned", "Size classes", "arenas", "A trim would return"):
        assert words in done.stdout
    assert "Traceback" not in done.stderr


def test_of_another_process() -> None:
    kept = [(i, i) for i in range(20_000)]
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        done = command(str(pid), "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["pid"] == pid
        assert len(report["arenas"]) == len(cowlab.arenas(pid))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert len(kept) == 20_000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--", "-4"], 2, "PID must be positive"),
        (["99999999"], 1, "no process"),
        (["x"], 2, "not a valid integer"),
        (["1", "--trim"], 2, "trims itself only"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, words: str) -> None:
    done = command(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_picture() -> None:
    pytest.importorskip("rich")
    from cowlab._pools import scan
    from cowlab.report._heap import picture

    heap = scan()
    lines = picture(heap, most=None)
    assert len(lines) == len(heap.arenas)
    assert all(len(line.split("|")[1]) in (63, 64) for line in lines)
    assert "@" in lines[-1]


def test_the_plot() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("rich")
    program = """
    from cowlab._pools import scan
    from cowlab.report._heap import plot
    assert plot(scan()).axes
    """
    run(textwrap.dedent(program))
