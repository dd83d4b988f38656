"""Which C function, or which static variable, an address is in.

Only symbols with a size count: an address between two symbols is in neither, whatever
the nearest one's name. A stripped file has only what it exports.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Image", "Mapping", "Symbolizer", "parse_maps"]

_LOAD, _SYMTAB, _DYNSYM = 1, 2, 11
_OBJECT, _FUNC, _IFUNC = 1, 2, 10


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    perms: str
    offset: int
    inode: int
    path: str


def parse_maps(text: bytes) -> list[Mapping]:
    """The mappings of a maps file that was kept, in its order."""
    found = []
    for line in text.split(b"\n"):
        parts = line.split(None, 5)
        if len(parts) < 5:
            continue
        start, _, end = parts[0].partition(b"-")
        found.append(
            Mapping(
                int(start, 16),
                int(end, 16),
                parts[1].decode("ascii", "replace"),
                int(parts[2], 16),
                int(parts[4]),
                os.fsdecode(parts[5]) if len(parts) > 5 else "",
            )
        )
    return found


class Image:
    """The sized symbols of one ELF file (64-bit, this machine's byte order)."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        # offset, size in the file, address, size in memory
        self._segments: list[tuple[int, int, int, int]] = []
        self._symbols: list[tuple[int, int, str, bool]] = []
        if data[:4] == b"\x7fELF" and data[4] == 2:
            try:
                self._read(data)
            except (struct.error, IndexError, ValueError):
                self._symbols = []  # damaged: it names nothing
        self._symbols.sort()
        self._starts = [symbol[0] for symbol in self._symbols]

    def _read(self, data: bytes | mmap.mmap) -> None:
        heads_at, sections_at = struct.unpack_from("=QQ", data, 32)
        head_size, heads, section_size, sections = struct.unpack_from("=4H", data, 54)
        for i in range(heads):
            kind, _, offset, address, _, size, memory = struct.unpack_from(
                "=IIQQQQQ", data, heads_at + i * head_size
            )
            if kind == _LOAD:
                self._segments.append((offset, size, address, memory))
        table = [
            struct.unpack_from("=IIQQQQIIQQ", data, sections_at + i * section_size)
            for i in range(sections)
        ]
        for section in table:
            if section[1] in (_SYMTAB, _DYNSYM):
                names = table[section[6]]
                self._read_symbols(
                    data[section[4] : section[4] + section[5]],
                    data[names[4] : names[4] + names[5]],
                )

    def _read_symbols(self, symbols: bytes, names: bytes) -> None:
        for name, info, _, where, value, size in struct.iter_unpack("=IBBHQQ", symbols):
            kind = info & 15
            if size == 0 or where == 0 or kind not in (_OBJECT, _FUNC, _IFUNC):
                continue
            text = names[name : names.index(b"\0", name)].decode("ascii", "replace")
            self._symbols.append((value, size, text, kind != _OBJECT))

    def at(self, offset: int, *, function: bool) -> str | None:
        """The symbol around an offset into the file."""
        for start, size, address, _ in self._segments:
            if start <= offset < start + size:
                return self.at_address(address + offset - start, function=function)
        return None

    def at_address(self, address: int, *, function: bool) -> str | None:
        """The symbol around an address as linked."""
        at = bisect_right(self._starts, address)
        # Aliases stand together; a small symbol may lie within a larger one.
        for value, size, name, is_function in reversed(
            self._symbols[max(0, at - 8) : at]
        ):
            if is_function == function and value <= address < value + size:
                return name.partition("@")[0]
        return None

    def holds(self, address: int) -> bool:
        """Whether an address as linked is in any segment, its zeroes included."""
        return any(
            start <= address < start + size for _, _, start, size in self._segments
        )

    def has(self, name: str) -> bool:
        """Whether there is a symbol of that name."""
        return any(symbol[2] == name for symbol in self._symbols)

    def bias(self, mapping: Mapping) -> int | None:
        """What to add to an address as linked to have it in the process."""
        for start, size, address, _ in self._segments:
            if start <= mapping.offset < start + max(size, 1):
                return mapping.start - (address + mapping.offset - start)
        return None


class Symbolizer:
    """Symbols of one process, from its mappings. Reads each file once."""

    def __init__(self, mappings: Iterable[Mapping]) -> None:
        self._mappings = sorted(mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._mappings]
        self._images: dict[str, Image | None] = {}
        self._known: dict[int, tuple[str | None, str | None]] = {}

    def mapping(self, address: int) -> Mapping | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._mappings[at].end:
            return None
        return self._mappings[at]

    def _image(self, mapping: Mapping) -> Image | None:
        if mapping.path not in self._images:
            self._images[mapping.path] = _open(mapping)
        return self._images[mapping.path]

    def names(self, name: str) -> bool:
        """Whether any executable file of the process has a symbol of that name."""
        for mapping in self._mappings:
            if "x" in mapping.perms and mapping.inode:
                image = self._image(mapping)
                if image is not None and image.has(name):
                    return True
        return False

    def function(self, address: int) -> tuple[str | None, str | None]:
        """(C function, file) of an instruction; None where that is not known."""
        if address not in self._known:
            mapping = self.mapping(address)
            image = self._image(mapping) if mapping and mapping.inode else None
            name = None
            if mapping is not None and image is not None:
                name = image.at(address - mapping.start + mapping.offset, function=True)
            path = mapping.path if mapping is not None and mapping.inode else None
            self._known[address] = (name, path)
        return self._known[address]

    def _data_of(self, address: int) -> tuple[Image, int] | None:
        """The file whose data, or the zero-filled memory behind it, is there, and the
        address as linked."""
        at = bisect_right(self._starts, address) - 1
        while at > 0 and not self._mappings[at].inode:
            if self._mappings[at - 1].end != self._mappings[at].start:
                return None
            at -= 1
        if at < 0 or not self._mappings[at].inode:
            return None
        image = self._image(self._mappings[at])
        bias = image.bias(self._mappings[at]) if image is not None else None
        if image is None or bias is None or not image.holds(address - bias):
            return None
        return image, address - bias

    def variable(self, address: int) -> str | None:
        """The static variable at an address."""
        found = self._data_of(address)
        return None if found is None else found[0].at_address(found[1], function=False)

    def is_static(self, address: int) -> bool:
        """Whether the address is in a file's data, or zero-filled behind it."""
        mapping = self.mapping(address)
        if mapping is not None and mapping.inode:
            return True
        return self._data_of(address) is not None


def _open(mapping: Mapping) -> Image | None:
    """The file behind a mapping, if it is still the same one."""
    try:
        with open(mapping.path, "rb") as file:
            if os.fstat(file.fileno()).st_ino != mapping.inode:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return Image(data)
    except (OSError, ValueError):
        return None
