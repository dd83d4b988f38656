"""Counters of one process: /proc/PID/stat and status, as data."""

from __future__ import annotations

from dataclasses import dataclass

from cowlab import _native

__all__ = ["Stat", "Status", "stat", "status"]

_PF_KTHREAD = 0x200000


@dataclass(frozen=True, slots=True)
class Stat:
    """The counters of /proc/PID/stat that a measurement needs.

    ``comm`` is the main thread's name, at most 15 bytes of any kind. ``state`` is the
    kernel's letter: R running, S sleeping, D in an uninterruptible wait, T stopped, Z
    ended and not waited for. ``minor_faults`` and ``major_faults`` count page faults of
    all threads, the ``child`` ones those of children waited for. Ticks are
    ``os.sysconf("SC_CLK_TCK")`` a second; ``start_ticks`` counts from the machine's
    start. ``virtual_size`` is in bytes of address space; ``rss_pages`` is in pages and
    approximate: ``smaps_rollup`` is exact.
    """

    source: str
    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    flags: int
    minor_faults: int
    child_minor_faults: int
    major_faults: int
    child_major_faults: int
    user_ticks: int
    system_ticks: int
    threads: int
    start_ticks: int
    virtual_size: int
    rss_pages: int

    @property
    def kernel_thread(self) -> bool:
        """Whether this is a thread of the kernel's own."""
        return bool(self.flags & _PF_KTHREAD)


@dataclass(frozen=True, slots=True)
class Status:
    """/proc/PID/status: whose process it is, and the kernel's own memory counters.

    ``name`` is as the kernel writes it, with a newline as the two characters ``\\n``.
    ``uid`` and ``gid`` are (real, effective, saved, file system). The memory figures
    are bytes; None is one that the kernel did not write, as for a zombie or a kernel
    thread, which is not 0. ``vm_hwm`` is the largest ``vm_rss`` so far; ``vm_pte`` the
    page tables. On kernels before 6.2 they can be some pages off: ``smaps_rollup`` is
    exact.
    """

    source: str
    name: str
    state: str
    tgid: int
    pid: int
    ppid: int
    tracer_pid: int
    threads: int
    uid: tuple[int, int, int, int]
    gid: tuple[int, int, int, int]
    vm_peak: int | None
    vm_size: int | None
    vm_lck: int | None
    vm_pin: int | None
    vm_hwm: int | None
    vm_rss: int | None
    rss_anon: int | None
    rss_file: int | None
    rss_shmem: int | None
    vm_data: int | None
    vm_stk: int | None
    vm_exe: int | None
    vm_lib: int | None
    vm_pte: int | None
    vm_swap: int | None
    hugetlb_pages: int | None


def stat(pid: int | None = None) -> Stat:
    """Faults, times and state of a process, this one by default.

    Anybody may read it, zombies and kernel threads have one. Source: /proc/PID/stat.
    Raises ``Gone``, ``Unreadable``, ``Truncated``.

    >>> import os
    >>> from cowlab import stat
    >>> stat().pid == os.getpid()
    True
    """
    return _native.stat(pid, Stat)


def status(pid: int | None = None) -> Status:
    """Owner and memory counters of a process, this one by default.

    Anybody may read it, zombies and kernel threads have one, without memory. Source:
    /proc/PID/status. Raises ``Gone``, ``Unreadable``, ``Truncated``.
    """
    return _native.status(pid, Status)
