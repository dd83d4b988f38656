"""What this interpreter is: GIL, debug, JIT, allocator, immortal objects."""

from __future__ import annotations

import os
import platform
import sys

from cowlab._capability import Capability, Probe, World

__all__ = ["PROBES"]

OLDEST, NEWEST = (3, 11), (3, 15)


def _python(world: World, name: str) -> Capability:
    value = f"{platform.python_implementation()} {platform.python_version()}"
    known = sys.implementation.name == "cpython" and (
        OLDEST <= sys.version_info[:2] <= NEWEST
    )
    if known:
        return Capability(name, True, value, source="sys.version_info")
    return Capability(
        name,
        False,
        value,
        "the layout of its objects is not known here",
        "CPython 3.11 to 3.15",
        "sys.version_info",
    )


def _gil(world: World, name: str) -> Capability:
    free_threaded = "t" in getattr(sys, "abiflags", "")
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    value = {"free_threaded_build": free_threaded, "enabled": enabled}
    source = "sys._is_gil_enabled, sys.abiflags"
    if not free_threaded:
        return Capability(name, True, value, source=source)
    return Capability(
        name,
        False,
        value,
        "a free-threaded build, whose objects, collector and heaps are laid out"
        " differently",
        "the default build of the same version",
        source,
    )


def _release_build(world: World, name: str) -> Capability:
    source = "sys.gettotalrefcount"
    if not hasattr(sys, "gettotalrefcount"):
        return Capability(name, True, "release", source=source)
    return Capability(
        name,
        False,
        "debug",
        "a debug build asserts what immortal objects and sealed pools break",
        "a release build",
        source,
    )


def _jit(world: World, name: str) -> Capability:
    """Whether the JIT compiles. Only 3.14 and later tell."""
    source = "sys._jit"
    jit = getattr(sys, "_jit", None)
    if jit is None:
        return Capability(
            name, False, "none", "this version has no JIT to ask for", "", source
        )
    if not jit.is_available():
        reason = "built without the JIT"
        return Capability(name, False, "not built", reason, "", source)
    if not jit.is_enabled():
        reason = "built with the JIT, not switched on"
        return Capability(name, False, "off", reason, "PYTHON_JIT=1", source)
    return Capability(name, True, "on", source=source)


def _pymalloc(world: World, name: str) -> Capability:
    source = "_PyMem_GetCurrentAllocatorName"
    try:
        from cowlab import _native
    except ImportError:
        blocks = sys.getallocatedblocks()
        return Capability(
            name,
            None if blocks else False,
            None,
            "cowlab's C core is not built for this interpreter",
            "install cowlab with this Python",
            "sys.getallocatedblocks",
        )
    allocator = _native.allocator()
    if allocator == "pymalloc":
        return Capability(name, True, allocator, source=source)
    asked = world.environ.get("PYTHONMALLOC")
    if asked:
        reason, remedy = f"PYTHONMALLOC is {asked}", "unset PYTHONMALLOC"
    elif sys.flags.dev_mode:
        reason, remedy = "development mode adds debug hooks", "start without -X dev"
    elif allocator is None:
        reason = "something has put its own allocator or hooks in place"
        remedy = "stop it first (tracemalloc, memray, a debugger)"
    else:
        reason, remedy = f"built to use {allocator}", "a build with pymalloc"
    return Capability(name, False, allocator, reason, remedy, source)


def _immortality(world: World, name: str) -> Capability:
    """Take a thousand references to None and see whether its count moves."""
    source = "None's reference count before and after a thousand more references"
    before = sys.getrefcount(None)
    held = [None] * 1000
    after = sys.getrefcount(None)
    del held
    if before == after:
        return Capability(name, True, {"count_of_none": before}, source=source)
    return Capability(
        name,
        False,
        None,
        "None's count moves: this version has no immortal objects",
        "CPython 3.12 or later",
        source,
    )


def _image(world: World, name: str) -> Capability:
    source = "dladdr of a type"
    try:
        from cowlab import _native

        path = _native.image()
    except ImportError:
        path = None
    if path is None:
        return Capability(name, None, None, "no file is known for it", "", source)
    file = os.path.basename(os.fsdecode(path))
    kind = "shared library" if file.startswith("lib") else "in the executable"
    return Capability(name, True, {"kind": kind, "file": file}, source=source)


PROBES = (
    Probe(
        "python",
        "interpreter",
        "Reading objects, pools and frames where they lie.",
        "only the readings of /proc work",
        _python,
    ),
    Probe(
        "gil",
        "interpreter",
        "All that knows objects: blame(), census(), pools(), immortalize().",
        "only the readings of /proc, measure(), group(), freeze() and two arms of"
        " trial() work",
        _gil,
    ),
    Probe(
        "release_build",
        "interpreter",
        "immortalize(), trim() and seal().",
        "these three refuse",
        _release_build,
    ),
    Probe(
        "pymalloc",
        "interpreter",
        "Pools and arenas: what an address is, trim() and seal().",
        "heap pages are told apart by mapping only; trim() and seal() have no pools",
        _pymalloc,
    ),
    Probe(
        "immortality",
        "interpreter",
        "prepare_fork(): objects whose count is not written.",
        "prepare_fork() freezes the collector only, which stops its copies and not"
        " those of reads",
        _immortality,
    ),
    Probe(
        "jit",
        "interpreter",
        "Nothing needs it; where it is on, immortalize() leaves its objects alone.",
        "nothing",
        _jit,
    ),
    Probe(
        "image",
        "interpreter",
        "Which mapping holds the interpreter's own data.",
        "its pages count as those of any library",
        _image,
    ),
)
