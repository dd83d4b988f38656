"""What a trial's report concludes from its samples, on made-up ones."""

from __future__ import annotations

import pytest

from cowlab._result import Failure
from cowlab._trial import TrialReport, TrialSample

MIB = 1 << 20


def sample(arm: str, pss: float, **more: object) -> TrialSample:
    """One of four workers with a tenth of the rest each."""
    size = int(pss * MIB)
    figures: dict[str, object] = {
        "repetition": 0,
        "pss": size,
        "uss": size // 2,
        "rss": 2 * size,
        "pss_at_fork": size // 2,
        "workers_uss": size * 4 // 10,
        "inherited": 4 * size,
        "copied": size // 3,
        "fresh": 0,
        "minor_faults": 1000,
        "major_faults": 0,
        "seconds": 0.01,
        "cpu": 0.01,
        "elapsed": 1.0,
        "load_seconds": 0.5,
        "prepare_seconds": 0.0 if arm == "plain" else 0.25,
        "immortal": 1234 if arm in ("prepare", "both", "immortalize") else 0,
        "frozen": 0,
        "workers": (),
    }
    return TrialSample(arm, **(figures | more))  # type: ignore[arg-type]


def report(
    *samples: TrialSample, python: str = "3.14.0", failures: tuple[Failure, ...] = ()
) -> TrialReport:
    command = {"target": "a:b", "kind": "exercise", "requests": [], "warm": 0}
    return TrialReport(
        command=command | {"workers": 4, "work": 40},
        environment={"python": python, "page_size": 4096},
        samples=samples,
        failures=failures,
    )


def sizes(**medians: float) -> TrialReport:
    """Three samples of each arm, within 1%."""
    return report(
        *(
            sample(arm, size * (1 + spread / 200))
            for arm, size in medians.items()
            for spread in (-1, 0, 1)
        )
    )


@pytest.mark.parametrize(
    ("medians", "best"),
    [
        ({"plain": 100, "freeze": 99, "prepare": 40}, "prepare"),
        # Nearly the same: the simpler one, and the one that lasts.
        ({"plain": 100, "freeze": 40, "prepare": 38}, "freeze"),
        ({"plain": 100, "immortalize": 40, "both": 39, "prepare": 41}, "prepare"),
        ({"plain": 100, "immortalize": 40, "both": 39, "prepare": 60}, "both"),
        # Less than the noise.
        ({"plain": 100, "freeze": 98, "prepare": 98}, None),
        ({"plain": 100, "freeze": 101, "prepare": 130}, None),
        ({"plain": 100}, None),
        ({"prepare": 40}, None),
    ],
)
def test_what_is_recommended(medians: dict[str, float], best: str | None) -> None:
    assert sizes(**medians).recommendation == best


def test_samples_that_overlap_are_not_told_apart() -> None:
    wide = [sample("plain", size) for size in (50, 100, 110)]
    assert report(*wide, sample("prepare", 60)).recommendation is None
    assert report(*wide, sample("prepare", 45)).recommendation == "prepare"


def test_one_disturbed_sample_does_not_tell_arms_apart() -> None:
    """Who maps the libraries besides changes while a trial runs."""
    samples = [sample(arm, size) for arm, size in (("plain", 100), ("both", 40))]
    disturbed = [sample("prepare", size) for size in (40.5, 47, 47)]
    assert report(*samples, *disturbed).recommendation == "prepare"
    samples.append(sample("both", 33))
    steady = [sample("prepare", size) for size in (40.5, 40.5, 40.5)]
    assert report(*samples, *steady).recommendation == "prepare"


def test_an_arm_that_failed_once_is_not_recommended() -> None:
    failed = (Failure("prepare", "crashed", "it died", 1),)
    samples = [sample("plain", 100), sample("prepare", 40), sample("both", 45)]
    assert report(*samples, failures=failed).recommendation == "both"


def test_a_forecast_is_a_line_and_its_ceiling_all_that_is_inherited() -> None:
    found = report(sample("plain", 100))
    # 40 of the 100 MiB are the four workers' own, 10 each.
    assert found.forecast("plain", 1).pss == pytest.approx(70 * MIB, rel=0.01)
    assert found.forecast("plain", 4).pss == pytest.approx(100 * MIB, rel=0.01)
    assert found.forecast("plain", 14).pss == pytest.approx(200 * MIB, rel=0.01)
    # Each inherited 100.
    assert found.forecast("plain", 4).ceiling == pytest.approx(460 * MIB, rel=0.01)
    assert found.horizon() == [1, 2, 4, 8, 16]


def test_saving_and_cost_are_the_measured_ones() -> None:
    pytest.importorskip("rich")
    slow = {"cpu": 0.012, "frozen": 7}
    samples = [sample("plain", 100), sample("plain", 102), sample("plain", 98)]
    samples += [sample("prepare", size, **slow) for size in (40, 41, 39)]
    text = " ".join(report(*samples).text.split())
    assert "takes 40.0 MiB instead of 100.0 (40%): 60.0 MiB less" in text
    assert "Cost: 0.25 s in the master before the first fork" in text
    assert "processor time for a unit of work 20.0% more than plain's." in text
    assert "1,234 objects are immortal" in text
    assert "garbage" in text
    same = " ".join(report(sample("plain", 100), sample("freeze", 40)).text.split())
    assert "the same as plain's (one sample of each)" in same
    assert "immortal" not in same


def test_warnings_that_differ_in_numbers_only_are_one() -> None:
    pytest.importorskip("rich")
    found = report(
        sample("prepare", 40, warnings=("child 0: 1200 faults, but 7 pages",)),
        sample("plain", 100, warnings=("child 3: 990 faults, but 7 pages", "b")),
        sample("plain", 100, warnings=("child 1: 1000 faults, but 7 pages",)),
    )
    lines = [line for line in found.text.splitlines() if line.startswith("warning")]
    assert lines == [
        "warning (plain, prepare): 990 to 1,200 faults, but 7 pages",
        "warning (plain): b",
    ]


def test_where_objects_cannot_be_immortal_it_says_where_they_can() -> None:
    pytest.importorskip("rich")
    why = "immortalize: objects can be immortal from CPython 3.12 on: this is 3.11"
    left_out = (Failure("immortalize", "unsupported", why, 0),)
    old = report(
        sample("plain", 100),
        sample("freeze", 100),
        python="3.11.7",
        failures=left_out,
    )
    assert "leave it as it is" in old.text
    assert "From CPython 3.12 on" in old.text
    assert "immortalize: not here. objects can be" in old.text
    new = report(sample("plain", 100), sample("freeze", 100))
    assert "From CPython 3.12 on" not in new.text
