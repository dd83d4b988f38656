"""Build the C core for the Python that runs this file: ``python _build.py SRC OUT``.

It runs under interpreters that have nothing installed, so it is one file of the
standard library, and asks nothing of setuptools. What it prints is one sentence when it
cannot.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig


def main(sources: str, target: str) -> int:
    """Compile the sources in one directory to the shared object ``target``."""
    include = sysconfig.get_path("include")
    header = os.path.join(include, "Python.h")
    version = "{}.{}".format(*sys.version_info[:2])
    if not os.path.isfile(header):
        print(
            f"it has no C headers ({header} is missing). On Debian:"
            f" apt-get install python{version}-dev"
        )
        return 1
    compiler = find_compiler()
    if compiler is None:
        print("there is no C compiler. On Debian: apt-get install gcc")
        return 1
    files = sorted(
        os.path.join(sources, name)
        for name in os.listdir(sources)
        if name.endswith(".c")
    )
    debug = bool(sysconfig.get_config_var("Py_DEBUG"))
    flags = ["-std=c11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-w"]
    flags += ["-fvisibility=hidden", "-D_GNU_SOURCE", *([] if debug else ["-DNDEBUG"])]
    command = [*compiler, *flags, f"-I{include}", f"-I{sources}", "-o", target, *files]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        first = (errors or done.stderr.splitlines() or ["it said nothing"])[0]
        print(f"the C core does not compile for it: {first}")
        return 1
    return 0


def find_compiler() -> "list[str] | None":
    """$CC, the compiler that this Python was built with, or a usual one."""
    built_with = sysconfig.get_config_var("CC") or ""
    for line in (os.environ.get("CC", ""), built_with, "cc", "gcc", "clang"):
        words = shlex.split(line)
        if words and shutil.which(words[0]):
            return words
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
