"""Renderers: the same result as text, HTML and a plot."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_result import a_result

from cowlab._errors import Unsupported, UsageError
from cowlab._experiment import Column
from cowlab._result import Comparison, Failure, Sample
from cowlab.report._format import figure
from cowlab.report._table import heading, spread, table_of, warnings_of


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "MiB", "-"),
        (154_350_387, "MiB", "147.2"),
        (1024, "MiB", "0.00"),
        (0.999 * 2**20, "MiB", "1.0"),
        (0.9012, "%", "90.1%"),
        (37650, "", "37,650"),
        (2.5, "", "2.5"),
        (1.00049, "x", "1.000"),
        (123.456, "x", "123.5"),
        (0.000_811, "us", "811.0"),
        (0, "MiB", "0.0"),
        (-4096, "KiB", "-4.0"),
    ],
)
def test_figures_as_a_person_reads_them(value, unit, shown):
    assert figure(value, unit) == shown


@given(st.floats(allow_nan=False), st.sampled_from(["", "MiB", "%", "x", "ns"]))
def test_any_number_is_shown(value, unit):
    assert figure(value, unit)


def test_published_figures_stand_below_our_own():
    table = table_of([a_result()])
    assert table.headings == ("arm", "copied MiB")
    assert [row.cells for row in table.rows] == [
        ("read", "0.00"),
        ("  published", "1.5"),
        ("nothing", "0.00"),
    ]


def test_several_interpreters_have_a_column_each():
    other = a_result(
        environment={"python": "3.11.7"}, samples=(Sample("read", {"copied": 2**20}),)
    )
    table = table_of([a_result(), other])
    assert table.headings == ("arm", "", "3.13.0", "3.11.7", "published")
    assert table.rows[0].cells == ("read", "copied MiB", "0.00", "1.0", "1.5")
    assert table.rows[1].cells == ("nothing", "copied MiB", "0.00", "-", "")


def test_a_heading_has_the_unit_once():
    assert heading(Column("m", "copied", "MiB")) == "copied MiB"
    assert heading(Column("m", "copied MiB", "MiB")) == "copied MiB"
    assert heading(Column("m", "share", "%")) == "share"


def test_warnings_that_differ_in_figures_are_one():
    warnings = ("5 of 7 pages", "THP is on"), ("6 of 7 pages",), ("8.5 of 7 pages",)
    samples = [Sample(arm, {}, 0, 0, w) for arm, w in zip("aab", warnings, strict=True)]
    assert warnings_of(a_result(samples=tuple(samples))) == {
        "5 of 7 pages": ["a", "b"],
        "THP is on": ["a"],
    }


def test_the_widest_spread_is_named():
    assert spread(a_result()) == (
        "medians of 2; samples differ by at most 100.0% of the column's largest figure"
        " (copied MiB, read)"
    )
    one = a_result(samples=a_result().samples[:1])
    assert "--repeat" in spread(one)


def test_text_has_the_figures_the_failures_and_the_claims():
    pytest.importorskip("rich")
    failures = (
        Failure("both", "unsupported", "no perf: install it"),
        Failure("crash", "crashed", "killed by SIGSEGV\n    Fatal error"),
    )
    text = str(a_result(failures=failures, interrupted=True))
    for part in (
        "A toy",
        "read",
        "published",
        "both: not here. no perf: install it",
        "killed by SIGSEGV",
        "    Fatal error",
        "warning (read): careful",
        "A9 reproduced",
        "as published",
        "note: mind this",
        "Interrupted",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("width", "interpreters"),
    [(40, 1), (60, 1), (60, 3), (80, 1), (100, 5), (200, 1), (200, 5)],
)
def test_no_figure_is_lost_on_a_narrow_terminal(width, interpreters):
    console = pytest.importorskip("rich.console")
    from cowlab.report._text import render

    values = {f"metric_{at}": 1234 + at for at in range(8)}
    columns = tuple(Column(name, f"the {name}", "", {"b": 55}) for name in values)
    samples = tuple(Sample(arm, values) for arm in ("a-long-name", "b"))
    result = a_result(columns=columns, samples=samples)
    out = io.StringIO()
    render([result] * interpreters, console.Console(file=out, width=width))
    assert all(len(line) <= width for line in out.getvalue().splitlines())
    text = re.sub(r"\s", "", out.getvalue())
    assert "reproduced" in text
    if width >= 60:
        assert "a-long-name" in text
    words = out.getvalue().split()
    for value in values.values():
        assert words.count(f"{value:,}") == 2 * interpreters
    assert words.count("55") == 8


def test_markup_in_names_is_text():
    pytest.importorskip("rich")
    sample = Sample("[red]<b>&", {"copied": 1.0}, 0, 0.0, ("[/nope]",))
    result = a_result(title="[bold]<i>", samples=(sample,))
    text, html = str(result), result._repr_html_()
    assert "[red]<b>&" in text
    assert "[/nope]" in text
    assert "[bold]<i>" in text
    assert "&lt;b&gt;&amp;" in html
    assert "<i>" not in html


def test_html_has_the_same_table():
    html = Comparison((a_result(), a_result()))._repr_html_()
    assert html.count("<tr") == 1 + len(table_of([a_result(), a_result()]).rows)
    assert "reproduced" in html
    assert "mind this" in a_result()._repr_html_()


def test_a_plot_has_a_bar_for_each_arm():
    pytest.importorskip("matplotlib")
    axes = a_result().plot().axes[0]
    assert len(axes.patches) == 2
    assert axes.get_xlabel() == "copied MiB"
    with pytest.raises(UsageError, match="copied"):
        a_result().plot("copid")


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(Unsupported, match="pip install"):
        a_result().plot()
