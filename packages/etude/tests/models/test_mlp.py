"""Tests of :mod:`etude.models.mlp`."""

from __future__ import annotations

import pytest

from etude.errors import ConfigError
from etude.models import MLP, CharTransformer


def test_what_cannot_be_built_is_said():
    with pytest.raises(ConfigError, match="did you mean 'ReLU'"):
        MLP([2, 2], activation="Relu")
    with pytest.raises(ConfigError, match="at least an input and an output"):
        MLP([2])
    with pytest.raises(ConfigError, match="cannot be shared by 3 heads"):
        CharTransformer(width=64, heads=3)
