"""The lines that a trial prints, pasted as they are into the server they are for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import IMMORTALITY, requires

import cowlab
from cowlab._advice import lines_to_paste

EVIDENCE = """
import gc, json, os, sys, time

table = {f"key {i}": {"name": str(i), "values": [i, i + 1]} for i in range(10_000)}

def meet():
    # Stay until another process has come here, too: each of two has a task then.
    os.makedirs("met", exist_ok=True)
    os.close(os.open(f"met/{os.getpid()}", os.O_CREAT))
    for _ in range(6_000):
        if len(os.listdir("met")) > 1:
            return
        time.sleep(0.01)
    raise TimeoutError("there is no other worker")

def evidence():
    with open("/proc/self/smaps_rollup") as file:
        private = sum(int(line.split()[1]) for line in file if "Private_Dirty" in line)
    return {
        "total": sum(len(row["name"]) + row["values"][1] for row in table.values()),
        "pid": os.getpid(),
        "collects": gc.isenabled(),
        "frozen": gc.get_freeze_count(),
        "references": sys.getrefcount(table["key 7"]),
        "private": private,
    }
"""

WSGI = """
from evidence import evidence, json

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(evidence()).encode()]
"""

CELERY = """
from pathlib import Path
from celery import Celery
from evidence import evidence, meet

here = Path(__file__).parent
app = Celery("shop", broker="filesystem://", backend=f"file://{here}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{here}/queue",
    "data_folder_out": f"{here}/queue",
    "control_folder": f"{here}/control",
    "polling_interval": 0.1,
}

@app.task(name="look")
def look():
    meet()
    return evidence()

"""

ASK_CELERY = """
import json, shop
print(json.dumps([shop.look.delay().id for _ in range(4)]))
"""

HEAR_CELERY = """
import json, sys, shop
found = [shop.look.AsyncResult(name) for name in json.loads(sys.argv[1])]
print(json.dumps([one.get(timeout=80) for one in found]))
"""

POOL = """
import json

from evidence import evidence, meet

def look(_):
    meet()
    return evidence()

LINES
    print(json.dumps(pool.map(look, range(4), chunksize=1)))
"""

COMMAND = {
    "target": "shop:app",
    "kind": "wsgi",
    "requests": [],
    "workers": 2,
    "warm": 0,
}

ARMS = ["prepare", *(["both"] if IMMORTALITY else ["freeze"])]


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed here")


def environment() -> dict[str, str]:
    path = [str(Path(cowlab.__file__).parents[1]), "."]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


@contextlib.contextmanager
def running(
    folder: Path,
    *command: str,
    stop: int = signal.SIGTERM,
    listening: socket.socket | None = None,
) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """A server; the value waits until something is true, and gives it."""
    log = folder / "log"
    with log.open("wb") as out, listening or contextlib.nullcontext():
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=out,
            stderr=out,
            pass_fds=[listening.fileno()] if listening else [],
            start_new_session=True,
        )

    def wait_for(what: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 60
        while not (found := what()):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return found

    try:
        yield wait_for
    finally:
        os.killpg(server.pid, stop)
        server.wait(60)


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def listen() -> tuple[socket.socket, int]:
    """A socket for a server to inherit, and its port.

    A port that is only found free can be another's before the server has it.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, listening.getsockname()[1]


def of_two_workers(port: int) -> list[dict[str, Any]] | None:
    """What each of two workers says, the last time that it was asked."""
    found: dict[int, dict[str, Any]] = {}
    for _ in range(20):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as got:
                one = json.load(got)
        except OSError:
            return None
        found[one["pid"]] = one
        if len(found) == 2:
            return list(found.values())
    return None


def check(workers: list[dict[str, Any]]) -> None:
    """Each worker was forked by a process in which the lines had done their work."""
    assert len({one["pid"] for one in workers}) == 2
    for one in workers:
        assert one["total"] == 50_043_890
        assert one["collects"], "the collector is off: garbage would be kept for ever"
        # A collection on 3.14 takes immortal objects off its lists: few are left.
        assert one["frozen"] > (0 if IMMORTALITY else 10_000)
        if IMMORTALITY:
            assert one["references"] > 1 << 29
            assert one["private"] < 6_000  # KiB; the table alone is more


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Path:
    (tmp_path / "evidence.py").write_text(EVIDENCE)
    (tmp_path / "shop.py").write_text(WSGI)
    return tmp_path


def ask_gunicorn(here: Path) -> None:
    listening, port = listen()
    command = [sys.executable, "-m", "gunicorn", "--bind", f"fd://{listening.fileno()}"]
    command += ["--workers", "2", "shop:app"]
    with running(here, *command, listening=listening) as wait_for:
        check(wait_for(lambda: of_two_workers(port)))


@requires("gil")
@pytest.mark.parametrize("arm", ARMS)
def test_gunicorn(here: Path, arm: str) -> None:
    needs("gunicorn")
    lines = lines_to_paste(arm, "gunicorn", COMMAND)
    assert ("cowlab.contrib.gunicorn" in lines) == (arm == "prepare")
    (here / "gunicorn.conf.py").write_text(lines)
    ask_gunicorn(here)


@requires("gil")
def test_gunicorn_with_a_warm_up(here: Path) -> None:
    needs("gunicorn")
    asked = {"target": "/?1", "method": "GET", "headers": {}, "body": ""}
    command = COMMAND | {"warm": 2, "requests": [asked, asked]}
    lines = lines_to_paste("prepare", "gunicorn", command)
    assert 'requests=["/?1"]' in lines
    (here / "gunicorn.conf.py").write_text(lines)
    ask_gunicorn(here)


@pytest.mark.parametrize("arm", ARMS)
def test_uwsgi(here: Path, arm: str) -> None:
    uwsgi = shutil.which("uwsgi", path=str(Path(sys.executable).parent))
    if uwsgi is None:
        pytest.skip("uwsgi is not installed here")
    (here / "prepared.py").write_text(lines_to_paste(arm, "uwsgi", COMMAND))
    listening, port = listen()
    listening.close()  # uwsgi does not take it
    options = "--master --processes 2 --module prepared --need-app --die-on-term"
    command = [uwsgi, "--http-socket", f"127.0.0.1:{port}", *options.split()]
    with running(here, *command) as wait_for:
        check(wait_for(lambda: of_two_workers(port)))


def test_celery(here: Path) -> None:
    needs("celery")
    for name in ("queue", "control", "results"):
        (here / name).mkdir()
    (here / "shop.py").write_text(CELERY + lines_to_paste("prepare", "celery", COMMAND))
    options = "-A shop worker --pool prefork --concurrency 2"
    celery = [sys.executable, "-m", "celery", *options.split()]
    # Before there is a worker: this broker's files are read while they are written.
    asked = run(here, ASK_CELERY)
    assert asked.returncode == 0, asked.stderr
    with running(here, *celery, stop=signal.SIGKILL):  # SIGTERM takes six seconds
        heard = run(here, HEAR_CELERY, asked.stdout)
    assert heard.returncode == 0, heard.stderr + (here / "log").read_text()
    check(json.loads(heard.stdout))


@requires("gil")
@pytest.mark.parametrize("arm", ARMS)
def test_multiprocessing(here: Path, arm: str) -> None:
    lines = lines_to_paste(arm, "multiprocessing", COMMAND)
    assert ("cowlab.contrib.multiprocessing" in lines) == (arm == "prepare")
    program = POOL.replace("LINES\n", lines.removesuffix("...").rstrip(" "))
    done = run(here, program)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


def test_what_the_lines_name() -> None:
    """The application, the workers and the warm-up are those of the trial."""
    dotted = COMMAND | {"target": "a.b:site.app", "workers": 6}
    lines = lines_to_paste("prepare", "uwsgi", dotted)
    assert "from a.b import site\n" in lines
    assert "application = site.app\n" in lines
    assert "--processes 6" in lines
    same = lines_to_paste("freeze", "uwsgi", COMMAND | {"target": "a:application"})
    assert "from a import application\n" in same
    for arm in ("prepare", "freeze"):
        lines = lines_to_paste(arm, "gunicorn", COMMAND | {"kind": "asgi"})
        assert "UvicornWorker" in lines
    warmed = COMMAND | {"warm": 3, "kind": "exercise", "target": "a:work"}
    for server in ("gunicorn", "uwsgi", "celery", "multiprocessing"):
        assert "warm_up: a function of yours" in (
            lines_to_paste("prepare", server, warmed)
        )
        assert "warm_up" not in lines_to_paste("freeze", server, warmed)
        assert lines_to_paste("plain", server, warmed) == ""
