"""The same rows kept in nine ways: what eight reading children cost, and a read.

Each child takes every row in hand once, by its number. Python objects are written when
they are read; an array, shared memory, a file and pickled bytes are not, and cost more
to read one row at a time.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from cowlab._errors import Unsupported
from cowlab._experiment import (
    MIB,
    Arm,
    Claim,
    Column,
    Experiment,
    Metrics,
    Parameter,
    Verdict,
    different,
    refuted,
    reproduced,
    unanswered,
)
from cowlab._forking import measure
from cowlab._immortal import immortalize
from cowlab._result import Missing, Result
from cowlab._smaps import smaps_rollup

Get = Callable[[int], Sequence[int]]
"""The three ints of a row, by its number."""

Store = tuple[Get, int]
"""With the bytes that the rows take."""

NEXT_TO_NOTHING = 0.05
"""Of what plain objects cost."""

_ROW = struct.Struct("3q")
_kept: list[object] = []
"""What is read must outlive the function that made it."""


def objects(rows: int) -> Store:
    """A list of lists."""
    empty = smaps_rollup().rss or 0
    get = [[i, i + 1, i + 2] for i in range(rows)].__getitem__
    return get, (smaps_rollup().rss or 0) - empty


def one_array(rows: int) -> Store:
    """One array of the standard library: three machine words a row, no object."""
    values = array("q", (i + k for i in range(rows) for k in range(3)))

    def get(i: int) -> Sequence[int]:
        return values[3 * i], values[3 * i + 1], values[3 * i + 2]

    return get, len(values) * values.itemsize


def numpy_array(rows: int) -> Store:
    """A numpy array with a line a row."""
    try:
        import numpy
    except ImportError:
        raise Unsupported("numpy is not installed here: pip install numpy") from None
    values = numpy.arange(rows)[:, None] + numpy.arange(3)
    return lambda i: values[i].tolist(), values.nbytes


def _packed(rows: int) -> bytes:
    return b"".join(_ROW.pack(i, i + 1, i + 2) for i in range(rows))


def shared(rows: int) -> Store:
    """A block of multiprocessing.shared_memory."""
    from multiprocessing.shared_memory import SharedMemory

    block = SharedMemory(create=True, size=rows * _ROW.size)
    block.unlink()  # it lives on for those who map it
    data = block.buf
    assert data is not None
    data[: rows * _ROW.size] = _packed(rows)
    _kept.append(block)
    return lambda i: _ROW.unpack_from(data, i * _ROW.size), rows * _ROW.size


def file(rows: int) -> Store:
    """A file, mapped for reading."""
    import tempfile  # here, since random comes with it, which has an at-fork handler

    with tempfile.TemporaryFile() as opened:
        opened.write(_packed(rows))
        opened.flush()
        data = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
    data[:: mmap.PAGESIZE]  # the parent has it in memory, as the other arms do
    return lambda i: _ROW.unpack_from(data, i * _ROW.size), len(data)


def pickled(rows: int) -> Store:
    """Each row pickled, all in one bytes object, with an array of where each begins."""
    starts, parts, at = array("q", [0]), [], 0
    for i in range(rows):
        part = pickle.dumps([i, i + 1, i + 2], pickle.HIGHEST_PROTOCOL)
        parts.append(part)
        at += len(part)
        starts.append(at)
    data = b"".join(parts)

    def get(i: int) -> Sequence[int]:
        row: list[int] = pickle.loads(data[starts[i] : starts[i + 1]])
        return row

    return get, len(data) + len(starts) * starts.itemsize


STORES: dict[str, Callable[[int], Store]] = {
    "array": one_array,
    "numpy": numpy_array,
    "shared-memory": shared,
    "file": file,
    "pickled": pickled,
}

KSM = Path("/sys/kernel/mm/ksm")
KSM_SETTINGS = {"pages_to_scan": "5000", "run": "1"}
"""With which it scans what eight children copy in a second or two."""

KSM_SCANS = 3
"""Of all memory, after which what is alike is merged: KSM merges a page only when two
scans saw it the same, and is in the midst of one when one begins to count."""

PR_SET_MEMORY_MERGE = 67

_RESTORE = 'read -r _; while [ $# -gt 0 ]; do echo "$2" >"$1"; shift 2; done'
"""For a shell: when its input ends, the values into their files."""


@contextmanager
def _ksm() -> Iterator[None]:
    """KSM for this process and those it forks; Unsupported where it cannot work.

    Where it does not run, root starts it, for as long as this lasts: it looks at
    processes only that ask for it. Should this process be killed, a shell that waits
    for its end puts the settings back.
    """
    import ctypes
    import subprocess

    try:
        found = {name: (KSM / name).read_text().strip() for name in KSM_SETTINGS}
    except OSError:
        raise Unsupported("this kernel has no KSM: it needs CONFIG_KSM") from None
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0):
        why = os.strerror(ctypes.get_errno())
        raise Unsupported(f"prctl(PR_SET_MEMORY_MERGE): {why}; it needs Linux 6.4")
    if found["run"] == "1":
        yield
        return
    restore = ["sh", "-c", _RESTORE, "sh"]
    for name, value in found.items():
        restore += [str(KSM / name), value]
    with subprocess.Popen(
        restore,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        try:
            for name, value in KSM_SETTINGS.items():
                (KSM / name).write_text(value)
        except OSError as error:
            raise Unsupported(
                f"KSM does not run ({KSM}/run is {found['run']}), and may not be"
                f" started: {error.strerror}; as root: echo 1 > {KSM}/run"
            ) from None
        yield


def _scans() -> int:
    return int((KSM / "full_scans").read_text())


def _wait_for_ksm(seconds: float) -> bool:
    """Until it has gone through all memory often enough; false if the time is up."""
    deadline = time.monotonic() + seconds
    enough = _scans() + KSM_SCANS
    while _scans() < enough:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def read(get: Get, rows: int, ksm_seconds: float = 0.0) -> tuple[int, float, bool]:
    """Every row once: the sum of all ints, the processor time, and if KSM was done."""
    start = time.process_time()
    total = 0
    for i in range(rows):
        a, b, c = get(i)
        total += a + b + c
    took = time.process_time() - start
    merged = not ksm_seconds or _wait_for_ksm(ksm_seconds)
    return total, took, merged


def run_arm(arm: str, *, rows: int, children: int, ksm_seconds: int) -> Metrics:
    """Make the rows in one of the ways, fork, and read the group when all have read."""
    with _ksm() if arm == "ksm" else nullcontext():
        return _in_children(arm, rows, children, ksm_seconds)


def _in_children(arm: str, rows: int, children: int, ksm_seconds: int) -> Metrics:
    get, data = STORES.get(arm, objects)(rows)
    gc.collect()
    if arm == "freeze":
        gc.freeze()
    elif arm == "immortal":
        immortalize()
    waits = float(ksm_seconds) if arm == "ksm" else 0.0
    report = measure(read, get, rows, waits, children=children)
    parent, before = report.parent_after, report.parent_before
    assert parent is not None and before is not None
    sums = {child.value[0] for child in report.children}
    if sums != {3 * rows * (rows + 1) // 2}:
        raise ValueError(f"{arm} gave other rows than were put in")
    cpu = sum(child.value[1] for child in report.children)
    group = parent.pss + report.after.pss
    copied: int | None = report.copied * report.page_size
    warnings = report.warnings
    if arm == "ksm":
        copied = None
        warnings = (
            "what was copied is not known: it was merged when it was counted; there"
            f" were {report.minor_faults:,} minor faults",
        )
    return {
        "group": group,
        "growth": group - before.pss - report.before.pss,
        "copied": copied,
        "private": report.after.uss / children,
        "data": data,
        "read": cpu / children / rows,
        "warnings": warnings,
    }


def in_order(result: Result) -> Verdict:
    """A11: one array, then shared or file memory; freeze is for another thing."""
    plain = result.median("objects", "growth")
    if plain < 16 * MIB:
        return unanswered(f"too few rows: objects cost {plain / MIB:.1f} MiB in all")
    costs, poor = [], []
    read_plain = result.median("objects", "read")
    for arm in ("array", "numpy", "shared-memory", "file", "pickled"):
        try:
            growth = result.median(arm, "growth")
            times = result.median(arm, "read") / read_plain
        except Missing:
            continue
        costs.append(f"{arm} {growth / MIB:.1f} MiB at {times:.1f}x the time")
        if growth > NEXT_TO_NOTHING * plain:
            poor.append(arm)
    frozen = result.median("freeze", "growth") / plain
    figures = (
        f"reading objects makes the group {plain / MIB:,.0f} MiB larger at"
        f" {read_plain * 1e9:.0f} ns a row; {', '.join(costs)}. freeze leaves"
        f" {frozen:.0%} of it: it is for collections"
    )
    try:
        growth = result.median("immortal", "growth")
        times = result.median("immortal", "read") / read_plain
        figures += (
            "; with the objects immortal, as PEP 683 made a few, it is"
            f" {growth / MIB:.1f} MiB at {times:.1f}x the time"
        )
        if growth > NEXT_TO_NOTHING * plain:
            poor.append("immortal")
    except Missing:
        pass
    if poor:
        return refuted(f"{figures}; {' and '.join(poor)} does not keep it shared")
    if frozen < 0.5:
        return different(f"{figures}, but helped reads here")
    return reproduced(figures)


def notes(result: Result) -> Iterable[str]:
    """What the data itself takes, which is another reason to choose."""
    sizes = []
    for arm in result.arms:
        size = result.median(arm, "data")
        sizes.append(f"{arm} {size / result.parameters['rows']:.0f}")
    yield f"bytes a row in the parent: {', '.join(sizes)}."


EXPERIMENT = Experiment(
    name="remedies",
    title="The same rows kept in nine ways: memory in eight children, cost of a read",
    claims=(
        Claim(
            "A11",
            "A §7",
            "remedies in order: fewer objects (one array), shared or file memory,"
            " freeze; PEP 683 ended writes to None, small ints, interned strings",
            in_order,
        ),
    ),
    parameters={
        "rows": Parameter(
            200_000, "rows of three ints", minimum=1000, maximum=100_000_000
        ),
        "children": Parameter(8, "that read, all at once", maximum=256),
        "ksm_seconds": Parameter(30, "to wait at most for KSM to merge", maximum=3600),
    },
    arms=(
        Arm("objects", "reads a list of lists"),
        Arm("array", "reads one array.array"),
        Arm("numpy", "reads a numpy array"),
        Arm("shared-memory", "unpacks from multiprocessing.shared_memory"),
        Arm("file", "unpacks from a mapped file"),
        Arm("pickled", "unpickles each row, found by an index"),
        Arm("freeze", "reads a list of lists after gc.freeze()"),
        Arm("immortal", "reads a list of lists whose objects are immortal"),
        Arm(
            "ksm",
            "reads a list of lists; KSM, which root starts for it, merges the copies"
            " until the next read",
        ),
    ),
    columns=(
        Column(
            "growth", "group grew by MiB", "MiB", about="PSS, by the children's work"
        ),
        Column("copied", "copied MiB", "MiB", about="by all children"),
        Column("private", "a child's own MiB", "MiB", about="its USS when it has read"),
        Column("group", "group MiB", "MiB", about="PSS of parent and children"),
        Column("data", "data MiB", "MiB", about="what the rows take in the parent"),
        Column("read", "a row read in ns", "ns", about="processor time, in a child"),
    ),
    run_arm=run_arm,
    repeat=1,
    notes=notes,
)
