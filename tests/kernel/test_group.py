"""A master and its workers as one thing: real processes, read from outside."""

import json
import os
import signal
import subprocess
import sys

import pytest
from processes import MIB, PAGE, as_root, await_rest, in_child, private, process

import cowlab

SHARED = 32 * MIB


def forked(n):
    """A process with SHARED bytes and n children that share them; (its pid, theirs)."""

    def setup():
        private(SHARED)
        pids = []
        for _ in range(n):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            await_rest(pid)
        return pids

    return process(setup)


@pytest.fixture
def family():
    with forked(3) as (master, workers):
        try:
            yield master, workers
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)


def test_the_tree_is_found_and_its_master_is_first(family):
    master, workers = family
    reading = cowlab.group(master)
    assert reading.master.pid == master
    assert [member.pid for member in reading.workers] == sorted(workers)
    assert {member.parent for member in reading.workers} == {master}
    assert reading.gone == ()


def test_what_they_share_is_in_the_pss_once_and_in_the_rss_each_time(family):
    reading = cowlab.group(family[0])
    assert reading.rss > 4 * SHARED
    # This process shares what is left of its own memory with all of them.
    shares = [member.pss - member.uss for member in reading.members]
    assert min(shares) >= SHARED / 4
    assert max(shares) - min(shares) < MIB
    assert reading.pss < reading.rss / 2
    assert reading.uss < SHARED


def test_the_sums_are_those_of_the_members_and_each_figure_has_a_source(family):
    reading = cowlab.group(family[0])
    data = json.loads(json.dumps(reading.to_json()))
    for name in ("rss", "pss", "uss", "private_dirty", "minor_faults"):
        total = sum(getattr(member, name) for member in reading.members)
        assert data[name] == getattr(reading, name) == total
    member = data["members"][1]
    pages = {"copied", "copied_or_sole", "fresh"}
    assert {member[name] for name in pages} == {None}
    figures = set(member) - {"pid", "parent", "name", "sources"} - pages
    assert figures == set(member["sources"])
    assert member["sources"]["pss"] in ("smaps_rollup", "sum of smaps")


def test_a_member_that_has_ended_is_gone_and_not_nothing(family):
    master, (first, *others) = family
    os.kill(first, signal.SIGKILL)
    while cowlab.stat(first).state != "Z":
        pass
    reading = cowlab.group(master)
    assert reading.gone == (first,)
    assert [member.pid for member in reading.workers] == sorted(others)


def test_a_list_is_read_as_it_is_given(family):
    master, (first, second, _) = family
    reading = cowlab.group([second, master, second])
    assert [member.pid for member in reading.members] == [second, master]
    os.kill(first, signal.SIGKILL)
    while cowlab.stat(first).state != "Z":
        pass
    assert cowlab.group([first, second]).gone == (first,)
    with pytest.raises(cowlab.Gone):
        cowlab.group([first])


def test_a_master_that_has_ended_is_an_error():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(cowlab.Gone, match="no process"):
        cowlab.group(child.pid)


@pytest.mark.parametrize("bad", ["1", 1.5, True, object()])
def test_what_is_no_process_is_a_type_error(bad):
    with pytest.raises(TypeError):
        cowlab.group(bad)


@pytest.mark.parametrize("bad", [0, -1, []])
def test_what_cannot_be_a_process_is_a_value_error(bad):
    with pytest.raises(ValueError):
        cowlab.group(bad)


def test_this_process_is_the_default():
    with forked(1) as (master, (worker,)):
        pids = [member.pid for member in cowlab.group().members]
        assert pids == [os.getpid(), master, worker]
        os.kill(worker, signal.SIGKILL)


@as_root("a process of another user's is to be read")
def test_a_member_that_may_not_be_read_is_no_zero():
    import confine

    me = os.getpid()

    def read():
        confine.confine("nobody")
        with pytest.raises(cowlab.Unreadable):
            cowlab.group([os.getpid(), me])
        return cowlab.group().rss > PAGE

    assert in_child(read)


PROGRAM = """
import os, sys, time
data = bytearray(8 << 20)
for _ in range(2):
    if os.fork() == 0:
        if os.fork() == 0:
            data[::4096] = bytes(len(data) // 4096)
        break
os.write(1, b"ready\\n")  # at once, whatever the environment buffers
sys.stdin.read()
"""


def test_children_and_theirs_are_members_and_shared_pages_count_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as master:
        assert master.stdout is not None
        for _ in range(5):
            assert master.stdout.readline() == b"ready\n"
        found = cowlab.group(master.pid)
        assert master.stdin is not None
        master.stdin.close()
    assert found.master.pid == master.pid
    assert len(found.members) == 5
    assert [member.parent for member in found.members[1:3]] == [master.pid] * 2
    # Two grandchildren wrote the buffer, three processes share the first one.
    mib = 1 << 20
    assert 3 * 8 * mib < found.pss < 3 * 8 * mib + 40 * mib
    assert found.rss > 5 * 8 * mib
    assert 2 * 8 * mib < found.uss < found.pss
    assert found.to_json()["pss"] == found.pss


def test_copied_pages_are_told_from_fresh_ones_from_outside():
    """8 MiB inherited; the first child writes 3 of them and makes 5 of its own, the
    second writes none. 2 MiB that the master read and never wrote are no inheritance.
    """
    code = """
import mmap, os, sys
def anonymous(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(15)  # no huge pages
    return memory
data, unwritten = anonymous(8 << 20), anonymous(2 << 20)
data[::4096] = bytes(len(data) // 4096)
unwritten[::4096]
os.write(1, b"loaded\\n")
os.read(0, 1)
for child in range(2):
    if os.fork() == 0:
        if child == 0:
            data[: 3 << 20 : 4096] = bytes((3 << 20) // 4096)
            new = anonymous(5 << 20)
            new[::4096] = bytes(len(new) // 4096)
        break
os.write(1, b"forked\\n")
os.read(0, 1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as master:
        assert master.stdin is not None
        assert master.stdout is not None
        assert master.stdout.readline() == b"loaded\n"
        inherited = cowlab.inheritance(master.pid)
        master.stdin.write(b"1")
        master.stdin.flush()
        for _ in range(3):
            assert master.stdout.readline() == b"forked\n"
        reading = cowlab.group(master.pid, since=inherited)
        master.stdin.close()
    assert reading.master.copied is None
    writer, idle = reading.workers
    assert 3 * MIB <= writer.copied < 4 * MIB
    assert 5 * MIB <= writer.fresh < 6 * MIB
    assert idle.copied < MIB
    assert idle.fresh < MIB
    assert writer.copied_or_sole + idle.copied_or_sole < MIB
    assert writer.sources["copied"] == "pagemap"
    assert 8 * MIB < inherited.size < 30 * MIB
