"""Inputs that broke other tools, each as a whole kind; on recorded bytes, no kernel."""

from __future__ import annotations

import errno

import pytest
from proc_texts import HEADER, MAPS, ROLLUP, SMAPS, SMAPS_510, SMAPS_618, STAT, STATUS

from cowlab import (
    MapsEntry,
    SmapsEntry,
    SmapsRollup,
    Stat,
    Status,
    Truncated,
    Unreadable,
    _native,
)

KIB = 1024
FIGURES = [f for f in SmapsRollup.__slots__ if f not in {"pid", "source"}]


def one(text: bytes) -> SmapsEntry:
    (entry,) = _native.parse_smaps(text, SmapsEntry)
    return entry


def path_of(path: bytes, dev: bytes = b"fe:00", inode: bytes = b"77") -> MapsEntry:
    head = b"7f0000000000-7f0000001000 r-xp 00000000 " + dev + b" " + inode
    (entry,) = _native.parse_maps(head.ljust(73) + path + b"\n", MapsEntry)
    return entry


def test_every_field_of_a_modern_kernel() -> None:
    entry = one(SMAPS_618)
    assert (entry.start, entry.end) == (0x5580C5B52000, 0x5580C5B53000)
    assert entry.perms == "r--p" and not entry.shared
    assert entry.file == (0xFE, 0, 26723)
    assert entry.path == "/usr/bin/python3" and entry.kind == "file"
    assert (entry.rss, entry.pss, entry.shared_clean) == (4 * KIB, KIB, 4 * KIB)
    assert entry.thp_eligible is False and entry.protection_key == 0
    assert entry.flags == {"rd", "mr", "mw", "me", "sd"}
    assert entry.pss_anon is None  # only the rollup has it


def test_what_an_older_kernel_does_not_write_is_absent() -> None:
    entry = one(SMAPS_510)
    assert entry.pss_dirty is None and entry.ksm is None
    assert entry.protection_key is None
    assert entry.swap == entry.swap_pss == 2192 * KIB
    assert entry.uss == 4840 * KIB and entry.shared_rss == 0


@pytest.mark.parametrize("tail", [b"", b" ", b"    "])
def test_no_flags_is_an_empty_set(tail: bytes) -> None:
    assert one(HEADER + b"VmFlags:" + tail + b"\n").flags == frozenset()


def test_absent_flags_are_none() -> None:
    assert one(HEADER + b"Pss:                   3 kB\n").flags is None


def test_a_record_of_one_field() -> None:
    entry = one(HEADER + b"Pss:                   3 kB\n")
    assert entry.pss == 3072
    rest = [name for name in FIGURES if name != "pss"]
    assert [getattr(entry, name) for name in rest] == [None] * len(rest)
    assert entry.uss is None and entry.shared_rss is None


def test_hugetlb_is_apart() -> None:
    text = (
        HEADER + b"Rss:               40000 kB\nPrivate_Clean:         0 kB\n"
        b"Private_Dirty:      2000 kB\nPrivate_Hugetlb: 2097152 kB\n"
    )
    entry = one(text)
    assert entry.uss == 2000 * KIB
    assert entry.private_hugetlb == 2097152 * KIB
    assert entry.rss is not None and entry.rss - entry.uss == 38000 * KIB


def test_keys_are_matched_exactly() -> None:
    text = (
        HEADER + b"Pss:                 100 kB\nPss_Dirty:            80 kB\n"
        b"Pss_Anon:             80 kB\nPss_File:             20 kB\n"
    )
    entry = one(text)
    assert entry.pss == 100 * KIB
    assert (entry.pss_dirty, entry.pss_anon, entry.pss_file) == (
        80 * KIB,
        80 * KIB,
        20 * KIB,
    )


@pytest.mark.parametrize("name", [b"PssX", b"Pss_", b"Ps", b"Rss2", b"P", b"Swapp"])
def test_a_name_that_only_resembles_a_field_is_skipped(name: bytes) -> None:
    entry = one(HEADER + name + b":  7 kB\nAnonymous:  1 kB\n")
    assert [getattr(entry, f) for f in FIGURES if f != "anonymous"] == [None] * (
        len(FIGURES) - 1
    )


def test_unknown_fields_of_any_form_are_skipped() -> None:
    entry = one(HEADER + b"Future:  1 pages of 3\nNothing:\nPss:  3 kB\n")
    assert entry.pss == 3072


def test_unknown_flags_are_kept() -> None:
    flags = one(HEADER + b"VmFlags: rd wr mr mw me nr wf dd sd dp zz\n").flags
    assert flags is not None and {"dp", "zz"} < flags and len(flags) == 11


def test_unitless_fields() -> None:
    entry = one(HEADER + b"THPeligible:    1\nProtectionKey:         0\n")
    assert entry.thp_eligible is True
    assert entry.protection_key == 0


@pytest.mark.parametrize(
    "field", [b"THPeligible:    1 kB", b"Rss:     1", b"Rss:     1 MB", b"Rss: -1 kB"]
)
def test_a_unit_that_is_not_the_fields_own_is_refused(field: bytes) -> None:
    with pytest.raises(Unreadable):
        one(HEADER + field + b"\n")


@pytest.mark.parametrize("pad", [b"", b" ", b"                          "])
def test_no_path_is_none(pad: bytes) -> None:
    entry = path_of(pad, b"00:00", b"0")
    assert entry.path is None and entry.file is None
    assert entry.kind == "anonymous" and entry.name is None


def test_addresses_are_unsigned_64_bit() -> None:
    entry = _native.parse_maps(MAPS, MapsEntry)[-1]
    assert (entry.start, entry.end) == (0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000)
    assert entry.path == "[vsyscall]" and entry.kind == "kernel"


@pytest.mark.parametrize(
    "path",
    [
        b"/opt/my app/lib x.so",
        b"/tmp/a  b ",
        b"/tmp/tab\there",
        b"/tmp/a: 1 kB",
        b"/tmp/\xff\xfe",
        b"/tmp/line\\012end",
        b"/tmp/x (deleted)",
        "/tmp/\N{SNOWMAN}".encode(),
    ],
)
def test_the_path_is_the_rest_of_the_line(path: bytes) -> None:
    import os

    entry = path_of(path)
    assert entry.path is not None and os.fsencode(entry.path) == path
    assert entry.deleted == path.endswith(b" (deleted)")


def test_files_of_one_name_are_told_apart_by_inode() -> None:
    first = path_of(b"/SYSV00000000 (deleted)", b"00:01", b"1")
    second = path_of(b"/SYSV00000000 (deleted)", b"00:01", b"2")
    assert first.path == second.path and first.file != second.file
    assert first.kind == "shared memory"


def test_the_first_system_v_segment_has_inode_0() -> None:
    entry = path_of(b"/SYSV00000000 (deleted)", b"00:01", b"0")
    assert entry.kind == "shared memory" and entry.file == (0, 1, 0) and entry.deleted


def test_a_file_name_forges_no_field() -> None:
    name = b"/tmp/x\rRss:   1234 kB\rPss: 9 kB"
    text = SMAPS_618.replace(b"/usr/bin/python3", name)
    assert one(text).rss == 4 * KIB
    assert one(text).path == name.decode()


@pytest.mark.parametrize("text", [SMAPS_618, SMAPS_510, SMAPS])
def test_smaps_that_ends_anywhere_else_is_truncated(text: bytes) -> None:
    boundaries = {0, len(text)}
    if text is SMAPS:
        boundaries.add(len(SMAPS_618))
    for end in range(len(text)):
        if end in boundaries:
            assert len(_native.parse_smaps(text[:end], SmapsEntry)) == (end > 0)
        else:
            with pytest.raises(Truncated):
                _native.parse_smaps(text[:end], SmapsEntry)
            with pytest.raises(Truncated):
                _native.parse_sum(text[:end], SmapsRollup)


def test_a_rollup_that_ends_anywhere_else_is_truncated() -> None:
    for end in range(len(ROLLUP)):
        with pytest.raises(Truncated) as caught:
            _native.parse_rollup(ROLLUP[:end], SmapsRollup)
        assert caught.value.errno == errno.ENODATA


@pytest.mark.parametrize("text", [STAT, STATUS])
def test_stat_and_status_that_end_early_are_truncated(text: bytes) -> None:
    parse, type_ = (
        (_native.parse_stat, Stat) if text is STAT else (_native.parse_status, Status)
    )
    # All of status that is read comes before SigQ.
    complete = len(text) if text is STAT else text.index(b"SigQ")
    for end in range(complete):
        with pytest.raises(Truncated):
            parse(text[:end], type_)


@pytest.mark.parametrize(
    "text",
    [
        b"cat: /proc/1/smaps: Permission denied\n",
        b"<html>502 Bad Gateway</html>\n",
        b"Rss:   4 kB\n",
        b"\n",
        b"\x00\x00\x00\x00\n",
    ],
)
def test_an_error_message_is_no_reading_and_is_quoted(text: bytes) -> None:
    quoted = repr(text.rstrip(b"\n").decode())
    for parse, type_ in (
        (_native.parse_smaps, SmapsEntry),
        (_native.parse_maps, MapsEntry),
        (_native.parse_rollup, SmapsRollup),
        (_native.parse_sum, SmapsRollup),
        (_native.parse_stat, Stat),
    ):
        with pytest.raises(Unreadable) as caught:
            parse(text, type_)  # type: ignore[operator]
        assert quoted in str(caught.value)


def test_the_line_that_is_wrong_is_quoted_and_cut() -> None:
    text = SMAPS_618 + HEADER + b"Rss:  " + b"x" * 500 + b"\n"
    with pytest.raises(Unreadable, match=r"'Rss:  x{74}' \.\.\.") as caught:
        one(text)
    assert len(str(caught.value)) < 250


def test_values_beyond_32_bits_of_kilobytes() -> None:
    assert one(HEADER + b"Pss: 4294967297 kB\n").pss == (2**32 + 1) * KIB
    largest = 2**54 - 1
    assert one(HEADER + b"Pss: %d kB\n" % largest).pss == largest * KIB


@pytest.mark.parametrize("value", [2**54, 2**64 - 1, 2**64, 10**40])
def test_values_beyond_64_bits_of_bytes_are_refused(value: int) -> None:
    with pytest.raises(Unreadable, match="beyond 64 bits") as caught:
        one(HEADER + b"Pss: %d kB\n" % value)
    assert caught.value.errno == errno.ERANGE


def test_a_sum_beyond_64_bits_is_refused() -> None:
    half = HEADER + b"Pss: %d kB\n" % (2**53)
    other = half.replace(b"7f12", b"7f13")
    with pytest.raises(Unreadable, match="beyond 64 bits"):
        _native.parse_sum(half + other, SmapsRollup)


def test_the_sum_of_smaps_names_itself() -> None:
    rollup = _native.parse_rollup(ROLLUP, SmapsRollup)
    total = _native.parse_sum(SMAPS, SmapsRollup)
    assert rollup.source == "smaps_rollup" and total.source == "sum of smaps"
    assert total.rss == 4844 * KIB and total.swap == 2192 * KIB
    assert rollup.uss == 6580 * KIB and rollup.shared == 5968 * KIB


def test_a_field_that_one_mapping_lacks_has_no_sum() -> None:
    total = _native.parse_sum(SMAPS_618 + SMAPS_510, SmapsRollup)
    assert total.pss == 4841 * KIB
    assert total.pss_dirty is None and total.ksm is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"[anon:cpython:pymalloc]", "cpython:pymalloc"),
        (b"[anon: my arena ]", " my arena "),
        (b"[anon:]", ""),
        (b"[anon:a]b]", "a]b"),
    ],
)
def test_named_anonymous_memory_is_anonymous(path: bytes, name: str) -> None:
    entry = path_of(path, b"00:00", b"0")
    assert entry.kind == "anonymous" and entry.name == name and entry.file is None


def test_named_shared_memory() -> None:
    entry = path_of(b"[anon_shmem:buffer one]", b"00:01", b"9")
    assert entry.kind == "shared memory" and entry.name == "buffer one"


@pytest.mark.parametrize(
    ("path", "inode", "kind"),
    [
        (b"[heap]", b"0", "heap"),
        (b"[stack]", b"0", "stack"),
        (b"[vdso]", b"0", "kernel"),
        (b"[vvar_vclock]", b"0", "kernel"),
        (b"[uprobes]", b"0", "kernel"),
        (b"/memfd:buffer (deleted)", b"5", "shared memory"),
        (b"/dev/zero (deleted)", b"5", "shared memory"),
        (b"/dev/shm/psm_1", b"5", "shared memory"),
        (b"/anon_hugepage (deleted)", b"5", "hugetlb"),
        (b"/usr/lib/libc.so.6", b"5", "file"),
        (b"/tmp/[heap]", b"5", "file"),
        (b"anon_inode:[perf_event]", b"5", "file"),
    ],
)
def test_kinds(path: bytes, inode: bytes, kind: str) -> None:
    assert path_of(path, b"00:00" if inode == b"0" else b"fe:00", inode).kind == kind


def test_huge_pages_from_the_pool_are_known_by_their_flag() -> None:
    text = SMAPS_618.replace(b"/usr/bin/python3", b"/mnt/huge/x")
    assert one(text).kind == "file"
    assert one(text.replace(b"mr mw", b"mr ht")).kind == "hugetlb"


@pytest.mark.parametrize(
    "line",
    [
        b"7f0000000000-7f0000001000 rw-p 00000000 00:00",
        b"7f0000000000-7f0000001000 rwxq 00000000 00:00 0 ",
        b"7f0000000000-7f0000001000 wr-p 00000000 00:00 0 ",
        b"7f0000001000-7f0000000000 rw-p 00000000 00:00 0 ",
        b"7F0000000000-7F0000001000 rw-p 00000000 00:00 0 ",
        b"10000000000000000-10000000000001000 rw-p 00000000 00:00 0 ",
        b"7f0000000000-7f0000001000 rw-p 00000000 100000000:00 0 ",
        b"7f0000000000-7f0000001000 rw-p 00000000 00:00 18446744073709551616 ",
        b"7f0000000000-7f0000001000 rw-p 00000000 00:00 5/usr/bin/x",
        b"7f0000000000  7f0000001000 rw-p 00000000 00:00 0 ",
        b"-7f0000001000 rw-p 00000000 00:00 0 ",
    ],
)
def test_lines_that_the_kernel_never_writes(line: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        _native.parse_maps(line + b"\n" + MAPS, MapsEntry)
    assert caught.value.errno == errno.EBADMSG
    assert line.decode() in str(caught.value)


def test_a_field_twice_is_refused() -> None:
    for field in (b"Pss: 1 kB\n", b"VmFlags: rd\n", b"THPeligible: 1\n"):
        with pytest.raises(Unreadable):
            one(HEADER + field + field)


def test_mappings_that_overlap_are_refused() -> None:
    grown = SMAPS_618.replace(b"5580c5b53000", b"6000c5b53000")
    with pytest.raises(Unreadable, match="overlaps what is before it") as caught:
        _native.parse_smaps(grown + SMAPS_510, SmapsEntry)
    assert caught.value.errno == errno.EAGAIN
    with pytest.raises(Unreadable, match="kill -STOP"):
        _native.parse_sum(grown + SMAPS_510, SmapsRollup)
    with pytest.raises(Unreadable, match="overlaps"):
        _native.parse_maps(MAPS + MAPS, MapsEntry)


def test_maps_is_not_smaps() -> None:
    with pytest.raises(Unreadable):
        _native.parse_smaps(MAPS, SmapsEntry)


def test_two_records_are_no_rollup() -> None:
    with pytest.raises(Unreadable):
        _native.parse_rollup(ROLLUP + ROLLUP, SmapsRollup)


@pytest.mark.parametrize(
    "comm",
    [b"python3", b"a b", b") R 1 1 (", b"(sd-pam)", b"", b"x\ny", b"\xff\xfe", b")"],
)
def test_any_name_in_stat(comm: bytes) -> None:
    import os

    stat = _native.parse_stat(STAT.replace(b"python3", comm), Stat)
    assert os.fsencode(stat.comm) == comm
    assert (stat.pid, stat.state, stat.ppid) == (4242, "S", 4100)
    assert (stat.minor_faults, stat.major_faults) == (1914, 3)
    assert (stat.threads, stat.start_ticks) == (3, 167310)
    assert not stat.kernel_thread


def test_a_kernel_thread_in_stat() -> None:
    text = b"2 (kthreadd) S 0 0 0 0 -1 2129984 " + b"0 " * 17 + b"0\n"
    stat = _native.parse_stat(text, Stat)
    assert stat.kernel_thread and stat.virtual_size == 0


def test_status_of_a_zombie_has_no_memory_figures() -> None:
    lines = STATUS.splitlines(keepends=True)
    memory = (b"Vm", b"Rss", b"Huge")
    text = b"".join(line for line in lines if not line.startswith(memory))
    status = _native.parse_status(text.replace(b"S (sleeping)", b"Z (zombie)"), Status)
    assert status.state == "Z" and status.threads == 3
    assert status.vm_rss is None and status.vm_swap is None
    assert _native.parse_status(STATUS, Status).vm_rss == 12648 * KIB


def test_status_ids_and_name() -> None:
    status = _native.parse_status(STATUS.replace(b"python3", b"a:\\nb\t c"), Status)
    assert status.name == "a:\\nb\t c"
    assert status.uid == (1000, 1000, 1000, 1000) == status.gid
