"""What the recorder adds to a write that copies a page."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import floors
from harness import Budget, Contender, Row, Size, Unavailable

import cowlab
from cowlab import host
from rows.accounting import memory

MICRO = 1e6


def _in_child(work: Callable[[], float]) -> float:
    """What ``work`` returns in a fork of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, struct.pack("d", work()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise Unavailable("the child that records ended without a word")
    seconds: float = struct.unpack("d", said)[0]
    return seconds


@functools.cache
def _long_function() -> Callable[[Callable[[], float]], float]:
    """Calls its argument on line 2,000: the length of a function must not matter."""
    names: dict[str, Any] = {}
    exec("def call(it):\n" + "    _ = 0\n" * 1998 + "    return it()\n", names)
    found: Callable[[Callable[[], float]], float] = names["call"]
    return found


Contenders = Iterator[Mapping[str, Contender]]


@contextmanager
def _record(mode: str, capability: str, size: Size) -> Contenders:
    needed = host()[capability]
    if not needed:
        raise Unavailable(str(needed))
    length = size.memory // 16
    pages = length // host().page_size.value
    with memory(length) as block:
        # Its address; the view would keep the mapping from being closed.
        view = ctypes.c_char.from_buffer(block)
        address = ctypes.addressof(view)
        del view

        def write(recorder: Any) -> float:
            with recorder:
                return _long_function()(lambda: floors.write_pages(address, pages))

        yield {
            "cowlab": lambda: _in_child(lambda: write(cowlab.record(mode))) * MICRO,
            "floor": lambda: _in_child(lambda: write(nullcontext())) * MICRO,
        }


def _row(name: str, what: str, mode: str, capability: str, limit: float) -> Row:
    prepare = functools.partial(_record, mode, capability)
    return Row(name, what, "us", prepare, Budget(limit))


ROWS = (
    _row(
        "record-addresses",
        'a copied page under record("addresses")',
        "addresses",
        "perf_fault_address",
        1.5,
    ),
    _row(
        "record-lines",
        'a copied page under record("lines")',
        "lines",
        "perf_sigtrap",
        3,
    ),
)
