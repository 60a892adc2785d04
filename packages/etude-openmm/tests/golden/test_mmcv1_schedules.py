"""Learning rate and momentum at every iteration, parameter groups, log averages: as mmcv 1.7.2 had them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.goldens import params
from tests.golden.mmcv1 import fixtures, tools


def _shown(values: Any) -> Any:
    """A number for the only group, as the recordings write it."""
    return values[0] if isinstance(values, list) and len(values) == 1 else values


@pytest.mark.parametrize("case", params("mmcv1", "lr_momentum"))
def test_every_iteration_sees_the_recorded_rates(case: dict[str, Any], tmp_path: Path) -> None:
    rates: list[Any] = []
    momenta: list[Any] = []
    with tools.expected(case) as stage:
        stage.append("build")
        net = tools.watched()
        runner, _ = tools.make_runner(case, tmp_path, net=net)

        def seen(mode: str) -> None:
            if mode == "train":
                rates.append(_shown(runner.current_lr()))
                momenta.append(_shown(runner.current_momentum()))

        net.seen = seen
        stage.append("register")
        tools.register(runner, lr_config=case["lr_config"], momentum_config=case["momentum_config"])
        stage.append("run")
        train = fixtures.loader(case["iters_per_epoch"])
        tools.run(runner, case, train, tools.val_loader(case, 1))
    if "error" in case:
        before = case["partial_lr"]
        assert case.get("lenient") or tools.close(rates[: len(before)], before)
        if "after_iters" in case["error"]:
            assert len(rates) == case["error"]["after_iters"]
        return
    assert tools.close(rates, case["lr"])
    wanted = case["momentum"] if "momentum" in case else [case["momentum_constant"]] * len(case["lr"])
    assert tools.close(momenta, wanted)


@pytest.mark.parametrize("case", params("mmcv1", "param_groups"))
def test_parameters_fall_into_the_recorded_groups(case: dict[str, Any]) -> None:
    net = getattr(fixtures, case["net"])()
    with tools.expected(case):
        optimizer = tools.make_optimizer(net, case["optimizer"])
    if "error" in case:
        return
    names = {id(param): name for name, param in net.named_parameters()}
    groups = [
        {"params": [names[id(p)] for p in group["params"]], "lr": group["lr"], "weight_decay": group["weight_decay"]}
        for group in optimizer.param_groups
    ]
    assert len(groups) == case["n_groups"]
    assert tools.close(groups, case["groups"])


@pytest.mark.parametrize("case", params("mmcv1", "log_buffer"))
def test_the_log_buffer_averages_as_recorded(case: dict[str, Any]) -> None:
    from mmcv.runner import LogBuffer

    for convert in (float, torch.tensor):
        buffer = LogBuffer()
        for values, count in case["updates"]:
            buffer.update({name: convert(value) for name, value in values.items()}, count)
        buffer.average(case["n"])
        assert tools.close(dict(buffer.output), case["output"], rel=1e-9 if convert is float else 1e-6)
        assert list(buffer.output) == case["order"]
        assert buffer.ready is case["ready"]
