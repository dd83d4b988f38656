"""Compiles floors.c and calls it."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness import Unavailable

__all__ = ["measure", "memory", "page_map", "read_file", "write_pages"]


@functools.cache
def _library() -> ctypes.PyDLL:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler for the floor: set CC")
    source = Path(__file__).with_name("floors.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "floors.so")
        command = [*compiler.split(), "-O2", "-D_GNU_SOURCE", "-fPIC", "-shared"]
        done = subprocess.run(
            [*command, "-o", library, source],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"the floor does not compile: {done.stderr.strip()}")
        return ctypes.PyDLL(str(library))


def _call(name: str, *args: Any) -> float:
    function = getattr(_library(), name)
    function.restype = ctypes.c_double
    seconds: float = function(*args)
    if seconds < 0:
        raise Unavailable(f"{name}: {os.strerror(-int(seconds))}")
    return seconds


def read_file(pid: int, name: str, loops: int) -> float:
    """Seconds of CPU for one open, read and close of /proc/PID/NAME."""
    return _call("floor_read_file", pid, name.encode(), loops)


def page_map(pid: int) -> float:
    """Seconds for one reading of the page map of all private mappings."""
    return _call("floor_page_map", pid)


def memory(pid: int) -> float:
    """Seconds for one reading of all unnamed anonymous memory."""
    return _call("floor_memory", pid)


def measure(maps: int, rollups: int) -> float:
    """Seconds for two forks, that many readings of the first child, and their end."""
    return _call("floor_measure", maps, rollups)


def write_pages(address: int, pages: int) -> float:
    """Seconds of CPU for one write to each page of a range, the GIL held."""
    return _call("floor_write_pages", ctypes.c_void_p(address), ctypes.c_long(pages))
