"""Real processes to read: forked children that are set up and then wait."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

PAGE = mmap.PAGESIZE
MIB = 1 << 20
LIBC = ctypes.CDLL(None, use_errno=True)

KEPT: list[Any] = []
"""What a child maps must outlive the function that mapped it."""


def _serve(setup: Callable[[], Any], result: int, go: int) -> None:
    gc.disable()  # it would write to all that this process has from its parent
    try:
        answer = (True, setup())
    except BaseException as error:
        answer = (False, error)
    try:
        data = pickle.dumps(answer)
    except Exception:
        data = pickle.dumps((False, RuntimeError(repr(answer[1]))))
    # With its length, since children of this child hold the pipe open too.
    with os.fdopen(result, "wb") as pipe:
        pipe.write(len(data).to_bytes(8, "little") + data)
    os.read(go, 1)


def await_rest(pid: int) -> None:
    """Until a process waits for something: before that it touches pages, and maps."""
    while True:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] in "SZ":
                return
        time.sleep(0.001)


@contextmanager
def process(setup: Callable[[], T]) -> Iterator[tuple[int, T]]:
    """A forked child that has run ``setup``: its pid and the result. It waits until
    the block ends, or dies with this process."""
    result_out, result_in = os.pipe()
    go_out, go_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(result_out)
            os.close(go_in)
            _serve(setup, result_in, go_out)
        finally:
            os._exit(0)
    os.close(result_in)
    os.close(go_out)
    try:
        with os.fdopen(result_out, "rb") as pipe:
            data = pipe.read(int.from_bytes(pipe.read(8), "little"))
        good, value = pickle.loads(data)
        if not good:
            raise value
        await_rest(pid)
        yield pid, value
    finally:
        os.close(go_in)
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@contextmanager
def stranger() -> Iterator[int]:
    """The pid of an idle interpreter that shares no anonymous page with this one."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        await_rest(child.pid)
        try:
            yield child.pid
        finally:
            child.kill()


def in_child(task: Callable[[], T]) -> T:
    """What ``task`` returns or raises in a forked child: it may change its user."""
    with process(task) as (_, value):
        return value


def address_of(memory: mmap.mmap) -> int:
    """Where a mapping is. It must be writable for Python."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def private(size: int, write: bool = True) -> int:
    """The address of fresh private memory of 4 KiB pages, which stays."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(15)  # MADV_NOHUGEPAGE
    if write:
        for at in range(0, size, PAGE):
            memory[at] = 1
    KEPT.append(memory)
    return address_of(memory)


def isolated(size: int) -> int:
    """As ``private``, with unmapped pages around it, so that the kernel does not merge
    it with a neighbour and it is a mapping of its own."""
    address = private(size + 2 * PAGE)
    for hole in (address, address + PAGE + size):
        call("mprotect", ctypes.c_void_p(hole), ctypes.c_size_t(PAGE), 0)
    return address + PAGE


def call(name: str, *args: Any) -> int:
    """A libc function; OSError where it returns -1."""
    result: int = getattr(LIBC, name)(*args)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def become_nobody() -> None:
    """Give up root for good, in a child; skip where this process is not root."""
    import confine

    confine.confine("nobody")


def as_root(why: str) -> pytest.MarkDecorator:
    """Skip unless root, saying what root is needed for."""
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"needs root: {why}")
