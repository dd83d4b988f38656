"""What a word inside an object means, where that is known: offsets of 64-bit builds."""

from __future__ import annotations

import sys

__all__ = ["FIELDS", "OWNED", "payload_field"]

HASH = "hash cache"
GENERATOR = "generator state"

_TEXT_DATA = 48 if sys.version_info < (3, 12) else 40

FIELDS: dict[str, tuple[tuple[int, int, str], ...]] = {
    "str": (
        (16, 24, "length"),
        (24, 32, HASH),
        (32, 40, "state"),
        (_TEXT_DATA, _TEXT_DATA + 16, "UTF-8 cache"),
    ),
    "bytes": ((24, 32, HASH),),
    "frozenset": ((16, 48, "table header"), (48, 56, HASH), (56, 1 << 20, "table")),
    "set": ((16, 48, "table header"), (56, 1 << 20, "table")),
    "datetime.date": ((16, 24, HASH),),
    "datetime.datetime": ((16, 24, HASH),),
    "datetime.time": ((16, 24, HASH),),
    "datetime.timedelta": ((16, 24, HASH),),
    "list": ((16, 24, "length"), (24, 40, "list header")),
    "dict": ((16, 24, "length"), (24, 32, "version"), (32, 48, "dict header")),
    "bytearray": ((16, 24, "length"), (24, 48, "buffer header"), (48, 56, "exports")),
    "generator": ((16, 1 << 20, GENERATOR),),
    "coroutine": ((16, 1 << 20, GENERATOR),),
    "async_generator": ((16, 1 << 20, GENERATOR),),
    "weakref": ((16, 1 << 20, "weak reference links"),),
    "ReferenceType": ((16, 1 << 20, "weak reference links"),),
    "weakref.ReferenceType": ((16, 1 << 20, "weak reference links"),),
    "cell": ((16, 24, "cell contents"),),
    "function": ((16, 1 << 20, "function state"),),
}
"""type -> (from, to, meaning), bytes from the object."""

if sys.version_info >= (3, 14):
    FIELDS["tuple"] = ((24, 32, HASH), (32, 1 << 20, "items"))
else:
    FIELDS["tuple"] = ((24, 1 << 20, "items"),)

OWNED = {
    "list": "list storage",
    "dict": "dict table",
    "set": "set table",
    "frozenset": "set table",
    "bytearray": "buffer",
    "array.array": "array storage",
    "numpy.ndarray": "array storage",
    "collections.deque": "deque storage",
    "_io.BytesIO": "buffer",
}
"""What the block is that an object of the type points to; instances' are their
values."""


def payload_field(type_name: str, offset: int, basicsize: int) -> str:
    """The meaning of the word at ``offset`` bytes from an object, or "contents"."""
    for start, end, meaning in FIELDS.get(type_name, ()):
        if start <= offset < end:
            return meaning
    if type_name == "code":
        return "inline caches" if offset >= basicsize else "code object"
    if offset >= basicsize and type_name not in FIELDS:
        return "instance values or items"
    return "contents"
