"""What a result was measured on: the interpreter, the kernel, the memory.

No host, user or path is in it: a result can be published as it is.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from typing import Any

from cowlab._host import host
from cowlab._smaps import maps

__all__ = ["environment"]

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "libasan")


def environment() -> dict[str, str | int | bool | None]:
    """This interpreter and this machine, as ``host()`` finds them; None is unknown."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": " ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "debug": hasattr(sys, "gettotalrefcount"),
        "gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
        "allocator": _allocator(),
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "machine": os.uname().machine,
        "cpus": os.cpu_count(),
        "page_size": host().page_size.value,
        "thp": _part("thp", "setting"),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "swap": _part("swap", "total"),
        "cgroup": _part("cgroup", "version"),
    }


def _part(capability: str, key: str) -> Any:
    value = host()[capability].value
    return None if value is None else value[key]


def _allocator() -> str:
    """Python's allocator, then the C library's where it is another than usual."""
    chosen = host().pymalloc.value or "unknown"
    paths = " ".join(entry.path or "" for entry in maps())
    return " over ".join([chosen, *(name for name in ALLOCATORS if name in paths)])
