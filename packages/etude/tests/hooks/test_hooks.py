"""The smaller hooks, each through a run."""

from __future__ import annotations

import pytest
import torch

from etude.hooks.log import _others


@pytest.mark.parametrize(
    ("names", "values", "others"),
    [
        ("abc", [torch.tensor(0.5), 0.25, 0.25], {"b": 0.25, "c": 0.25}),
        ("abc", [torch.tensor(0.5), torch.tensor(0.5), 0.25], {"c": 0.25}),
        ("", [0.5, 0.25, 0.25, 0.125], {"1": 0.25, "3": 0.125}),
        ("", [None, 0.9], {"1": 0.9}),
        ("", [None, None], {}),
        ("", [0.5], {}),
    ],
)
def test_groups_are_logged_where_their_value_is_not_that_of_the_first(names, values, others):
    groups = [{"name": name} for name in names] or [{} for _ in values]
    assert dict(_others(groups, values)) == others
