"""An experiment whose arms do what arms may do, well and badly."""

import os
import sys
import threading
import time

from cowlab._errors import Unsupported
from cowlab._experiment import (
    MIB,
    Arm,
    Claim,
    Column,
    Experiment,
    Parameter,
    different,
    reproduced,
)


def crash():
    print("these are my last words")
    sys.stdout.flush()
    os.abort()


def leave_a_child():
    """A child that holds every descriptor and outlives the arm."""
    if os.fork() == 0:
        time.sleep(1000)


def let_a_child_run_on():
    os.fork()


ODD = {
    "crash": crash,
    "exit": lambda: os._exit(7),
    "sleep": lambda: time.sleep(1000),
    "child": leave_a_child,
    "twice": let_a_child_run_on,
    "noise": lambda: os.write(1, b'{"metrics": {"pid": 0}}\n' * 10_000),
    "closed": lambda: os.closerange(3, 100),
    "thread": lambda: threading.Thread(target=time.sleep, args=(1000,)).start(),
}


def run_arm(arm, *, rows, how, log):
    if log:
        with open(log, "a") as file:
            print(arm, file=file)
    if arm == "raise":
        raise KeyError("no such row")
    if arm == "unsupported":
        raise Unsupported("there is no perf here: install it")
    if arm == "text":
        return {"rows": "many"}
    ODD.get(arm, lambda: None)()
    return {
        "rows": rows,
        "double": 2.0 * rows,
        "absent": None,
        "pid": os.getpid(),
        "malloc": int(os.environ.get("PYTHONMALLOC") == "malloc"),
        "kept": int("PYTHONHASHSEED" in os.environ),
        "leaked": sum(name in os.environ for name in ("PYTHONPATH", "PYTHONSTARTUP")),
        "numpy": int("numpy" in sys.modules or "rich" in sys.modules),
        "traced": sys.flags.dev_mode,
        "warnings": [f"read {how}"] if how == "careful" else (),
    }


def judge(result):
    rows = result.median("good", "rows")
    return reproduced(f"{rows:g} rows") if rows > 5 else different("few rows")


EXPERIMENT = Experiment(
    name="toy",
    title="A toy",
    claims=(
        Claim("A0", "A §0", "there are rows", judge),
        Claim(
            "A1", "A §0", "x", lambda r: reproduced(str(1 / r.median("good", "traced")))
        ),
        Claim("A2", "A §0", "y", lambda r: reproduced(str(r.median("good", "absent")))),
    ),
    arms=(
        Arm("good", "does as it should"),
        Arm("other", "does the same", env={"PYTHONMALLOC": "malloc"}),
        Arm("dev", "is checked", options=("-X", "dev")),
        *(Arm(name) for name in (*ODD, "raise", "unsupported", "text")),
    ),
    columns=(
        Column("rows", "rows", "", {"good": 10}),
        Column("double", "MiB", "MiB", {"other": 2 * MIB}),
    ),
    run_arm=run_arm,
    parameters={
        "rows": Parameter(10, "rows"),
        "how": Parameter("plain", "in which way", choices=("plain", "careful")),
        "log": Parameter("", "where to write the order of the arms"),
    },
    repeat=2,
    timeout=60,
)
