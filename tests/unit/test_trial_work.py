"""How the units of a trial are dealt out, and how its requests are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowlab._trial_arm import Requests, Work, shuffled


def work(count: int, requests: int) -> Work:
    asked = [
        {"target": f"/{i}", "method": "GET", "headers": {}, "body": ""}
        for i in range(requests)
    ]
    order = {"work": count, "kind": "wsgi", "target": "builtins:print"}
    return Work(order | {"requests": asked})


@given(st.integers(1, 2000))
def test_every_unit_is_dealt_once_and_always_to_the_same(count: int) -> None:
    dealt = shuffled(count)
    assert sorted(dealt) == list(range(count))
    assert dealt == shuffled(count)


@given(st.integers(1, 500), st.integers(1, 20))
def test_workers_have_equal_shares(count: int, workers: int) -> None:
    todo = work(count, 3)
    shares = [todo.units_of(i, workers) for i in range(workers)]
    assert sorted(unit for share in shares for unit in share) == list(range(count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_each_worker_meets_as_many_requests_as_one_that_draws_them(
    workers: int,
) -> None:
    """In turns, a worker would meet 1 of ``workers`` requests, over and over."""
    kinds = 80
    todo = work(800, kinds)
    for index in range(workers):
        share = todo.units_of(index, workers)
        met = len({unit % kinds for unit in share})
        drawn = kinds * (1 - (1 - 1 / kinds) ** len(share))
        assert met > 0.9 * drawn


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.lists(
        st.tuples(texts, texts, st.dictionaries(texts, texts), st.binary()), min_size=1
    )
)
def test_requests_come_back_as_they_were_given(
    given: list[tuple[str, str, dict[str, str], bytes]],
) -> None:
    asked = [
        {
            "target": target,
            "method": method,
            "headers": headers,
            "body": body.decode("latin-1"),
        }
        for target, method, headers, body in given
    ]
    kept = Requests(asked)
    assert len(kept) == len(given)
    for unit in range(2 * len(given)):
        one = kept.of(unit)
        assert (one.target, one.method, one.headers, one.body) == given[
            unit % len(given)
        ]
