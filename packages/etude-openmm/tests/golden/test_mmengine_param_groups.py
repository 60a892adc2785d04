"""The parameter groups that ``paramwise_cfg`` makes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import nets

from mmengine.optim import build_optim_wrapper  # isort: skip  # served by nets' import


@pytest.mark.parametrize("case", params("mmengine", "param_groups"))
def test_groups_are_the_recorded_ones(case: dict[str, Any]) -> None:
    assert case["kind"] == "groups", f"a kind of case that nobody replays: {case['kind']}"
    optimizer = dict(case["optimizer"])
    if "betas" in optimizer:
        optimizer["betas"] = tuple(optimizer["betas"])
    config = {"optimizer": optimizer, "paramwise_cfg": case["paramwise_cfg"]}
    model, expect = nets.GroupNet(), case["expect"]
    if "error" in expect:
        with pytest.raises(ValueError):
            build_optim_wrapper(model, config)
        return
    wrapper = build_optim_wrapper(model, config)
    assert nets.described(model, wrapper.optimizer) == expect["groups"]
    assert list(wrapper.get_lr()) == expect["get_lr_keys"]
    assert wrapper.get_lr().get("base_lr") == expect["base_lr"]
    assert len(wrapper.param_groups) == expect["n_wrapper_groups"]
