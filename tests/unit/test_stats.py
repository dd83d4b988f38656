import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cowlab._stats import median, summarise

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.any_python
@given(st.lists(st.integers() | st.floats(-1e300, 1e300), min_size=1))
@example([-(2**60 + 1), 2**60 + 3])  # halved first, each would be rounded
def test_the_median_is_the_standard_librarys(values):
    assert median(values) == pytest.approx(statistics.median(values))


@pytest.mark.any_python
@given(st.lists(finite, min_size=1))
@example([1.5e308, 1.7e308])  # their sum is no float
def test_a_summary_is_in_order_and_of_all_values(values):
    summary = summarise(iter(values))
    assert summary.min <= summary.median <= summary.max
    assert summary.n == len(values)
    assert summary.min in values
    assert summary.max in values


@pytest.mark.any_python
@given(st.lists(finite, min_size=1), st.randoms())
def test_the_order_of_the_values_does_not_matter(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert summarise(shuffled) == summarise(values)


def test_there_is_no_median_of_nothing():
    with pytest.raises(ValueError, match="nothing"):
        median([])
