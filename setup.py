"""Build cowlab._native, the C core.

Switches, read from the environment:

COWLAB_WERROR=1          warnings are errors (CI)
COWLAB_DEBUG=1           -O0 -g3, assertions on
COWLAB_SANITIZE=LIST     -fsanitize=LIST, for example address,undefined
COWLAB_COVERAGE=1        gcov instrumentation
"""

import glob
import os
import sys

from setuptools import Extension, setup

WARNINGS = (
    "-std=c11 -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes"
    " -Wmissing-prototypes -Wpointer-arith -Wwrite-strings"
    " -Wno-missing-field-initializers -Wno-unused-parameter"
).split()


def flags() -> tuple[list[str], list[str]]:
    """The compiler's and the linker's arguments for the switches that are set."""
    compile_args = [*WARNINGS, "-fvisibility=hidden", "-D_GNU_SOURCE"]
    link_args: list[str] = []
    if os.environ.get("COWLAB_WERROR"):
        compile_args.append("-Werror")
    if os.environ.get("COWLAB_DEBUG"):
        compile_args += ["-O0", "-g3", "-UNDEBUG"]
    else:
        compile_args += ["-O2", "-g"]
    if sanitizers := os.environ.get("COWLAB_SANITIZE"):
        both = [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer"]
        compile_args += both
        link_args += both
    if os.environ.get("COWLAB_COVERAGE"):
        compile_args.append("--coverage")
        link_args.append("--coverage")
    return compile_args, link_args


def extensions() -> list[Extension]:
    """The core, on Linux; elsewhere the package says what it lacks."""
    if not sys.platform.startswith("linux"):
        return []
    compile_args, link_args = flags()
    return [
        Extension(
            "cowlab._native",
            sources=sorted(glob.glob("src/*.c")),
            depends=sorted(glob.glob("src/*.h")),
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
    ]


setup(ext_modules=extensions())
