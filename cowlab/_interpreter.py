"""An interpreter that arms run under: how it is started, and what it is told."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import cowlab
from cowlab._errors import CowlabError, Unsupported

__all__ = ["KEPT", "ArmDied", "ArmTimeout", "Interpreter", "clean_environment"]

KEPT = (
    "PYTHONHOME",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "PYTHON_GIL",
    "PYTHON_JIT",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
)
"""The PYTHON* variables that an arm is given: those that say where the interpreter is
or choose the allocator, GIL, JIT and hash seed under test. All the others (path,
start-up, tracing, development mode) are the user's and would be measured with it."""

# Import cowlab from there without leaving that directory in the path, which may hold
# the packages of another interpreter.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import cowlab; del sys.path[0];"
    " from cowlab._arm import main; main(sys.argv[2])"
)

TAIL = 12
GRACE = 10
PROBE_SECONDS = 60.0


class ArmDied(CowlabError):
    """The arm's interpreter ended without an answer; the message has its last words."""


class ArmTimeout(CowlabError):
    """The arm ran past its time and was killed."""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for an arm: without the user's PYTHON* settings (see KEPT)."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name in KEPT
    }
    return env | dict(extra or {})


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and the directory that holds the ``cowlab`` it is to import."""

    python: str
    root: str

    @classmethod
    def current(cls) -> Interpreter:
        """The one that runs this."""
        if not sys.executable:
            raise Unsupported(
                "This Python is embedded in another program and cannot be started"
                " again: name one with --python PATH."
            )
        return cls(sys.executable, str(Path(cowlab.__file__).parent.parent))

    def environment(self) -> dict[str, Any]:
        """What it is, told by itself; Unsupported where cowlab's core does not load."""
        try:
            answer = self.ask({"do": "probe"}, timeout=PROBE_SECONDS)
        except (ArmDied, ArmTimeout) as error:
            if "cowlab._native" in str(error):
                raise Unsupported(
                    f"{self.python} cannot load cowlab's C core:"
                    f" {str(error).splitlines()[-1].strip()}."
                    " Install cowlab again with that Python, on Linux."
                ) from None
            raise Unsupported(f"{self.python} does not run arms: {error}") from None
        found: dict[str, Any] = answer["environment"]
        return found

    def ask(
        self,
        order: Mapping[str, Any],
        *,
        timeout: float,
        env: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Start it, have it do ``order``, and return its answer.

        It has a session of its own: Ctrl-C reaches the runner only, and whatever the
        arm leaves behind is killed with it. What it prints is kept in case of need.
        """
        answer_end, arm_end = os.pipe()
        said = _scratch()
        process = None
        try:
            order = {**order, "pipe": arm_end, "seconds": ceil(timeout) + GRACE}
            command = [self.python, *options, "-P", "-c", _BOOT, self.root]
            process = subprocess.Popen(
                [*command, json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=clean_environment(env),
                pass_fds=(arm_end,),
                start_new_session=True,
            )
            os.close(arm_end)
            arm_end = -1
            deadline = time.monotonic() + timeout
            line = _read_line(answer_end, deadline)
            if line is None:
                raise ArmTimeout(f"killed after {timeout:g} s{_last_words(said)}")
            code = _end(process, deadline)
            if not line.endswith(b"\n"):
                raise ArmDied(f"{_how_it_ended(code)}{_last_words(said)}")
            answer: dict[str, Any] = json.loads(line)
            if "raised" in answer:
                answer["said"] = _last_words(said)
            return answer
        finally:
            if process is not None:
                _kill_session(process)
            for fd in (answer_end, arm_end, said):
                if fd >= 0:
                    os.close(fd)


def _scratch() -> int:
    """A file without a name for what the arm prints, in memory where that can be."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cowlab-arm")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _read_line(fd: int, deadline: float) -> bytes | None:
    """Up to the newline, or to the end of the pipe; None when time is up."""
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return None
            piece = os.read(fd, 65536)
            if not piece:
                break
            data += piece
    return data


def _end(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit code; None if it does not leave although it has answered."""
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """The arm and all that it left behind in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its pipe and ran on"
    if code >= 0:
        return f"exited with status {code} and without an answer"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_words(said: int) -> str:
    """The tail of what it printed, on lines of its own; "" if it was silent."""
    size = os.fstat(said).st_size
    text = os.pread(said, 8192, max(0, size - 8192)).decode(errors="replace")
    lines = text.strip().splitlines()[-TAIL:]
    return "".join(f"\n    {line}" for line in lines)
