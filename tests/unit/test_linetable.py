"""The decoder of the location table, against CPython's own."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import types
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowlab._linetable import line_at, line_runs


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def by_unit(runs: Iterator[tuple[int, int, int | None]]) -> dict[int, int | None]:
    return {unit: line for start, end, line in runs for unit in range(start, end)}


@pytest.mark.parametrize("module", [argparse, ast, dataclasses])
def test_every_instruction_has_the_line_that_cpython_says(
    module: types.ModuleType,
) -> None:
    with open(str(module.__file__)) as file:
        source = compile(file.read(), str(module.__file__), "exec")
    for code in codes(source):
        theirs = by_unit((s // 2, e // 2, line) for s, e, line in code.co_lines())
        assert by_unit(line_runs(code.co_linetable, code.co_firstlineno)) == theirs


def test_long_jumps_between_lines() -> None:
    body = "def f(x):\n" + "\n" * 70_000 + " a = x\n" + "\n" * 3 + " return a\n"
    space: dict[str, types.FunctionType] = {}
    exec(body, space)
    code = space["f"].__code__
    lines = {line for _, _, line in line_runs(code.co_linetable, code.co_firstlineno)}
    assert lines == {line for _, _, line in code.co_lines()}


def test_the_start_of_a_function_is_its_first_line() -> None:
    code = by_unit.__code__
    assert line_at(code.co_linetable, code.co_firstlineno, -1) == code.co_firstlineno
    assert line_at(b"", 7, 3) == 7


@given(st.binary(max_size=200), st.integers(-1, 500))
def test_any_bytes_end(table: bytes, offset: int) -> None:
    assert isinstance(line_at(table, 1, offset), int)
