"""What the hooks of MMSelfSup change, seen in every iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import nets, toys

import mmpretrain.engine.schedulers  # isort: skip  # served by nets' import
import mmselfsup.engine.hooks  # isort: skip


def _scoped(part: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a hook or scheduler with its scope, if it is one of MMSelfSup's or MMPretrain's."""
    for module in (mmselfsup.engine.hooks, mmpretrain.engine.schedulers):
        if part["type"] in vars(module):
            return {**part, "type": f"{module.__name__.partition('.')[0]}.{part['type']}"}
    return part


class Watch(toys.Hook):
    """Looks when all other hooks have acted before an iteration."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.seen: dict[str, list[Any]] = {name: [] for name in ("lr", "wd", "loss_lambda", "frozen", "temp")}

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        groups, model = runner.optim_wrapper.optimizer.param_groups, runner.model
        self.seen["lr"].append([group["lr"] for group in groups])
        self.seen["wd"].append([group["weight_decay"] for group in groups])
        self.seen["loss_lambda"].append(model.loss_lambda)
        self.seen["temp"].append(model.head.temp)
        self.seen["frozen"].append([name for name, param in model.named_parameters() if not param.requires_grad])


@pytest.mark.parametrize("case", params("mmengine", "selfsup_hooks"))
def test_hooks_change_what_was_recorded(case: dict[str, Any], tmp_path: Path) -> None:
    def train() -> Watch:
        optimizer = {"type": "SGD", "lr": 0.1, "weight_decay": 0.01}
        runner = toys.runner(
            tmp_path,
            model=nets.SSNet(),
            train_dataloader=toys.loader(toys.ToyData(2 * case["iters_per_epoch"])),
            train_cfg={"by_epoch": True, "max_epochs": case["max_epochs"]},
            optim_wrapper={"optimizer": optimizer, "paramwise_cfg": case.get("paramwise_cfg")},
            param_scheduler=[_scoped(one) for one in case.get("param_scheduler") or ()] or None,
            custom_hooks=[_scoped(hook) for hook in case["custom_hooks"]],
        )
        watch = Watch()
        runner.register_hook(watch)
        runner.train()
        return watch

    if "error" in case["expect"]:
        with pytest.raises(Exception):
            train()
        return
    watch = train()
    for name, expected in case["expect"].items():
        assert name in watch.seen, f"a value that nobody watches: {name}"
        found = watch.seen[name]
        if name == "frozen":
            assert found == expected
        else:
            rows = zip(found, expected, strict=True)
            assert all(row == pytest.approx(recorded, rel=1e-9, nan_ok=True) for row, recorded in rows), name
