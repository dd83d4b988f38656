"""A second, slow and obvious reader of /proc's texts, to check the one in C against.

Each function gives plain dictionaries, or raises Refused with the errno that the C
parser must give: ENODATA for a text that stops in the middle, EBADMSG for what the
kernel never writes, ERANGE for a number that is too large, EAGAIN for mappings that
overlap.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Any

U64 = 2**64
I64 = 2**63

FIELDS = {
    b"Size": "virtual_size",
    b"KernelPageSize": "kernel_page_size",
    b"MMUPageSize": "mmu_page_size",
    b"Rss": "rss",
    b"Pss": "pss",
    b"Pss_Dirty": "pss_dirty",
    b"Pss_Anon": "pss_anon",
    b"Pss_File": "pss_file",
    b"Pss_Shmem": "pss_shmem",
    b"Shared_Clean": "shared_clean",
    b"Shared_Dirty": "shared_dirty",
    b"Private_Clean": "private_clean",
    b"Private_Dirty": "private_dirty",
    b"Referenced": "referenced",
    b"Anonymous": "anonymous",
    b"KSM": "ksm",
    b"LazyFree": "lazy_free",
    b"AnonHugePages": "anon_huge_pages",
    b"ShmemPmdMapped": "shmem_pmd_mapped",
    b"FilePmdMapped": "file_pmd_mapped",
    b"Shared_Hugetlb": "shared_hugetlb",
    b"Private_Hugetlb": "private_hugetlb",
    b"Swap": "swap",
    b"SwapPss": "swap_pss",
    b"Locked": "locked",
}
ALWAYS = [
    "rss",
    "pss",
    "shared_clean",
    "shared_dirty",
    "private_clean",
    "private_dirty",
    "referenced",
    "anonymous",
    "swap",
    "locked",
]
ROLLUP = [name for name in FIELDS.values() if not name.endswith("_size")]

STATUS_FIELDS = {
    b"VmPeak": "vm_peak",
    b"VmSize": "vm_size",
    b"VmLck": "vm_lck",
    b"VmPin": "vm_pin",
    b"VmHWM": "vm_hwm",
    b"VmRSS": "vm_rss",
    b"RssAnon": "rss_anon",
    b"RssFile": "rss_file",
    b"RssShmem": "rss_shmem",
    b"VmData": "vm_data",
    b"VmStk": "vm_stk",
    b"VmExe": "vm_exe",
    b"VmLib": "vm_lib",
    b"VmPTE": "vm_pte",
    b"VmSwap": "vm_swap",
    b"HugetlbPages": "hugetlb_pages",
}

HEADER = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) ([r-][w-][x-][sp]) ([0-9a-f]+)"
    rb" ([0-9a-f]+):([0-9a-f]+) ([0-9]+)(?: +((?! ).*))?",
    re.DOTALL,
)


class Refused(Exception):
    """The text was refused with this errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.errno = number


def _decoded(path: bytes | None) -> str | None:
    return os.fsdecode(path) if path else None


def _header(line: bytes) -> dict[str, Any]:
    match = HEADER.fullmatch(line)
    if match is None:
        raise Refused(errno.EBADMSG)
    start, end, offset, major, minor = (int(match[i], 16) for i in (1, 2, 4, 5, 6))
    inode = int(match[7])
    if max(start, end, offset, inode) >= U64 or max(major, minor) >= 2**32:
        raise Refused(errno.EBADMSG)
    if end < start:
        raise Refused(errno.EBADMSG)
    return {
        "start": start,
        "end": end,
        "perms": match[3].decode(),
        "offset": offset,
        "major": major,
        "minor": minor,
        "inode": inode,
        "path": _decoded(match[8]),
    }


def _kilobytes(value: bytes) -> int:
    match = re.fullmatch(rb"[ \t]*([0-9]+)(.*)", value, re.DOTALL)
    if match is None:
        raise Refused(errno.EBADMSG)
    if int(match[1]) >= U64:
        raise Refused(errno.ERANGE)
    if match[2] != b" kB":
        raise Refused(errno.EBADMSG)
    if int(match[1]) * 1024 >= U64:
        raise Refused(errno.ERANGE)
    return int(match[1]) * 1024


def _unitless(value: bytes) -> int:
    match = re.fullmatch(rb"[ \t]*([0-9]+)(.*)", value, re.DOTALL)
    if match is None:
        raise Refused(errno.EBADMSG)
    if int(match[1]) >= U64:
        raise Refused(errno.ERANGE)
    if match[2]:
        raise Refused(errno.EBADMSG)
    if int(match[1]) >= I64:
        raise Refused(errno.ERANGE)
    return int(match[1])


def lines(text: bytes) -> list[bytes | None]:
    """The lines without their newlines; None for a last one that has none."""
    parts: list[bytes | None] = list(text.split(b"\n"))
    if parts.pop():
        parts.append(None)
    return parts


def maps(text: bytes) -> list[dict[str, Any]]:
    """/proc/PID/maps."""
    records = []
    for line in lines(text):
        if line is None:
            raise Refused(errno.ENODATA)
        records.append(_in_order(_header(line), records))
    return records


def _in_order(record: dict[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
    if before and record["start"] < before[-1]["end"]:
        raise Refused(errno.EAGAIN)
    return record


def _cut_short(record: dict[str, Any]) -> bool:
    there = [record[name] is not None for name in ALWAYS]
    if there != sorted(there, reverse=True):
        return False
    if record["virtual_size"] is not None:
        return not all(there) or record["flags"] is None
    return record["flags"] is None and any(there) and not all(there)


def _blank(header: dict[str, Any]) -> dict[str, Any]:
    extra = ("thp_eligible", "protection_key", "flags")
    return {**header, **dict.fromkeys((*FIELDS.values(), *extra))}


def _field(record: dict[str, Any], line: bytes) -> None:
    name, colon, value = line.partition(b":")
    if not colon:
        raise Refused(errno.EBADMSG)
    special = {
        b"THPeligible": "thp_eligible",
        b"ProtectionKey": "protection_key",
        b"VmFlags": "flags",
    }
    key = FIELDS.get(name) or special.get(name)
    if key is None:
        return
    if record[key] is not None:
        raise Refused(errno.EBADMSG)
    if name in FIELDS:
        record[key] = _kilobytes(value)
    elif key == "flags":
        words = value.lstrip(b" \t").split(b" ")
        record[key] = frozenset(w.decode("latin-1") for w in words if w)
    else:
        number = _unitless(value)
        record[key] = bool(number) if key == "thp_eligible" else number


def _begins_field(line: bytes | None, text: bytes) -> bool:
    """Whether a line is a field; an unfinished last one is if it begins as one."""
    if line is None:
        line = text.rpartition(b"\n")[2]
    return line[:1].isupper() and line[:1].isascii()


def _next_record(rest: list[bytes | None], text: bytes) -> dict[str, Any]:
    """The first record of the lines that are left, which it takes away."""
    line = rest.pop(0)
    if line is None:
        raise Refused(errno.ENODATA)
    record = _blank(_header(line))
    count = 0
    while rest and _begins_field(rest[0], text):
        line = rest.pop(0)
        if line is None:
            raise Refused(errno.ENODATA)
        _field(record, line)
        count += 1
    if count == 0:
        raise Refused(errno.EBADMSG if rest else errno.ENODATA)
    if not rest and _cut_short(record):
        raise Refused(errno.ENODATA)
    return record


def smaps(text: bytes) -> list[dict[str, Any]]:
    """/proc/PID/smaps."""
    rest = lines(text)
    records = []
    while rest:
        records.append(_in_order(_next_record(rest, text), records))
    return records


def rollup(text: bytes) -> dict[str, Any]:
    """/proc/PID/smaps_rollup."""
    rest = lines(text)
    if not rest:
        raise Refused(errno.ENODATA)
    record = _next_record(rest, text)
    if rest:
        raise Refused(errno.EBADMSG)
    return {name: record[name] for name in ROLLUP}


def total(text: bytes) -> dict[str, Any]:
    """The sum of smaps; None where one record has no such field."""
    records = smaps(text)
    if not records:
        raise Refused(errno.ENODATA)
    sums: dict[str, Any] = {}
    for name in ROLLUP:
        values = [record[name] for record in records]
        sums[name] = None if None in values else sum(values)
        if sums[name] is not None and sums[name] >= U64:
            raise Refused(errno.ERANGE)
    return sums


def stat(text: bytes) -> dict[str, Any]:
    """/proc/PID/stat, of a text that the kernel can have written."""
    head, _, tail = text.rpartition(b")")
    number, _, comm = head.partition(b" (")
    words = tail.split()
    names = {
        "ppid": 1,
        "pgrp": 2,
        "session": 3,
        "flags": 6,
        "minor_faults": 7,
        "child_minor_faults": 8,
        "major_faults": 9,
        "child_major_faults": 10,
        "user_ticks": 11,
        "system_ticks": 12,
        "threads": 17,
        "start_ticks": 19,
        "virtual_size": 20,
        "rss_pages": 21,
    }
    return {
        "pid": int(number),
        "comm": _decoded(comm) or "",
        "state": words[0].decode("latin-1"),
        **{name: int(words[i]) for name, i in names.items()},
    }


def status(text: bytes) -> dict[str, Any]:
    """/proc/PID/status, of a text that the kernel can have written."""
    found = dict(line.split(b":", 1) for line in text.split(b"\n")[:-1])
    ids = {name: tuple(map(int, found[name].split())) for name in (b"Uid", b"Gid")}
    return {
        "name": _decoded(found[b"Name"][1:]) or "",
        "state": found[b"State"].split()[0][:1].decode("latin-1"),
        "tgid": int(found[b"Tgid"]),
        "pid": int(found[b"Pid"]),
        "ppid": int(found[b"PPid"]),
        "tracer_pid": int(found[b"TracerPid"]),
        "threads": int(found[b"Threads"]),
        "uid": ids[b"Uid"],
        "gid": ids[b"Gid"],
        **{
            name: _kilobytes(found[kernel]) if kernel in found else None
            for kernel, name in STATUS_FIELDS.items()
        },
    }
