"""A real gunicorn, its workers replaced on the way, on the loopback interface."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import IMMORTALITY, requires

import cowlab

pytestmark = requires("gil")

pytest.importorskip("gunicorn", reason="gunicorn is not installed here")

APPLICATION = """
import gc, os

table = {f"key {i}": {"name": str(i), "values": [i, i + 1]} for i in range(30_000)}
answers = {}

def application(environ, start_response):
    total = sum(len(row["name"]) + row["values"][1] for row in table.values())
    pid = os.getpid()
    answers[pid] = answers.get(pid, 0) + 1
    body = f"{total} {pid} {gc.isenabled()} {answers[pid]}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


class Server:
    """A running gunicorn."""

    def __init__(
        self, folder: Path, configuration: str, *options: str, max_requests: int = 0
    ) -> None:
        (folder / "shop.py").write_text(APPLICATION)
        (folder / "gunicorn.conf.py").write_text(configuration)
        self.log = folder / "log"
        self.max_requests = max_requests or sys.maxsize
        self.answered: dict[int, int] = {}
        # It inherits the socket: a port that is free can be taken before it is bound.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn"),
                    *("--bind", f"fd://{listening.fileno()}"),
                    *("--log-file", str(self.log)),
                    *("--max-requests", str(max_requests)),
                    *options,
                    "shop:application",
                ],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(cowlab.__file__).parents[1])},
                pass_fds=[listening.fileno()],
            )

    def ask(self) -> tuple[int, int, bool]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            response = connection.getresponse()
            assert response.status == 200
            total, pid, collecting, count = response.read().decode().split()
        self.answered[int(pid)] = int(count)
        return int(total), int(pid), collecting == "True"

    def wait_for(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def wait_until_ready(self, workers: int) -> None:
        self.wait_for(lambda: self.rests(workers))

    def rests(self, workers: int) -> bool:
        """Whether there are so many, and each has answered and will answer again.

        One that has not may still start, and does not hear SIGTERM while it does; one
        that gave its last answer is about to leave, and another to be forked.
        """
        if not self.answers():
            return False
        found = [member.pid for member in cowlab.group(self.process.pid).workers]
        counts = [self.answered.get(pid, 0) for pid in found]
        return len(found) == workers and all(0 < n < self.max_requests for n in counts)

    def answers(self) -> bool:
        try:
            return bool(self.ask())
        except OSError:
            return False


@contextlib.contextmanager
def running(
    folder: Path, configuration: str, *options: str, max_requests: int = 0
) -> Iterator[Server]:
    server = Server(folder, configuration, *options, max_requests=max_requests)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(30)


PREPARED = """
from cowlab.contrib.gunicorn import hooks
workers = 2
globals().update(hooks(requests=["/"]))
"""
PLAIN = "workers = 2\npreload_app = True\n"


def load(server: Server, requests: int) -> tuple[set[int], set[int], set[bool]]:
    answers = [server.ask() for _ in range(requests)]
    totals, pids, collecting = zip(*answers, strict=True)
    return set(totals), set(pids), set(collecting)


def test_workers_and_their_successors_share(tmp_path: Path) -> None:
    sizes, totals = {}, {}
    for name, configuration in (("prepared", PREPARED), ("plain", PLAIN)):
        folder = tmp_path / name
        folder.mkdir()
        with running(folder, configuration, max_requests=10) as server:
            server.wait_until_ready(2)
            totals[name], pids, collecting = load(server, 40)
            assert len(pids) > 2  # some were replaced
            assert collecting == {True}
            server.wait_until_ready(2)
            sizes[name] = cowlab.group(server.process.pid)
        log = server.log.read_text()
        assert ("cowlab: prepared" in log) == (name == "prepared")
        assert "Exception" not in log
    assert totals["prepared"] == totals["plain"]
    if IMMORTALITY:
        assert sizes["prepared"].pss < sizes["plain"].pss * 0.8


def test_a_reload_prepares_again(tmp_path: Path) -> None:
    with running(tmp_path, "", "-c", "python:cowlab.contrib.gunicorn") as server:
        server.wait_until_ready(1)
        before = server.ask()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda: server.log.read_text().count("cowlab: prepared") == 2)
        server.wait_for(lambda: server.answers() and server.ask()[1] != before[1])
        assert server.ask()[0] == before[0]


@pytest.mark.parametrize("error", ["LookupError", "SystemExit"])
def test_a_warm_up_that_fails_does_not_stop_the_server(
    error: str, tmp_path: Path
) -> None:
    configuration = f"""
from cowlab.contrib.gunicorn import hooks
def warm():
    raise {error}("no database yet")
globals().update(hooks(warm=warm))
"""
    with running(tmp_path, configuration) as server:
        server.wait_until_ready(1)
        assert server.ask()[0] > 0
    log = server.log.read_text()
    assert "cowlab: not prepared" in log
    assert "no database yet" in log


def test_nothing_is_prepared_where_the_master_does_not_load(tmp_path: Path) -> None:
    with running(tmp_path, PREPARED + "preload_app = False") as server:
        server.wait_until_ready(2)
        assert server.ask()[0] > 0
    log = server.log.read_text()
    assert "cowlab: not prepared: preload_app is off" in log
    assert "cowlab: prepared" not in log


def test_the_first_worker_records(tmp_path: Path) -> None:
    if not cowlab.host()["perf_sigtrap"]:
        pytest.skip(str(cowlab.host()["perf_sigtrap"]))
    configuration = """
from cowlab.contrib.gunicorn import hooks
globals().update(hooks(
    record="lines", report_to="blame.txt", prepare={"immortalize": False}
))
"""
    with running(tmp_path, configuration) as server:
        server.wait_until_ready(1)
        load(server, 3)
        assert "what this worker copied" not in server.log.read_text()
        os.kill(server.ask()[1], signal.SIGUSR2)
        server.wait_for(lambda: "what this worker copied" in server.log.read_text())
        assert server.ask()[0] > 0  # it goes on
        (tmp_path / "blame.txt").unlink()
    text = (tmp_path / "blame.txt").read_text()
    assert "shop.py" in text
    assert "what this worker copied" in server.log.read_text()
