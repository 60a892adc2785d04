"""What every parameter group had at the start of every iteration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.goldens import params
from tests.golden.mmengine import nets, toys

from mmengine.optim import OptimWrapper, OptimWrapperDict  # isort: skip  # served by toys' import


class Watch(toys.Hook):
    """Notes the watched entries of all groups before anything of an iteration happens."""

    priority = "HIGHEST"

    def __init__(self, keys: list[str]) -> None:
        self.values: dict[str, list[Any]] = {key: [] for key in keys}
        self.iterations = 0

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self.note(runner.optim_wrapper)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.iterations += 1

    def note(self, wrapper: Any) -> None:
        for key, values in self.values.items():
            name, group, entry = re.fullmatch(r"(?:(\w+):)?(\w+)\.(\w+)", key).groups()
            owner = wrapper[name] if name else wrapper
            found = owner.base_param_settings if group == "base" else owner.optimizer.param_groups[int(group[1:])]
            values.append(found["betas"][0] if entry == "betas0" else found.get(entry))


def _optim_wrapper(case: dict[str, Any], model: Any) -> Any:
    if case.get("multi"):
        lin = torch.optim.SGD(model.lin.parameters(), lr=0.1, momentum=0.9)
        head = torch.optim.Adam(model.head.parameters(), lr=0.01)
        return OptimWrapperDict(lin=OptimWrapper(lin), head=OptimWrapper(head))
    optimizer = dict(case["optimizer"])
    if "betas" in optimizer:
        optimizer["betas"] = tuple(optimizer["betas"])
    return {"optimizer": optimizer, "paramwise_cfg": case.get("paramwise_cfg")}


def _runner(case: dict[str, Any], folder: Path) -> Any:
    model = (
        nets.TwoOptimizers() if case.get("multi") else toys.TwoPart() if case.get("paramwise_cfg") else toys.ToyNet()
    )
    loop = dict(case["loop"])
    validation = toys.validation(case["metrics"], batches=case.get("val_batches", 1)) if case.get("metrics") else {}
    if "val_interval" in case:
        loop["val_interval"] = case["val_interval"]
    return toys.runner(
        folder,
        model=model,
        train_dataloader=toys.loader(toys.ToyData(2 * case.get("iters_per_epoch", 5))),
        train_cfg=toys.train_cfg(loop),
        optim_wrapper=_optim_wrapper(case, model),
        param_scheduler=case["param_scheduler"],
        auto_scale_lr=case.get("auto_scale_lr"),
        **validation,
    )


@pytest.mark.parametrize("case", params("mmengine", "param_scheduler"))
def test_groups_follow_the_recorded_schedule(case: dict[str, Any], tmp_path: Path) -> None:
    expect = case["expect"]
    watch = Watch(list(expect.get("values", {})))

    def train() -> Any:
        runner = _runner(case, tmp_path)
        runner.register_hook(watch)
        runner.train()
        return runner

    if "error" in expect:
        with pytest.raises(Exception):
            train()
        assert watch.iterations == expect.get("iters_done", 0)
        return
    watch.note(train().optim_wrapper)
    for key, values in expect["values"].items():
        assert watch.values[key] == pytest.approx(values, rel=1e-9, abs=1e-300, nan_ok=True), key
