"""The page-fault recorder: who wrote first to each inherited page of this process."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from cowlab import _errors
from cowlab._linetable import line_at

if TYPE_CHECKING:
    from cowlab._blame import Blame

__all__ = ["MODES", "Fault", "Record", "Recorder", "read_record", "record"]

MODES = ("pages", "addresses", "lines", "protect")
"""What is written down for each copied page: nothing but that it was copied; the
address and the machine instruction; these and the Python line; the same without perf
(protect)."""

_STATES = ("new", "on", "off")
_ENDS = ("unseen", "shared", "exclusive", "swapped", "gone")
_ASYNC, _KERNEL = 1, 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One inherited page that was written to.

    ``page`` and ``address`` are addresses in bytes; ``recorded`` is False for a page
    that is no longer shared although nobody saw who wrote to it. ``end`` is how the
    page stood at the last look: "exclusive" means copied here, or left alone by the
    other side. ``kernel`` marks a write inside a system call, ``late`` a record whose
    line is not known since its signal was blocked when the write happened.
    """

    page: int
    recorded: bool
    end: str
    address: int | None
    instruction: int | None
    thread: int | None
    kernel: bool
    late: bool
    file: str | None
    line: int | None
    function: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """What a recorder has written down so far.

    ``inherited`` is the number of pages shared when it began. ``counts`` has how many
    faults were delivered (hits), were first writes to inherited pages (first), and
    every way in which one can be lost. ``maps_start`` and ``maps_stop`` are
    /proc/PID/maps.
    """

    mode: str
    state: str
    pid: int
    parent: int
    page_size: int
    inherited: int
    kernel_seen: bool
    faults: tuple[Fault, ...]
    counts: Mapping[str, int]
    memory: int
    maps_start: bytes
    maps_stop: bytes

    def blame(self) -> Blame:
        """What the pages written so far were copied for; the process must still be
        there, with an interpreter of this one's version, and its memory be readable."""
        from cowlab._attribution import blame_record

        return blame_record(self)


def decode(buffer: Any, memory: int = 0) -> Record:
    """A record from its bytes. Raises ``Truncated`` for anything else."""
    raw = _errors.native("reading a record").record_decode(buffer)
    codes = raw["codes"]
    lines: dict[tuple[int, int], int | None] = {}

    def fault(row: tuple[Any, ...]) -> Fault:
        page, done, flags, code, offset, address, ip, thread, end = row
        text = codes.get(code) if done else None
        if text is not None and (code, offset) not in lines:
            lines[code, offset] = line_at(text[3], text[2], offset)
        return Fault(
            page,
            done,
            _ENDS[end],
            address if done else None,
            ip if done and ip else None,
            thread if done else None,
            bool(flags & _KERNEL),
            bool(flags & _ASYNC),
            text[0] if text is not None else None,
            lines[code, offset] if text is not None else None,
            text[1] if text is not None else None,
        )

    return Record(
        mode=MODES[raw["mode"]],
        state=_STATES[raw["state"]],
        pid=raw["pid"],
        parent=raw["parent"],
        page_size=raw["page_size"],
        inherited=raw["inherited"],
        kernel_seen=raw["kernel_seen"],
        faults=tuple(fault(row) for row in raw["faults"]),
        counts=raw["counts"],
        memory=memory,
        maps_start=raw["maps_start"],
        maps_stop=raw["maps_stop"],
    )


def read_record(path: str | os.PathLike[str] | int) -> Record:
    """Read a record from its file, also while it is being written, from any process.

    ``path`` is the one given to ``record()``, or /proc/PID/fd/N of its memory, or an
    open descriptor. Raises ``Truncated`` where it is no record, ``OSError`` where it
    cannot be read.
    """
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if found.st_size == 0:
            raise _errors.Truncated(
                errno.ENODATA, "this is not a cowlab record: it is empty", str(path)
            )
        with mmap.mmap(fd, found.st_size, prot=mmap.PROT_READ) as memory:
            return decode(memory, found.st_blocks * 512)
    finally:
        if not isinstance(path, int):
            os.close(fd)


def why_not(error: OSError, mode: str) -> _errors.CowlabError:
    """The reason and the remedy for a recorder that cannot be enabled."""
    if error.errno in (errno.EACCES, errno.EPERM):
        from cowlab._host_privileges import perf_refusal

        reason, remedy = perf_refusal(error.errno)
        return _errors.Unsupported(
            f'recording "{mode}" needs perf events: {reason} (to enable it: {remedy}); '
            'or record "protect", which needs none and has risks'
        )
    if error.errno in (errno.ENOSYS, errno.EINVAL, errno.E2BIG):
        return _errors.Unsupported(
            f'recording "{mode}" needs perf events with sigtrap (Linux 5.13 and newer, '
            f'and not filtered): {error.strerror}; record "addresses" or "protect"'
        )
    if error.errno == errno.EBUSY:
        return _errors.Unsupported(
            "a recorder is at work in this process already: stop that one first"
        )
    if error.errno == errno.ENOSPC:
        return _errors.Unsupported(
            "this process has mapped far more memory since the recorder was made: "
            "make it right before it starts"
        )
    return _errors.Unsupported(f'recording "{mode}" failed: {error.strerror}')


def raise_why_not(number: int, mode: str) -> NoReturn:
    """The same for an error number that came from a child."""
    raise why_not(OSError(number, os.strerror(number)), mode)


def _check_mode(mode: str) -> int:
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    return MODES.index(mode)


def prepare_children(mode: str, number: int) -> tuple[Any, ...]:
    """A recorder for each child that is about to be forked."""
    native, index = _errors.native("record"), _check_mode(mode)
    return tuple(native.recorder_prepare(index, None) for _ in range(number))


class Recorder:
    """Records from ``start()`` to ``stop()``; or use it in a ``with`` statement.

    ``path`` names the record's file for other processes: the one asked for, or that of
    the record's memory under /proc, which lives as long as this process.
    """

    def __init__(
        self, mode: str = "lines", path: str | os.PathLike[str] | None = None
    ) -> None:
        self._index = _check_mode(mode)
        self.mode = mode
        self._native = _errors.native("record()")
        self._file = None if path is None else os.fspath(path)
        self._recorder: Any = None
        self._stopped = False

    def start(self) -> Recorder:
        """Begin. What is inherited are the pages shared with another process now.

        Raises ``Unsupported`` with the remedy where this machine forbids the mode, and
        ``FileExistsError`` where ``path`` exists.
        """
        if self._recorder is not None:
            raise _errors.Unsupported("this recorder was started before: make another")
        recorder = self._native.recorder_prepare(self._index, self._file)
        try:
            self._native.recorder_enable(recorder)
        except OSError as error:
            if self._file is not None:
                os.unlink(self._file)
            raise why_not(error, self.mode) from error
        self._recorder = recorder
        return self

    def stop(self) -> None:
        """End. Nothing if it has ended, or never began."""
        if self._recorder is not None and not self._stopped:
            self._native.recorder_disable(self._recorder)
            self._native.recorder_look(self._recorder, os.getpid())
            self._stopped = True

    @property
    def path(self) -> str:
        """The record's file."""
        if self._file is not None:
            return self._file
        return f"/proc/{os.getpid()}/fd/{self._descriptor()}"

    def _descriptor(self) -> int:
        if self._recorder is None:
            raise _errors.Unsupported("this recorder was not started: call start()")
        fd: int = self._native.recorder_fd(self._recorder)
        return fd

    def read(self) -> Record:
        """What is written down so far. Until ``stop()`` the page map is looked at
        first; after it, everything is as it was then."""
        if not self._stopped:
            self._descriptor()
            self._native.recorder_look(self._recorder, os.getpid())
        return read_record(self._descriptor())

    def blame(self) -> Blame:
        """What each page copied so far was copied for. Best after ``stop()``: finding
        it out copies pages too."""
        return self.read().blame()

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def record(mode: str = "lines", path: str | os.PathLike[str] | None = None) -> Recorder:
    """Record who writes first to each page that this process has inherited.

    For a process that was forked: a worker, a pool's child. ``mode`` is one of
    ``MODES``; ``path`` is a file to make, so that others can read the record as it
    grows (``read_record``). Costs a fault about 1.5 times in "addresses" and 2 to 3
    times in "lines", nothing otherwise. "protect" makes inherited small-object memory
    read-only: a system call that writes into such a page fails with EFAULT, so it is
    for test runs.

    >>> with record("pages") as recorder:
    ...     pass
    >>> recorder.read().mode
    'pages'
    """
    return Recorder(mode, path)
