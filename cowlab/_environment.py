"""What a result was measured on: the interpreter, the kernel, the memory.

No host, user or path is in it: a result can be published as it is.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig

__all__ = ["environment"]

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "libasan")


def environment() -> dict[str, str | int | bool | None]:
    """This interpreter and this machine. None is "could not be read"."""
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
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "thp": _thp(),
        "memory": _meminfo("MemTotal"),
        "swap": _meminfo("SwapTotal"),
        "cgroup": _cgroup(),
    }


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _thp() -> str | None:
    """The chosen word of "always [madvise] never"."""
    text = _read("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0] or None


def _meminfo(field: str) -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    return None


def _cgroup() -> int | None:
    """The version that has the memory controller, which may be neither."""
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        if "memory" in line.split(":")[1].split(","):
            return 1
    controllers = _read("/sys/fs/cgroup/cgroup.controllers") or ""
    return 2 if "memory" in controllers.split() else None


def _allocator() -> str:
    """Python's allocator, then the C library's where it is another than usual."""
    chosen = os.environ.get("PYTHONMALLOC", "")
    if sys.flags.ignore_environment or chosen in ("", "default"):
        chosen = "pymalloc"
    maps = _read("/proc/self/maps") or ""
    libc = [name for name in ALLOCATORS if name in maps]
    return " over ".join([chosen, *libc])
