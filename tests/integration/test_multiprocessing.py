"""Pools and executors whose workers share what was loaded before them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import IMMORTALITY, requires
from fresh import run_python

import cowlab

PROGRAM = """
import gc, json, os, sys
from cowlab.contrib.multiprocessing import Pool, ProcessPoolExecutor, context

table = [{"key": str(i), "value": [i, i + 1]} for i in range(40_000)]
OFF = dict.fromkeys(
    ["collect", "trim", "prehash", "immortalize", "freeze", "seal", "pause_gc"], False
)

def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if "Private_Dirty" in line)

def epoch(_):
    total = sum(len(row["key"]) + row["value"][1] for row in table)
    gc.collect()
    return total, gc.isenabled(), os.getpid(), private() * 1024

def run(prepare):
    %s

prepared = [json.loads(sys.argv[1]) or {}][0]
print(json.dumps(run(OFF if prepared == "off" else prepared)))
"""

WITH = {
    "pool": """
    with Pool(2, prepare=prepare, maxtasksperchild=3) as pool:
        return pool.map(epoch, range(8), chunksize=1)
""",
    "executor": """
    with ProcessPoolExecutor(2, prepare=prepare) as executor:
        assert executor.preparation is None
        results = list(executor.map(epoch, range(6)))
        assert executor.preparation.step("freeze").done == bool(prepare != OFF)
        return results
""",
    "process": """
    fork = context(**prepare)
    results = fork.SimpleQueue()
    workers = [
        fork.Process(target=lambda: results.put(epoch(0)), daemon=True)
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    return found
""",
}


def run(kind: str, prepare: object) -> list[Any]:
    done = run_python("-c", PROGRAM % WITH[kind].strip(), json.dumps(prepare))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@requires("gil")
@pytest.mark.parametrize("kind", WITH)
def test_workers_share_and_do_the_same_work(kind: str) -> None:
    prepared, plain = run(kind, {}), run(kind, "off")
    assert {row[0] for row in prepared} == {row[0] for row in plain}
    assert all(collecting for _, collecting, _, _ in [*prepared, *plain])
    workers = {pid for _, _, pid, _ in prepared}
    # Two workers of three tasks each cannot do eight: the pool replaced one at least.
    assert len(workers) >= (3 if kind == "pool" else 1)
    assert os.getpid() not in workers
    if IMMORTALITY:
        most = max(size for *_, size in prepared)
        least = max(size for *_, size in plain)
        assert most < least / 3


RECORDED = """
import os, signal
from cowlab.contrib.multiprocessing import Pool

table = [[i, i + 1] for i in range(20_000)]

def epoch(_):
    return sum(row[1] for row in table)

with Pool(1, prepare={"immortalize": False}, record="lines", report_to=%r) as pool:
    print(pool.apply(epoch, (0,)))
    os.kill(pool.apply(os.getpid), signal.SIGUSR2)
    print(pool.apply(epoch, (0,)))
"""


@requires("gil")
def test_the_first_worker_records_and_reports_when_asked_and_at_its_end(
    tmp_path: Path,
) -> None:
    if not cowlab.host()["perf_sigtrap"]:
        pytest.skip(str(cowlab.host()["perf_sigtrap"]))
    program, report = tmp_path / "program.py", tmp_path / "blame.txt"
    program.write_text(RECORDED % str(report))
    done = run_python(program, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{sum(range(1, 20_001))}\n" * 2
    assert report.exists(), done.stderr
    assert "program.py:8" in report.read_text()
    assert done.stderr.count("what this worker copied") == 2
