"""C symbols: sized ones only, and never the nearest."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowlab._symbols import Image, Mapping, Symbolizer, parse_maps

FUNCTION, OBJECT = 2, 1


def elf(symbols: list[tuple[str, int, int, int]]) -> bytes:
    """A file with one segment (offset 0x1000 at address 0x5000, 0x2000 long, 0x3000 in
    memory) and a symbol table of (name, address, size, kind)."""
    names, table = b"\0", struct.pack("=IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, address, size, kind in symbols:
        table += struct.pack("=IBBHQQ", len(names), kind, 0, 1, address, size)
        names += name.encode() + b"\0"
    names_at = 64 + 56
    table_at = names_at + len(names)
    sections_at = table_at + len(table)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack(
            "=HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 3, 0
        )
    )
    segment = struct.pack("=IIQQQQQQ", 1, 5, 0x1000, 0x5000, 0, 0x2000, 0x3000, 4096)

    def section(kind: int, at: int, size: int, link: int) -> bytes:
        return struct.pack("=IIQQQQIIQQ", 0, kind, 0, 0, at, size, link, 0, 8, 24)

    return (
        head
        + segment
        + names
        + table
        + section(0, 0, 0, 0)
        + section(2, table_at, len(table), 2)
        + section(3, names_at, len(names), 0)
    )


IMAGE = [
    ("first", 0x5000, 0x100, FUNCTION),
    ("no_size", 0x5180, 0, FUNCTION),
    ("second@@V1", 0x5200, 0x80, FUNCTION),
    ("table", 0x6800, 0x40, OBJECT),
    ("zeroes", 0x7400, 0x10, OBJECT),
]


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0x1000, "first"),
        (0x10FF, "first"),
        (0x1100, None),
        (0x1190, None),
        (0x1200, "second"),
        (0x1280, None),
        (0x2800, None),
        (0x9000, None),
    ],
)
def test_an_instruction_is_in_a_sized_function_or_in_none(
    offset: int, name: str | None
) -> None:
    assert Image(elf(IMAGE)).at(offset, function=True) == name


def test_data_and_the_zeroes_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(elf(IMAGE))
    mappings = [
        Mapping(0x10000, 0x12000, "rw-p", 0x1000, path.stat().st_ino, str(path)),
        Mapping(0x12000, 0x20000, "rw-p", 0, 0, ""),
    ]
    symbols = Symbolizer(mappings)
    assert symbols.variable(0x11810) == "table"
    assert symbols.variable(0x12404) == "zeroes"
    assert symbols.is_static(0x12FFF)
    # Memory that only happens to follow is no static data.
    assert not symbols.is_static(0x13000)
    assert symbols.variable(0x13000) is None
    assert not symbols.is_static(0x30000)


def test_a_file_that_was_replaced_names_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(elf(IMAGE))
    other = Mapping(0x10000, 0x12000, "r-xp", 0x1000, 1, str(path))
    assert Symbolizer([other]).function(0x10000) == (None, str(path))


@given(st.binary(max_size=400))
def test_damaged_files_name_nothing_or_something_but_end(data: bytes) -> None:
    Image(b"\x7fELF\x02" + data).at(0, function=True)


def test_own_mappings_are_read() -> None:
    mappings = parse_maps(Path("/proc/self/maps").read_bytes())
    assert any(mapping.path == "[stack]" for mapping in mappings)
    assert all(mapping.start < mapping.end for mapping in mappings)
