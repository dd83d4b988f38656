"""A real server: gunicorn, Django, a large table in memory, and a fixed load.

The master loads the table and forks its workers; every request reads 200 rows. What the
whole group takes is read before the first request and after the last one, so that all
arms have done the same work.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from cowlab._errors import Unsupported
from cowlab._experiment import (
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
from cowlab._group import Group, group
from cowlab._result import Result
from cowlab._status import stat
from cowlab._trial import trial

READS = 200
"""Rows that one request reads."""

CLIENTS = 4
"""Connections at a time."""

ENOUGH = 50_000
"""Rows; below, the table is small beside Django itself."""

APPLICATION = "cowlab.experiments._shop:application"

CONFIGURATIONS = {
    "each-loads": "preload_app = False",
    "plain": "preload_app = True",
    "freeze": """
import gc
preload_app = True
def when_ready(server):
    gc.collect()
    gc.freeze()
""",
    "prepare": """
from cowlab.contrib.gunicorn import hooks
globals().update(hooks(requests=["/items?from=0"]))
""",
}

TRIED = {"trial-plain": "plain", "trial-prepare": "prepare"}
"""The arms without a server, and what they are called in a trial."""

BOOTED = """
def post_worker_init(worker):
    with open("booted", "ab", 0) as file:
        file.write(b"x")
"""


def _require() -> None:
    missing = [
        name
        for name in ("gunicorn", "django")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise Unsupported(
            f"{' and '.join(missing)} is not here: pip install gunicorn django"
        )


def _answer(port: int, first: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("GET", f"/items?from={first}")
        response = client.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"request {first} was answered {response.status}")
    return int(body.split(b":")[1].rstrip(b" }"))


def _settled(server: subprocess.Popen[bytes], booted: Path, workers: int) -> Group:
    """The group, once all workers have loaded what they load."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError("gunicorn ended before its workers had started")
        if booted.exists() and booted.stat().st_size >= workers:
            return group(server.pid)
        time.sleep(0.1)
    raise RuntimeError(f"gunicorn did not start {workers} workers in four minutes")


@contextmanager
def _server(arm: str, rows: int, workers: int) -> Iterator[tuple[int, Group, int]]:
    """The port, the group as forked, and the master's process number."""
    with tempfile.TemporaryDirectory(prefix="cowlab-") as name:
        folder = Path(name)
        configuration = CONFIGURATIONS[arm] + BOOTED
        (folder / "gunicorn.conf.py").write_text(configuration)
        log = folder / "log"
        # An arm may have found cowlab where sys.path does not lead.
        package = Path(__file__).parents[2]
        path = [str(package), *(part for part in sys.path if part)]
        # It inherits the socket: a port that is free can be taken before it is bound.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port: int = listening.getsockname()[1]
            server = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", APPLICATION),
                    *("--bind", f"fd://{listening.fileno()}"),
                    *("--workers", str(workers)),
                    *("--log-file", str(log), "--timeout", "120"),
                ],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path),
                    "COWLAB_SHOP_ROWS": str(rows),
                },
                pass_fds=[listening.fileno()],
            )
        try:
            yield port, _settled(server, folder / "booted", workers), server.pid
        except Exception as error:
            said = log.read_text()[-2000:] if log.exists() else "nothing"
            error.add_note(f"gunicorn said:\n{said}")
            raise
        finally:
            server.terminate()
            server.wait()


def run_arm(arm: str, *, rows: int, workers: int, requests: int) -> Metrics:
    """Start the server, send the load, read the group before and after."""
    _require()
    # Spread over the table, each a different window of it.
    firsts = [(i * 7919) % rows for i in range(requests)]
    if arm in TRIED:
        return _tried(TRIED[arm], rows, workers, firsts)
    with _server(arm, rows, workers) as (port, forked, master):
        begun = _processor_time(forked)
        start = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as clients:
            totals = list(clients.map(lambda first: _answer(port, first), firsts))
        seconds = time.perf_counter() - start
        after = group(master)
        cpu = _processor_time(after) - begun
    expected = [
        sum((i % rows) % 1000 for i in range(first, first + READS)) for first in firsts
    ]
    if totals != expected:
        raise RuntimeError("the server gave wrong answers")
    faults = sum(member.minor_faults for member in after.workers) - sum(
        member.minor_faults for member in forked.workers
    )
    return {
        "forked_pss": forked.pss,
        "forked_uss": sum(member.uss for member in forked.workers) / workers,
        "pss": after.pss,
        "uss": sum(member.uss for member in after.workers) / workers,
        "faults": faults / requests,
        "rate": requests / seconds,
        "cpu": cpu / requests,
    }


def _processor_time(found: Group) -> float:
    """Of the workers so far, in seconds."""
    counters = [stat(member.pid) for member in found.workers]
    ticks = sum(one.user_ticks + one.system_ticks for one in counters)
    return ticks / os.sysconf("SC_CLK_TCK")


def _tried(arm: str, rows: int, workers: int, firsts: list[int]) -> Metrics:
    """The same application, requests and number of workers in ``cowlab trial``."""
    os.environ["COWLAB_SHOP_ROWS"] = str(rows)
    # The prepared master is asked for one request, eight times, as gunicorn's is.
    report = trial(
        wsgi=APPLICATION,
        requests=[f"/items?from={first}" for first in firsts],
        workers=workers,
        work=len(firsts),
        repeat=1,
        arms=[arm],
        warm=8,
    )
    (sample,) = (one for one in report.samples if one.arm == arm)
    if report.failed:
        raise RuntimeError(report.text)
    return {
        "forked_pss": sample.pss_at_fork,
        "pss": sample.pss,
        "uss": sample.workers_uss / workers,
        "faults": sample.minor_faults / len(firsts),
        "cpu": sample.cpu,
        "warnings": sample.warnings,
    }


def preloading_alone_saves_little(result: Result) -> Verdict:
    """Per-worker loading against preloading, after the load."""
    own, shared = result.median("each-loads", "pss"), result.median("plain", "pss")
    saved = 1 - shared / own
    figures = f"preloading saves {saved:.0%} of the group's PSS after the load"
    if not 0 < saved < 0.5:
        return refuted(figures)
    if 0.05 <= saved <= 0.2:
        return reproduced(figures)
    return different(f"{figures}: how much depends on how much of the heap is data")


def freezing_is_no_remedy_for_a_server(result: Result) -> Verdict:
    """The published order of remedies has gc.freeze in it."""
    if int(result.parameters["rows"]) < ENOUGH:
        return unanswered(f"fewer than {ENOUGH:,} rows are small beside the server")
    plain = result.median("plain", "pss")
    freeze = result.median("freeze", "pss") / plain
    prepare = result.median("prepare", "pss") / plain
    rate, cpu = (
        result.median("prepare", name) / result.median("plain", name)
        for name in ("rate", "cpu")
    )
    figures = (
        f"of the plain group's PSS, gc.freeze leaves {freeze:.0%} and prepare_fork"
        f" {prepare:.0%}, at {rate:.2f} of its throughput and {cpu:.2f} of its"
        " processor time"
    )
    if freeze < 0.9:
        return reproduced(figures)
    return refuted(figures)


def notes(result: Result) -> Iterator[str]:
    """Whether a trial, which needs no server, says what the server does."""
    server = result.median("prepare", "pss") / result.median("plain", "pss")
    tried = result.median("trial-prepare", "pss") / result.median("trial-plain", "pss")
    apart = [
        abs(result.median(f"trial-{arm}", "pss") / result.median(arm, "pss") - 1)
        for arm in ("plain", "prepare")
    ]
    yield (
        f"cowlab trial on the same application: prepared takes {tried:.3f} of plain,"
        f" {server:.3f} under gunicorn: {abs(tried / server - 1):.1%} apart; the plain"
        f" groups are {apart[0]:.1%} apart, the prepared ones {apart[1]:.1%}."
    )


EXPERIMENT = Experiment(
    name="prefork-django",
    title="gunicorn and Django with a table in memory: what the workers share",
    claims=(
        Claim(
            "B2",
            "B",
            "preloading saves 10-13% of total PSS against per-worker loading",
            preloading_alone_saves_little,
        ),
        Claim(
            "A11",
            "A §7",
            "gc.freeze is among the remedies for a server that forks",
            freezing_is_no_remedy_for_a_server,
        ),
    ),
    arms=(
        Arm("each-loads", "loads the application itself"),
        Arm("plain", "is forked from a master that loaded it"),
        Arm("freeze", "is forked from a master that froze what it loaded"),
        Arm("prepare", "is forked from a master that was prepared"),
        Arm("trial-plain", "is one of cowlab trial, without a server"),
        Arm("trial-prepare", "is one of cowlab trial, forked from a prepared master"),
    ),
    columns=(
        Column("forked_pss", "group PSS forked", "MiB"),
        Column("forked_uss", "a worker's USS", "MiB"),
        Column(
            "pss",
            "group PSS after the load",
            "MiB",
            about="what master and workers take in all, each shared page once",
        ),
        Column("uss", "a worker's USS after", "MiB"),
        Column("faults", "faults a request", "", published={"plain": 0.609}),
        Column("rate", "requests a second", ""),
        Column("cpu", "CPU ms a request", "ms", about="of the workers"),
    ),
    run_arm=run_arm,
    parameters={
        "rows": Parameter(100_000, "rows in memory", minimum=READS),
        "workers": Parameter(8, "gunicorn's workers", minimum=1, maximum=128),
        "requests": Parameter(8_000, "requests in all", minimum=1),
    },
    repeat=1,
    timeout=600.0,
    notes=notes,
)
