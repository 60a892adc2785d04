"""Tests of :mod:`etude.metrics.direction`."""

from __future__ import annotations

import math

import pytest

from etude.metrics.direction import improves, lower_is_better


@pytest.mark.parametrize(
    ("name", "mode", "lower"),
    [
        ("val/loss", "", True),
        ("Perplexity", "", True),
        ("accuracy", "", False),
        ("loss", "max", False),
        ("f1", "min", True),
    ],
)
def test_the_mode_decides_before_the_name(name, mode, lower):
    assert lower_is_better(name, mode) is lower


def test_only_finite_values_are_better_and_only_by_the_margin():
    assert improves(0.5, None, lower=True) and improves(0.5, math.nan, lower=False)
    assert not improves(math.nan, None, lower=True) and not improves(-math.inf, 0.0, lower=True)
    assert improves(0.8, 0.9, lower=True) and not improves(0.9, 0.9, lower=True)
    assert not improves(0.95, 0.9, lower=False, by=0.1) and improves(1.01, 0.9, lower=False, by=0.1)
