"""Run a command as on a stricter machine: ``python confine.py WAY... -- COMMAND...``.

The ways: ``nobody`` (user 65534, no new privileges), ``userns`` (a user namespace
without a mapping), ``undumpable`` (as after setuid), ``docker`` (a seccomp filter like
Docker's default), ``old`` (calls that came with Linux 5.10 to 6.7 fail as they did
before), ``one`` (a single CPU), ``kill=NAME`` and ``trap=NAME`` (a filter that kills
for one system call, or sends SIGSYS). Several are applied in the order given.
Only the standard library, so that any interpreter can run it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

NOBODY = 65534
UNCONFINED = 99
"""The exit status when this machine does not let us confine."""

PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
KILL_PROCESS = 0x80000000
TRAP = 0x00030000
ERRNO = 0x00050000
USER_NOTIF = 0x7FC00000
ALLOW = 0x7FFF0000
CLONE_NEWUSER = 0x10000000

# (x86-64, aarch64)
ARCHITECTURE = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CALLS = {
    "seccomp": (317, 277),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "mount": (165, 40),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "setns": (308, 268),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "clone3": (435, 435),
    "pidfd_open": (434, 434),
    "process_madvise": (440, 440),
    "ioctl": (16, 29),
    "prctl": (157, 167),
}
DOCKER = tuple(CALLS)[1 : tuple(CALLS).index("clone3")]
"""What Docker's default profile refuses to a container without capabilities, so far as
a program like this one could call it. clone3 is answered with ENOSYS, so that libc
falls back to clone."""

PAGEMAP_SCAN = 0xC0606610
PR_SET_MEMORY_MERGE = 67


class Rule(NamedTuple):
    """What to do about a system call; ``argument`` is (index, value), the low 32 bits
    of one that must be equal."""

    name: str
    action: int
    argument: tuple[int, int] | None = None


def refuse(name: str, error: int, argument: tuple[int, int] | None = None) -> Rule:
    return Rule(name, ERRNO | error, argument)


WAYS = {
    "docker": (
        *(refuse(name, errno.EPERM) for name in DOCKER),
        refuse("clone3", errno.ENOSYS),
    ),
    "old": (
        refuse("ioctl", errno.ENOTTY, (1, PAGEMAP_SCAN)),
        refuse("prctl", errno.EINVAL, (0, PR_SET_MEMORY_MERGE)),
        refuse("process_madvise", errno.ENOSYS),
        refuse("userfaultfd", errno.ENOSYS),
    ),
}


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call_number(name: str) -> int:
    return CALLS[name][ARCHITECTURE[platform.machine()][0]]


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def seccomp(rules: Iterable[Rule], flags: int = 0) -> int:
    """Install a filter; what no rule is about is allowed. What the system call
    returned: 0, or the listener with NEW_LISTENER."""
    program = [
        struct.pack("=HBBI", 0x20, 0, 0, 4),  # load the architecture
        struct.pack("=HBBI", 0x15, 1, 0, ARCHITECTURE[platform.machine()][1]),
        struct.pack("=HBBI", 0x06, 0, 0, ALLOW),
        struct.pack("=HBBI", 0x20, 0, 0, 0),  # load the number of the call
    ]
    for name, action, argument in rules:
        checks = [struct.pack("=HBBI", 0x06, 0, 0, action)]
        if argument is not None:
            index, value = argument
            checks[:0] = [
                struct.pack("=HBBI", 0x20, 0, 0, 16 + 8 * index),
                struct.pack("=HBBI", 0x15, 0, 1, value),
            ]
            checks.append(struct.pack("=HBBI", 0x20, 0, 0, 0))
        program.append(struct.pack("=HBBI", 0x15, 0, len(checks), call_number(name)))
        program += checks
    program.append(struct.pack("=HBBI", 0x06, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(program))
    packed = struct.pack("@HP", len(program), ctypes.addressof(code))
    c = libc()
    _checked(c.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    return _checked(
        c.syscall(
            ctypes.c_long(call_number("seccomp")),
            ctypes.c_long(SECCOMP_SET_MODE_FILTER),
            ctypes.c_long(flags),
            ctypes.create_string_buffer(packed),
        )
    )


def confine(way: str) -> None:
    """Confine this process for good; OSError where that is not allowed."""
    kind, _, name = way.partition("=")
    if kind == "nobody":
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        # The kernel forbids /proc/self to who has changed its user and not called exec.
        _checked(libc().prctl(PR_SET_DUMPABLE, 1))
        _checked(libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    elif kind == "undumpable":
        _checked(libc().prctl(PR_SET_DUMPABLE, 0))
    elif kind == "userns":
        _checked(libc().unshare(CLONE_NEWUSER))
    elif kind == "one":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    elif kind in WAYS:
        seccomp(WAYS[kind])
    elif kind == "kill":
        seccomp([Rule(name, KILL_PROCESS)])
    elif kind == "trap":
        seccomp([Rule(name, TRAP)])
    else:
        raise ValueError(f"there is no way {way!r}")


def main() -> None:
    at = sys.argv.index("--")
    try:
        for way in sys.argv[1:at]:
            confine(way)
        command = sys.argv[at + 1 :]
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot confine: {error}", file=sys.stderr)
        sys.exit(UNCONFINED)


if __name__ == "__main__":
    main()
