"""Files that nothing closes when the process ends: they are flushed there."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["flush_at_exit"]

_known: list[Any] = []  # weak references to files that are to be flushed
_registered: list[bool] = []


def flush_at_exit(files: Iterable[Any]) -> None:
    """Have these flushed, and those that are opened later.

    What only immortal or frozen objects hold is never freed, and so never flushed.
    """
    import weakref

    known = {id(file) for ref in _known if (file := ref()) is not None}
    standard = {
        id(stream)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    }
    for file in files:
        if id(file) not in known and id(file) not in standard:
            _known.append(weakref.ref(file))
    if not _registered:
        import atexit

        atexit.register(_flush)
        _registered.append(True)


def _flush() -> None:
    import _io

    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return  # these leave by os._exit, which flushes nothing, prepared or not
    opened = [file for ref in _known if (file := ref()) is not None]
    # By its type alone: isinstance() would ask for __class__, which a proxy answers
    # with code of its own.
    opened += [
        found for found in gc.get_objects() if issubclass(type(found), _io._IOBase)
    ]
    for file in opened:
        try:
            if not file.closed and file.writable():
                file.flush()
        except Exception:
            continue  # as at the end of any process: there is nobody to tell
