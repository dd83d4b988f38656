"""Where memory is, what two processes share, and the command that says it."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import (
    KEPT,
    MIB,
    PAGE,
    address_of,
    as_root,
    await_rest,
    become_nobody,
    in_child,
    isolated,
    process,
    stranger,
)

from cowlab import (
    MemoryGroup,
    MemoryReport,
    SharedReport,
    memory,
    shared_memory,
)

FIGURES = ("size", "rss", "pss", "private", "shared", "swap", "hugetlb", "mappings")


def the(report: MemoryReport | SharedReport, kind: str, name: str | None) -> Any:
    (group,) = (g for g in report.groups if (g.kind, g.name) == (kind, name))
    return group


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    KEPT.clear()


# ---- one process ----


def test_groups_add_up() -> None:
    with stranger() as pid:
        report = memory(pid)
    assert report.pid == pid and report.source == "smaps"
    for name in FIGURES:
        whole = getattr(report.total, name)
        assert sum(getattr(g, name) for g in report.groups) == whole
        assert sum(getattr(g, name) for g in report.by_kind) == whole
    assert report.total.rss == report.total.private + report.total.shared
    weights = [g.weight for g in report.groups]
    assert weights == sorted(weights, reverse=True)


def test_a_file_is_one_group_however_often_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * PAGE)

    def setup() -> None:
        with path.open("r+b") as file:
            for offset in (0, 2 * PAGE):
                memory = mmap.mmap(file.fileno(), PAGE, offset=offset)
                memory[0] = 1
                KEPT.append(memory)

    with process(setup) as (pid, _):
        group = the(memory(pid), "file", str(path))
    assert group.mappings == 2 and group.rss == 2 * PAGE
    assert group.file[2] == path.stat().st_ino


def test_two_files_of_one_name_are_two_groups(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def setup() -> None:
        for size in (1, 2):
            path.write_bytes(b"x" * size * PAGE)
            with path.open("r+b") as file:
                memory = mmap.mmap(file.fileno(), size * PAGE)
            memory[:] = b"y" * len(memory)
            KEPT.append(memory)
            path.unlink()

    with process(setup) as (pid, _):
        groups = [g for g in memory(pid).groups if g.name == f"{path} (deleted)"]
    assert sorted(g.rss or 0 for g in groups) == [PAGE, 2 * PAGE]


def test_an_unknown_figure_has_no_sum() -> None:
    unknown: dict[str, Any] = dict.fromkeys(FIGURES)
    unknown.update(kind="file", name=None, file=None, rss=5 * PAGE)
    assert MemoryGroup(**unknown).weight == 5 * PAGE


# ---- two processes ----


@contextmanager
def family() -> Iterator[tuple[int, int, int]]:
    """Two processes, one forked by the other, that read themselves nothing: of 64
    private pages the child has written 16. Their pids, and where the pages are."""

    def setup() -> tuple[int, int]:
        address = isolated(64 * PAGE)
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            ctypes.memset(address, 2, 16 * PAGE)
            os.write(go, b"x")
            os.close(go)
            while True:
                ctypes.CDLL(None).pause()
        os.read(ready, 1)
        return child, address

    with process(setup) as (parent, (child, address)):
        try:
            await_rest(child)
            yield parent, child, address
        finally:
            os.kill(child, 9)


def read_as_nobody(a: int, b: int) -> SharedReport:
    def read() -> SharedReport:
        become_nobody()
        return shared_memory(a, b)

    return in_child(read)


@as_root("for frame numbers")
def test_what_a_family_shares_by_frame() -> None:
    pytest.importorskip("numpy")
    with family() as (parent, child, _):
        report = shared_memory(parent, child)
        other_way = shared_memory(child, parent)
    if report.source != "frames":
        pytest.skip("root without CAP_SYS_ADMIN: frame numbers are hidden")
    assert report.unknown == 0 and report.why is None
    assert report.shared == other_way.shared
    assert report.shared == sum(g.shared or 0 for g in report.groups)
    a, b = report.a.total, report.b.total
    # The 16 pages that the child wrote are nobody's but its own.
    assert b.private >= 16 * PAGE and report.shared <= b.rss - 16 * PAGE
    assert report.shared <= min(a.shared, b.shared)
    assert the(report, "anonymous", None).shared >= 48 * PAGE


@contextmanager
def nobodys_family() -> Iterator[tuple[int, int]]:
    """As family(), owned by nobody so that nobody can read it."""

    def setup() -> tuple[int, int]:
        become_nobody()
        address = isolated(64 * PAGE)
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            ctypes.memset(address, 2, 16 * PAGE)
            os.write(go, b"x")
            while True:
                ctypes.CDLL(None).pause()
        os.read(ready, 1)
        return os.getpid(), child

    with process(setup) as (_, pids):
        try:
            await_rest(pids[1])
            yield pids
        finally:
            os.kill(pids[1], 9)


def test_without_frames_files_are_certain_and_the_rest_is_bounded() -> None:
    pytest.importorskip("numpy")
    with nobodys_family() as (parent, child):
        report = read_as_nobody(parent, child)
        if os.geteuid() == 0:
            exact = shared_memory(parent, child)
    assert report.source == "file offsets" and report.shared > 0
    assert report.unknown >= 48 * PAGE
    assert report.why is not None and "CAP_SYS_ADMIN" in report.why
    assert the(report, "anonymous", None).shared is None
    if os.geteuid() == 0 and exact.source == "frames":
        assert report.shared <= exact.shared <= report.shared + report.unknown


def test_strangers_share_files_only() -> None:
    pytest.importorskip("numpy")
    with stranger() as a, stranger() as b:
        report = shared_memory(a, b)
    files = sum(g.shared or 0 for g in report.groups if g.kind == "file")
    assert report.shared == files > MIB // 2
    if report.source == "file offsets":
        assert report.unknown == 0 and report.why is None


def test_shared_memory_at_different_addresses() -> None:
    pytest.importorskip("numpy")
    fd = os.memfd_create("common")
    os.truncate(fd, 8 * PAGE)

    def setup(pages: range) -> int:
        memory = mmap.mmap(fd, 8 * PAGE)
        for page in pages:
            memory[page * PAGE] = 1
        KEPT.append(memory)
        return address_of(memory)

    first, second = (lambda: setup(range(6))), (lambda: setup(range(4, 8)))
    with process(first) as (a, _), process(second) as (b, _):
        report = shared_memory(a, b)
    os.close(fd)
    group = the(report, "shared memory", "/memfd:common (deleted)")
    assert (group.a, group.b, group.shared) == (6 * PAGE, 4 * PAGE, 2 * PAGE)


def test_a_zero_page_and_a_huge_hole_cost_nothing() -> None:
    pytest.importorskip("numpy")

    def setup() -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        memory = mmap.mmap(-1, 1 << 38, flags)
        memory[1 << 37] = 1
        zeroes = mmap.mmap(-1, 64 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        ctypes.string_at(address_of(zeroes), 64 * PAGE)
        KEPT.extend((memory, zeroes))

    with stranger() as other, process(setup) as (pid, _):
        report = shared_memory(other, pid)
    anonymous = [g for g in report.groups if g.kind == "anonymous" and g.shared]
    assert anonymous == []


# ---- the command ----


def cowlab(*words: str, columns: int = 200) -> subprocess.CompletedProcess[str]:
    for needed in ("click", "rich"):
        pytest.importorskip(needed)
    return subprocess.run(
        [sys.executable, "-m", "cowlab", "smaps", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(columns)},
    )


def test_the_command_shows_kinds_and_groups() -> None:
    with stranger() as pid:
        done = cowlab(str(pid))
        plain = json.loads(cowlab(str(pid), "--json").stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert f"process {pid} (" in done.stdout
    assert "libc" in done.stdout and "anonymous" in done.stdout
    assert plain["schema"] == 1 and plain["report"] == "smaps"
    assert plain["total"]["rss"] == sum(g["rss"] for g in plain["groups"])


def test_a_narrow_terminal_loses_no_column() -> None:
    done = cowlab("--limit", "2", columns=30)
    words = done.stdout.split()
    assert done.returncode == 0
    assert {"private", "shared", "swap", "mappings", "anonymous", "all"} <= set(words)


def test_the_command_reads_itself_by_default() -> None:
    done = cowlab("--limit", "1")
    assert done.returncode == 0 and "smaller" in done.stdout


def test_the_command_puts_two_side_by_side() -> None:
    pytest.importorskip("numpy")
    with stranger() as a, stranger() as b:
        done = cowlab(str(a), str(b), "--limit", "0")
        plain = json.loads(cowlab(str(a), str(b), "--json").stdout)
    assert done.returncode == 0, done.stderr
    assert "They share" in done.stdout and f"RSS {b}" in done.stdout
    assert plain["a"]["pid"] == a and plain["b"]["pid"] == b
    assert plain["shared"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["abc"], "'abc' is no process number"),
        (["0"], "'0' is no process number"),
        (["1.5"], "is no process number"),
        (["\N{ARABIC-INDIC DIGIT TWO}"], "is no process number"),
        ([""], "is no process number"),
        (["1", "2", "3"], "one process or two, not 3"),
        (["7", "7"], "give two different processes"),
        (["--limit", "-1"], "--limit"),
        (["-1"], "-1"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(words: list[str], says: str) -> None:
    done = cowlab(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("pid", ["4194305", "99999999999999999999999", "1" * 5000])
def test_no_such_process_is_one_sentence_and_exit_1(pid: str) -> None:
    done = cowlab(pid)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("cowlab: ") and done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_zombie_is_one_sentence_and_exit_1() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        done = cowlab(str(pid))
    finally:
        os.waitpid(pid, 0)
    assert done.returncode == 1 and "waits for its parent" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_hostile_file_name_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "x\x1b[2J\r\udcff[bold]y\u202e"
    path.write_bytes(b"x" * PAGE)

    def setup() -> None:
        with path.open("r+b") as file:
            KEPT.append(mmap.mmap(file.fileno(), PAGE))
        KEPT[-1][0] = 1

    with process(setup) as (pid, _):
        done = cowlab(str(pid), "--limit", "0")
    assert done.returncode == 0
    assert r"x\x1b[2J\x0d\xff[bold]y\xe2\x80\xae" in done.stdout
