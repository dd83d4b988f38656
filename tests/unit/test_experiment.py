"""Settings as text, and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowlab._errors import UsageError
from cowlab._experiment import Arm, Claim, Experiment, Parameter, load, reproduced
from cowlab._suggest import suggest

EXPERIMENT = Experiment(
    name="toy",
    title="A toy",
    claims=(Claim("A0", "A", "it is so", lambda result: reproduced("so it is")),),
    arms=(Arm("one"), Arm("other")),
    columns=(),
    run_arm=lambda arm: {},
    parameters={
        "rows": Parameter(10),
        "share": Parameter(0.5, minimum=0, maximum=1),
        "how": Parameter("read", choices=("read", "write")),
        "size": Parameter(1 << 20, unit="bytes"),
        "fast": Parameter(False),
        "page_size": Parameter(4096),
    },
)


@pytest.mark.any_python
@given(st.integers(1, 10**18))
def test_a_whole_number_means_itself_however_it_is_grouped(number):
    parameter = Parameter(1)
    assert parameter.parse(str(number)) == number
    assert parameter.parse(f" {number:_} ") == number
    assert parameter.parse(f"{number:,}") == number
    assert type(parameter.parse(str(number))) is int


@pytest.mark.any_python
@given(st.floats(0, 1))
def test_a_fraction_means_itself(number):
    assert Parameter(0.5, minimum=0, maximum=1).parse(repr(number)) == number


@pytest.mark.any_python
@given(st.integers(1, 10**6), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_a_size_has_units(number, unit):
    factor = 1024 ** ("KMG".index(unit[0]) + 1)
    parameter = Parameter(1, unit="bytes")
    assert parameter.parse(f"{number}{unit}") == number * factor
    assert parameter.parse(f"{number} {unit.lower()}") == number * factor


@pytest.mark.any_python
@given(st.text())
def test_any_text_is_a_value_of_the_right_type_or_one_sentence(text):
    for parameter in EXPERIMENT.parameters.values():
        try:
            value = parameter.parse(text)
        except ValueError as error:
            assert str(error)
        else:
            assert type(value) is type(parameter.default)


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"row": "1"}, "Did you mean 'rows'"),
        ({"zzz": "1"}, "There are: rows, share"),
        ({"rows": "many"}, "'many' is no number"),
        ({"rows": "0"}, "at least 1"),
        ({"rows": "-5"}, "at least 1"),
        ({"rows": "1.5"}, "no whole number"),
        ({"rows": "nan"}, "no finite number"),
        ({"rows": "1e999"}, "no finite number"),
        ({"rows": ""}, "no number"),
        ({"share": "2"}, "at least 0 and at most 1"),
        ({"how": "rad"}, "none of read, write"),
        ({"size": "5 pounds"}, "no number"),
        ({"fast": "maybe"}, "neither yes nor no"),
    ],
)
def test_a_bad_setting_says_what_would_be_valid(given_, says):
    with pytest.raises(UsageError, match=says):
        EXPERIMENT.settings(given_)


def test_settings_are_the_defaults_and_what_was_given():
    settings = EXPERIMENT.settings(
        {"rows": "8e5", "fast": "yes", "size": "64MiB", "page-size": 8192}
    )
    assert settings == {
        "rows": 800_000,
        "share": 0.5,
        "how": "read",
        "size": 64 << 20,
        "fast": True,
        "page_size": 8192,
    }


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'other'"):
        EXPERIMENT.arm("othr")
    with pytest.raises(UsageError, match="Did you mean 'refcount-privatisation'"):
        load("refcount-privatization")
    with pytest.raises(UsageError, match=r"There are: .*refcount-privatisation"):
        load("zzz")


@pytest.mark.any_python
@given(st.text(), st.lists(st.text(min_size=1)))
def test_a_suggestion_is_one_of_the_names_or_all(word, names):
    text = suggest(word, names)
    if text.startswith("Did"):
        assert any(repr(name) in text for name in names)
    else:
        assert all(name in text for name in names)
