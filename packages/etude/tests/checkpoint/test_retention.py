from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.checkpoint.retention import Retention
from etude.errors import ConfigError
from etude.metrics.direction import improves


@dataclass
class Saved:
    step: int
    metrics: dict[str, float] = field(default_factory=dict)


def kept(rule: Retention, *scores: float | None) -> list[int]:
    saved = [Saved(n, {} if score is None else {"m": score}) for n, score in enumerate(scores, start=1)]
    return [one.step for one in rule.keep(saved)]


def test_all_are_kept_unless_a_number_is_given() -> None:
    assert kept(Retention(), 1.0, 2.0, 3.0) == [1, 2, 3]


def test_zero_can_be_best_and_nan_or_nothing_cannot() -> None:
    nan = float("nan")
    assert kept(Retention(last=1, best=1, metric="m", mode="min"), nan, 0.0, None, 3.0, nan) == [2, 5]
    assert kept(Retention(last=1, best=1, metric="m", mode="max"), nan, 0.0, None, -3.0, nan) == [2, 5]


def test_of_equal_scores_the_older_stays() -> None:
    assert kept(Retention(last=1, best=1, metric="m", mode="max"), 1.0, 5.0, 5.0, 5.0, 2.0) == [2, 5]


def test_every_mth_step_stays_for_ever() -> None:
    assert kept(Retention(last=1, forever=3), *[None] * 10) == [3, 6, 9, 10]


@pytest.mark.parametrize("options", [{"last": 0}, {"last": 1, "best": 1}, {"mode": "up"}])
def test_rules_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Retention(**options)  # type: ignore[arg-type]


@given(
    st.lists(st.none() | st.floats(), min_size=1, max_size=12),
    st.integers(1, 4), st.integers(0, 3), st.sampled_from(["min", "max"]), st.integers(0, 4),
)  # fmt: skip
def test_the_newest_and_the_best_always_stay(
    scores: list[float | None], last: int, best: int, mode: str, forever: int
) -> None:
    rule = Retention(last=last, best=best, metric="m", mode=mode, forever=forever)
    stay = kept(rule, *scores)
    assert stay[-1] == len(scores) and len(stay) >= min(last, len(scores))
    finite = [score for score in scores if score is not None and score == score]
    if best and finite:
        extreme = min(finite) if mode == "min" else max(finite)
        assert scores.index(extreme) + 1 in stay


def test_better_is_strictly_better() -> None:
    assert improves(0.0, None, lower=True) and improves(0.0, 0.1, lower=True) and improves(0.0, -1.0, lower=False)
    assert not improves(1.0, 1.0, lower=True) and not improves(float("nan"), None, lower=False)
    assert improves(1.0, float("nan"), lower=True)


@pytest.mark.parametrize(("last", "count", "all_stay"), [(None, 9, True), (2, 1, True), (2, 2, True), (2, 3, False)])
def test_no_more_than_the_last_ones_all_stay(last: int | None, count: int, all_stay: bool) -> None:
    assert Retention(last=last).keeps_all(count) is all_stay
