"""Results: figures, files, and what is no such file."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_result import a_result

from cowlab._errors import CowlabError
from cowlab._result import (
    Comparison,
    Missing,
    Result,
    load_result,
    save_text,
)


def test_figures_are_over_all_samples_of_an_arm():
    result = a_result()
    assert result.median("read", "copied") == 2.0
    assert result.low("read", "copied") == 1.0
    assert result.high("read", "copied") == 3.0
    assert result.values("nothing", "copied") == [0.0, 2.0]
    assert result.arms == ["read", "nothing"]
    assert list(result.summary()["read"]) == ["copied"], "an absent figure is not 0"


@pytest.mark.parametrize(
    ("arm", "metric", "why"),
    [
        ("read", "gone", "read has no figure for gone"),
        ("both", "copied", "no perf: install it"),
        ("other", "copied", "it was not run"),
    ],
)
def test_a_missing_figure_says_why(arm, metric, why):
    with pytest.raises(Missing, match=why):
        a_result().median(arm, metric)


def test_a_missing_figure_after_ctrl_c_says_so():
    with pytest.raises(Missing, match="interrupted"):
        a_result(interrupted=True).median("other", "copied")


def test_a_result_comes_back_from_json_as_it_was(tmp_path):
    file = tmp_path / "result.json"
    for result in (a_result(), a_result(interrupted=True)):
        save_text(file, json.dumps(result.to_json()))
        assert load_result(file) == result
    both = Comparison((a_result(), a_result(environment={"python": "3.11.7"})))
    save_text(file, json.dumps(both.to_json()))
    assert load_result(file) == both


def test_the_json_has_what_was_promised():
    data = a_result().to_json()
    promised = {"schema", "experiment", "environment", "samples", "summary", "claims"}
    assert promised <= data.keys()
    assert data["summary"]["read"]["copied"] == {
        "median": 2.0,
        "min": 1.0,
        "max": 3.0,
        "n": 2,
    }
    assert {"id", "verdict", "why"} <= data["claims"][0].keys()
    assert {"arm", "metrics"} <= data["samples"][0].keys()


def test_csv_has_a_line_for_each_figure():
    lines = a_result().to_csv().splitlines()
    assert lines[0] == "experiment,python,arm,repetition,metric,value"
    assert "toy,3.13.0,read,0,copied,3.0" in lines
    assert "toy,3.13.0,read,0,gone," in lines
    assert len(lines) == 1 + 4 * 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty"),
        (b"{", "not whole JSON"),
        (b"\xff\xfe", "not whole JSON"),
        (b"[" * 100_000, "not whole JSON"),
        (b"[]", "no result of cowlab run"),
        (b"null", "no result of cowlab run"),
        (b'{"a": 1}', "no result of cowlab run"),
        (b'{"schema": 99, "experiment": "x"}', "newer cowlab"),
        (b'{"schema": "1", "experiment": "x"}', "should be a number"),
        (b'{"schema": 1, "experiment": "x"}', "has no 'environment'"),
        (b'{"schema": 1, "experiment": "x", "results": []}', "no results in it"),
        (b'{"schema": 1, "experiment": "x", "results": 7}', "damaged"),
    ],
)
def test_what_is_no_result_is_told_in_a_sentence(tmp_path, text, why):
    file = tmp_path / "file"
    file.write_bytes(text)
    with pytest.raises(CowlabError, match=why) as caught:
        load_result(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def cuts(data, path=()):
    """The paths of all parts of some JSON."""
    if path:
        yield path
    if isinstance(data, (dict, list)):
        keys = data if isinstance(data, dict) else range(len(data))
        for key in keys:
            yield from cuts(data[key], (*path, key))


@pytest.mark.any_python
@settings(max_examples=200)
@given(st.data())
def test_a_result_damaged_anywhere_loads_or_is_refused_in_a_sentence(draw):
    data = json.loads(json.dumps(a_result().to_json()))
    *way, last = draw.draw(st.sampled_from(list(cuts(data))))
    part = data
    for step in way:
        part = part[step]
    wrong = st.none() | st.booleans() | st.integers() | st.text() | st.just([[]])
    part[last] = draw.draw(wrong | st.just({}) | st.just([{}]))
    try:
        result = Result.from_json(data)
        assert isinstance(result.to_csv(), str)
        assert result._repr_html_()
    except CowlabError as error:
        assert "\n" not in str(error)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "result.json"
    save_text(file, "old")
    monkeypatch.setattr(os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_text(file, "new")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    save_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_file_has_the_usual_mode(tmp_path):
    usual = tmp_path / "usual"
    usual.write_text("")
    save_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == usual.stat().st_mode
