"""Recording in one worker, and its blame report when it ends or on a signal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowlab._recorder import Recorder

__all__ = ["WorkerRecording", "to_stderr"]


def to_stderr(text: str) -> None:
    """Where a report goes that nobody else takes."""
    print(text, file=sys.stderr, flush=True)


def _die() -> None:
    """Of SIGTERM, as a worker does that does not record."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


class WorkerRecording:
    """Which lines of this worker copy pages.

    ``tell`` is given every report, and why there is none; ``report_to`` is a file for
    the last one. Nothing here raises: a worker is there to work.
    """

    def __init__(
        self,
        mode: str,
        report_to: str | Path | None = None,
        tell: Callable[[str], None] = to_stderr,
    ) -> None:
        self._mode = mode
        self._report_to = report_to
        self._tell = tell
        self._recorder: Recorder | None = None
        self._reporting = self._leaving = False

    def start(self) -> None:
        """Begin, first thing in the worker."""
        from cowlab._recorder import record

        try:
            self._recorder = record(self._mode).start()
        except Exception as error:
            self._tell(f"cowlab: not recording: {error}")

    def listen(self, *, leave_on_term: bool = False) -> None:
        """Report on SIGUSR2. With ``leave_on_term`` there is a report, too, before
        SIGTERM ends the worker; by itself it ends it on the spot."""
        if self._recorder is None:
            return
        signal.signal(signal.SIGUSR2, lambda *_: self.report())
        if leave_on_term:
            signal.signal(signal.SIGTERM, self._leave)

    def _leave(self, *_: object) -> None:
        # SIGTERM comes at any time, and a pool sends it to workers that are on their
        # way out. So the last report is told here, and this is the end: an exception
        # may surface where finish() is no longer reached, or where it is swallowed.
        if self._reporting:
            self._leaving = True  # when that one is told
            return
        try:
            self.finish()
        finally:
            _die()

    def report(self) -> None:
        """Tell what was copied so far."""
        if self._recorder is None:
            return
        self._reporting = True
        try:
            self._report(self._recorder)
        finally:
            self._reporting = False
            if self._leaving:
                self._leave()

    def _report(self, recorder: Recorder) -> None:
        try:
            text = str(recorder.blame())
            if self._report_to is not None:
                Path(self._report_to).write_text(text + "\n")
        except Exception as error:
            text = f"there is no report: {error}"
        self._tell(f"cowlab: what this worker copied\n{text}")

    def finish(self) -> None:
        """Stop, and report: once, whoever comes first, the worker's end or SIGTERM."""
        if signal.getsignal(signal.SIGTERM) == self._leave:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
            self._report(recorder)
