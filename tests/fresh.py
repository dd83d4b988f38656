"""Programs in an interpreter of their own: what preparation does lasts for its life."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cowlab

ROOT = Path(cowlab.__file__).parents[1]

HEAP = """
import gc, json, os, sys
import cowlab

def empty():
    pass

def reads():
    total = 0
    for row in table:
        for number in row:
            total += number

def both():
    reads()
    gc.collect()
"""
"""Tasks over a table that the program makes next."""


def run_python(
    *arguments: object, cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """This interpreter with these arguments, and the cowlab that is tested."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=timeout,
    )


def fresh(code: str, *, status: int = 0) -> Any:
    """Run code in a new interpreter; what it prints last, as JSON."""
    run = run_python("-c", code, cwd=ROOT)
    assert run.returncode == status, run.stderr
    return json.loads(run.stdout.splitlines()[-1]) if run.stdout.strip() else None
