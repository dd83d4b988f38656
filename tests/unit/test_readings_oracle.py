"""The parsers in C against the slow and obvious one, on generated and damaged texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proc_oracle as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proc_texts import MAPS, ROLLUP, SMAPS, SMAPS_510, STAT, STATUS

from cowlab import (
    MapsEntry,
    ReadingError,
    SmapsEntry,
    SmapsRollup,
    Stat,
    Status,
    Truncated,
    _native,
)

pytestmark = pytest.mark.any_python

QUICK = settings(max_examples=100, deadline=None)


def as_dict(record: Any) -> dict[str, Any]:
    names = [name for kind in type(record).__mro__ for name in _slots(kind)]
    return {name: getattr(record, name) for name in names}


def _slots(kind: type) -> tuple[str, ...]:
    return tuple(kind.__dict__.get("__slots__", ()))


def outcome(call: Callable[[], Any]) -> Any:
    """What was read, or the errno of the refusal."""
    try:
        return call()
    except oracle.Refused as refused:
        return refused.errno
    except ReadingError as error:
        return error.errno


def agree_on_maps(text: bytes) -> None:
    expected = outcome(lambda: oracle.maps(text))
    got = outcome(lambda: [as_dict(m) for m in _native.parse_maps(text, MapsEntry)])
    assert got == expected


def agree_on_smaps(text: bytes) -> None:
    expected = outcome(lambda: oracle.smaps(text))
    got = outcome(lambda: [as_dict(m) for m in _native.parse_smaps(text, SmapsEntry)])
    assert got == expected


def agree_on_rollup(text: bytes) -> None:
    expected = outcome(lambda: oracle.rollup(text))
    got = outcome(lambda: as_dict(_native.parse_rollup(text, SmapsRollup)))
    if isinstance(got, dict):
        assert got.pop("pid") == 1 and got.pop("source") == "smaps_rollup"
    assert got == expected


def agree_on_sum(text: bytes) -> None:
    expected = outcome(lambda: oracle.total(text))
    got = outcome(lambda: as_dict(_native.parse_sum(text, SmapsRollup)))
    if isinstance(got, dict):
        assert got.pop("pid") == 1 and got.pop("source") == "sum of smaps"
    assert got == expected


# ---- texts ----

addresses = st.integers(0, 2**64 - 1)
paths = st.one_of(
    st.just(b""),
    st.sampled_from([b"[heap]", b"[stack]", b"[anon:a b]", b"/SYSV0 (deleted)"]),
    st.binary(min_size=1, max_size=30).map(lambda b: b"/" + b.replace(b"\n", b"\\012")),
)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    start = draw(addresses)
    end = min(start + draw(st.integers(0, 2**60)), 2**64 - 1)
    perms = b"".join(
        draw(st.sampled_from([letter, b"-"])) for letter in (b"r", b"w", b"x")
    ) + draw(st.sampled_from([b"p", b"s"]))
    device = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**20 - 1))
    line = b"%08x-%08x %s %08x %02x:%02x %d " % (
        start,
        end,
        perms,
        draw(addresses),
        *device,
        draw(addresses),
    )
    path = draw(paths)
    return (line.ljust(73) + path if path else line) + b"\n"


kilobytes = st.one_of(st.integers(0, 2**20), st.integers(0, 2**40))


@st.composite
def records(draw: st.DrawFn, names: list[bytes]) -> bytes:
    """A header and some of the fields, mostly in the kernel's order."""
    chosen = draw(
        st.one_of(st.just(names), st.lists(st.sampled_from(names), unique=True))
    )
    lines = [draw(headers())]
    lines += [b"%s: %14d kB\n" % (name, draw(kilobytes)) for name in chosen]
    if draw(st.booleans()):
        lines.append(b"THPeligible:    %d\n" % draw(st.integers(0, 1)))
        lines.append(b"ProtectionKey:  %6d\n" % draw(st.integers(0, 15)))
    if draw(st.booleans()):
        lines.append(b"Future_Field:  %d pages\n" % draw(kilobytes))
    if draw(st.booleans()):
        flags = draw(st.lists(st.sampled_from([b"rd", b"wr", b"ht", b"zz"])))
        lines.append(b"VmFlags: " + b"".join(flag + b" " for flag in flags) + b"\n")
    return b"".join(lines)


def in_order(texts: list[bytes]) -> bytes:
    """Texts of one mapping each, sorted by address; they may overlap."""
    return b"".join(sorted(texts, key=lambda text: int(text.split(b"-")[0], 16)))


smaps_texts = st.lists(records(list(oracle.FIELDS)), max_size=4).map(in_order)
rollup_texts = records([name for name in oracle.FIELDS if not name.endswith(b"ize")])
maps_texts = st.lists(headers(), max_size=8).map(in_order)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """A text with some bytes changed, lines moved, or its end cut off."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(0, 3))):
        if not text:
            break
        at = draw(st.integers(0, len(text) - 1))
        match draw(
            st.sampled_from(["byte", "letter", "insert", "cut", "line", "twice"])
        ):
            case "byte":
                text[at] = draw(st.integers(0, 255))
            case "letter":
                text[at] = draw(st.sampled_from(b" \n\t:-kB09afAFRs"))
            case "insert":
                text[at:at] = draw(st.sampled_from([b" ", b"\n", b"9" * 20, b": "]))
            case "cut":
                del text[at:]
            case kind:
                lines = bytes(text).splitlines(keepends=True)
                i = draw(st.integers(0, len(lines) - 1))
                lines[i : i + 1] = [] if kind == "line" else [lines[i]] * 2
                text = bytearray(b"".join(lines))
    return bytes(text)


@QUICK
@given(st.one_of(maps_texts, damaged(maps_texts), damaged(st.just(MAPS))))
def test_maps(text: bytes) -> None:
    agree_on_maps(text)


@QUICK
@given(
    st.one_of(
        smaps_texts,
        damaged(smaps_texts),
        damaged(st.sampled_from([SMAPS, SMAPS_510])),
    )
)
def test_smaps(text: bytes) -> None:
    agree_on_smaps(text)
    agree_on_sum(text)


@QUICK
@given(st.one_of(rollup_texts, damaged(rollup_texts), damaged(st.just(ROLLUP))))
def test_smaps_rollup(text: bytes) -> None:
    agree_on_rollup(text)


@QUICK
@given(st.binary(max_size=200))
def test_any_bytes(text: bytes) -> None:
    agree_on_maps(text)
    agree_on_smaps(text)
    agree_on_rollup(text)
    for parse, type_ in ((_native.parse_stat, Stat), (_native.parse_status, Status)):
        outcome(lambda parse=parse, type_=type_: parse(text, type_))


numbers = st.integers(-(2**63) + 1, 2**63 - 1)


@QUICK
@given(st.binary(max_size=15), st.lists(numbers, min_size=21, max_size=50))
def test_stat(comm: bytes, values: list[int]) -> None:
    for i in (5, 6, 7, 8, 9, 10, 11, 18, 19):
        values[i] = abs(values[i])
    words = b" ".join(b"%d" % value for value in values)
    text = b"%d (%s) S %s\n" % (abs(values[0]), comm, words)
    got = as_dict(_native.parse_stat(text, Stat))
    assert got.pop("source") == "stat"
    assert got == oracle.stat(text)
    for end in range(len(text) - 1):
        # A name with parentheses can make the rest look odd instead of cut.
        with pytest.raises(ReadingError if b")" in comm else Truncated):
            _native.parse_stat(text[:end], Stat)


status_values = st.dictionaries(st.sampled_from(list(oracle.STATUS_FIELDS)), kilobytes)
names = st.binary(max_size=15).map(lambda b: b.replace(b"\n", b"\\n"))


@QUICK
@given(names, status_values, st.tuples(*[st.integers(0, 2**32 - 1)] * 4))
def test_status(name: bytes, fields: dict[bytes, int], ids: tuple[int, ...]) -> None:
    memory = b"".join(b"%s:\t%8d kB\n" % field for field in fields.items())
    text = b"Name:\t" + name + b"\nState:\tR (running)\nTgid:\t7\nPid:\t9\nPPid:\t0\n"
    text += b"TracerPid:\t0\nUid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\n" % ids
    text += memory + b"Threads:\t1\n"
    got = as_dict(_native.parse_status(text, Status))
    assert got.pop("source") == "status"
    # A name may hold what other tools take for the end of a line.
    assert got == oracle.status(text)


@QUICK
@given(damaged(st.sampled_from([STAT, STATUS])))
def test_damaged_stat_and_status_never_crash(text: bytes) -> None:
    for parse, type_ in ((_native.parse_stat, Stat), (_native.parse_status, Status)):
        outcome(lambda parse=parse, type_=type_: parse(text, type_))
