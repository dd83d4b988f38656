"""Feed the C parsers random input: tests/c/fuzz/*.c, with libFuzzer and sanitizers.

The seconds are shared out evenly over the targets. Inputs that reached new code are
kept in build/fuzz/NAME/corpus for the next time; one that fails is kept too, named, and
the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "tests" / "c" / "fuzz"
BUILD = ROOT / "build" / "fuzz"
FLAGS = (
    "-std=c11 -D_GNU_SOURCE -g -O1 -fno-sanitize-recover=all"
    " -fsanitize=fuzzer,address,undefined"
).split()
# What this machine's own /proc says is where the search begins.
SEEDS = ("maps", "smaps", "smaps_rollup", "stat", "status")
LONGEST_INPUT = 65536


def works(clang: str) -> bool:
    """Whether this clang has libFuzzer; clang is often there without it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    trial = BUILD / "trial.c"
    trial.write_text(
        "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)\n"
        "{\n    return 0;\n}\n"
    )
    done = subprocess.run(
        [clang, *FLAGS, trial, "-o", BUILD / "trial"], capture_output=True, check=False
    )
    return done.returncode == 0


def find_clang() -> str | None:
    names = ["clang", *(f"clang-{version}" for version in range(30, 11, -1))]
    for name in names:
        path = shutil.which(name)
        if path and works(path):
            return path
    return None


def install_clang() -> None:
    """On Debian or Ubuntu as root; else say what to type and leave."""
    line = "apt-get install -y clang"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(
            "tools/fuzz.py: there is no clang with libFuzzer here. Type, on Debian or"
            f" Ubuntu,\n    sudo {line}\nor install clang and compiler-rt your way."
        )
    print(f"tools/fuzz.py: no clang with libFuzzer; running {line}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
    # Recommended packages included: compiler-rt is one.
    subprocess.run(
        [*line.split(), "-qq"], env=env, stdout=subprocess.DEVNULL, check=False
    )


def fuzz(clang: str, target: Path, seconds: int) -> bool:
    place = BUILD / target.stem
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for name in SEEDS:
        text = Path("/proc/self", name).read_bytes()
        (corpus / f"seed-{name}").write_bytes(text[:LONGEST_INPUT])
    sources = sorted((ROOT / "src").glob("cl_*.c"))
    program = place / "program"
    built = subprocess.run(
        [clang, *FLAGS, "-I", ROOT / "src", target, *sources, "-o", program],
        check=False,
    )
    if built.returncode:
        return False
    print(f"=== {target.stem}, {seconds} s", flush=True)
    done = subprocess.run(
        [
            program,
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST_INPUT}",
            "-timeout=10",
            "-print_final_stats=1",
            f"-artifact_prefix={place}/",
            corpus,
        ],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        print(done.stderr)
    for line in done.stderr.splitlines():
        if line.startswith(("stat::number_of_executed", "stat::new_units")):
            print(line.removeprefix("stat::"))
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="in all (60)")
    parser.add_argument("names", nargs="*", help="targets; without any, all of them")
    options = parser.parse_args()
    known = {path.stem: path for path in sorted(TARGETS.glob("*.c"))}
    names = options.names or list(known)
    for name in names:
        if name not in known:
            sys.exit(f"tools/fuzz.py: no target {name}; there are {', '.join(known)}")
    clang = find_clang()
    if clang is None:
        install_clang()
        clang = find_clang()
    if clang is None:
        sys.exit("tools/fuzz.py: still no clang with libFuzzer (see above)")
    share = max(1, options.seconds // max(1, len(names)))
    failed = [name for name in names if not fuzz(clang, known[name], share)]
    print(f"=== failed: {', '.join(failed)}" if failed else "=== nothing found")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
