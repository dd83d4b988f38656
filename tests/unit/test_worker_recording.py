"""A worker's last report is told once, whenever the signal comes that ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from cowlab.contrib import _recording
from cowlab.contrib._recording import WorkerRecording


class Recorder:
    def stop(self) -> None: ...

    def blame(self) -> str:
        return "all of it"


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    numbers = signal.SIGTERM, signal.SIGUSR2
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def life(recording: WorkerRecording, asked: bool) -> None:
    """What a worker does between its first and its last statement."""
    try:
        if asked:
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        recording.finish()


def ended_at(step: int, asked: bool) -> tuple[list[str], bool]:
    """What a worker tells that gets SIGTERM at this step of its life and of the
    recording, and whether it lived that long."""
    told: list[str] = []
    recording = WorkerRecording("lines", tell=told.append)
    recording._recorder = Recorder()  # type: ignore[assignment]
    recording.listen(leave_on_term=True)
    files = __file__, _recording.__file__
    left = step

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        life(recording, asked)
    except SystemExit:
        pass
    finally:
        sys.settrace(before)
    return told, left > 0


@pytest.mark.parametrize("asked", [False, True])
def test_a_worker_tells_its_last_report_whenever_it_is_ended(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_recording, "_die", sys.exit)
    steps = 0
    alive = True
    while alive:
        steps += 1
        told, outlived = ended_at(steps, asked)
        alive = not outlived
        assert all("all of it" in text for text in told)
        # Asked for one before, which may have been cut off by the end, or not begun.
        assert len(told) in ((1, 2) if asked else (1,)), steps
    assert steps > 10


def test_a_worker_ends_where_an_exception_would_be_swallowed() -> None:
    class Last:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    def tell(text: str) -> None:
        os.write(writing, text.encode())

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            recording = WorkerRecording("lines", tell=tell)
            recording._recorder = Recorder()  # type: ignore[assignment]
            recording.listen(leave_on_term=True)
            Last()
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        assert told.read().count(b"all of it") == 1
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM
