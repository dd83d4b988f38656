"""What the operations of reads-that-write work on: objects, and how to build many."""

from __future__ import annotations

import abc
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

Point = namedtuple("Point", "x y")


class Base:
    kind = "a kind"

    def inherited(self) -> Any:
        return self.kind


class Plain(Base):
    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = "a name"

    def method(self) -> Any:
        return self.value

    def inherited(self) -> Any:
        return super().inherited()

    @staticmethod
    def static() -> None:
        pass

    @classmethod
    def of_class(cls) -> Any:
        return cls.kind

    @property
    def prop(self) -> Any:
        return self.value

    @functools.cached_property
    def cached(self) -> Any:
        return self.value


class Special:
    """One that answers the interpreter's questions in Python."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> int:
        return 3

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter((self.value,))

    def __getitem__(self, key: Any) -> Any:
        return self.value

    def __contains__(self, key: Any) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1

    def __lt__(self, other: Any) -> bool:
        return False

    def __str__(self) -> str:
        return "special"

    def __call__(self) -> Any:
        return self.value

    def __enter__(self) -> Any:
        return self.value

    def __exit__(self, *_: object) -> None:
        pass


class Slots:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass
class Data:
    a: int
    b: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: float


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


class Square(Shape):
    def area(self) -> float:
        return 1.0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def lists(n: int) -> list[Any]:
    return [[i, i + 1, i + 2] for i in range(n)]


def tuples(n: int) -> list[Any]:
    return [(i, i + 1, i + 2) for i in range(1000, 1000 + n)]


def dicts(n: int) -> list[Any]:
    return [{"a": i, "b": i} for i in range(n)]


def sets(n: int) -> list[Any]:
    return [{i, i + 1} for i in range(n)]


def floats(n: int) -> list[float]:
    return [float(i) for i in range(n)]


def ints(n: int) -> list[int]:
    return list(range(10**6, 10**6 + n))


def texts(n: int) -> list[str]:
    return [f"text number {i}" for i in range(n)]


def unicodes(n: int) -> list[str]:
    return [f"t\u00ebxt \u2013 {i}" for i in range(n)]


def byteses(n: int) -> list[bytes]:
    return [b"bytes number %d" % i for i in range(n)]


def bytearrays(n: int) -> list[bytearray]:
    return [bytearray(b"bytes number %d" % i) for i in range(n)]


def plains(n: int) -> list[Any]:
    return [Plain(float(i)) for i in range(n)]


def slotted(n: int) -> list[Any]:
    return [Slots(float(i)) for i in range(n)]


def table(n: int) -> dict[str, Any]:
    return {f"key {i}": [i] for i in range(n)}


def times(n: int) -> list[Any]:
    first = datetime.datetime(2024, 1, 1)
    return [first + datetime.timedelta(seconds=i) for i in range(n)]


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def specials(n: int) -> list[Any]:
    return [Special(float(i)) for i in range(n)]


def datas(n: int) -> list[Any]:
    return [Data(i, i) for i in range(n)]


def points(n: int) -> list[Any]:
    return [Point(float(i), i) for i in range(n)]


def digits(n: int) -> list[str]:
    return [str(10**6 + i) for i in range(n)]


def decimals(n: int) -> list[Any]:
    return [decimal.Decimal(i) for i in range(n)]


def paths(n: int) -> list[Any]:
    return [pathlib.PurePosixPath("/srv/data", f"file-{i}.txt") for i in range(n)]


def colours(n: int) -> list[Any]:
    return [Colour.RED, Colour.BLUE] * (n // 2)


def rows(n: int) -> dict[str, Any]:
    return {f"key {i}": {"price": float(i), "tags": [i]} for i in range(n)}


def remembering(n: int) -> Any:
    """A bounded cache of one's own, full of results."""

    @functools.lru_cache(maxsize=n)
    def remembered(key: int) -> list[int]:
        return [key]

    for key in range(n):
        remembered(key)
    return remembered, range(n)


def functions(n: int) -> list[Any]:
    space: dict[str, Any] = {}
    exec("\n".join(f"def f{i}(x):\n return x" for i in range(n)), space)
    return [space[f"f{i}"] for i in range(n)]


def warm_functions(n: int) -> list[Any]:
    made = functions(n)
    for function in made:
        function(1)
    return made


def closures(n: int) -> list[Any]:
    def make(value: int) -> Callable[[], int]:
        return lambda: value

    return [make(i) for i in range(10**6, 10**6 + n)]


def referred(n: int) -> Any:
    """Objects, and weak references to them."""
    made = plains(n)
    return made, [weakref.ref(one) for one in made]


def holes(n: int) -> list[Any]:
    """Free blocks between objects in use."""
    made: list[Any] = [bytes(40) + b"%d" % i for i in range(2 * n)]
    del made[::2]
    return made


def of(build: Callable[[int], list[Any]]) -> Callable[[int], tuple[Any, ...]]:
    """In a tuple, whose hash asks each for its own without counting references."""
    return lambda n: tuple(build(n))
