"""The JSON Schema that editors get for mmcv configs, the list of what they can name, and values that cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from etude.cli import main
from etude_openmm.mmcv1 import listing, lower, schema
from etude_openmm.shared.config.config_v1 import Config
from tests.inspection.support import Validator
from tests.places import REPOSITORY

ROOT = REPOSITORY
RIGHT: dict[str, Any] = {
    "model": {"type": "Mine", "init_cfg": [{"type": "Kaiming", "layer": ["Conv2d"]}]},
    "data": {"samples_per_gpu": 4, "workers_per_gpu": 0, "train": {"type": "D"}, "val": {"type": "D", "size": 3},
             "val_dataloader": {"samples_per_gpu": 2}},
    "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1,
                  "paramwise_cfg": {"norm_decay_mult": 0.0, "custom_keys": {"head": {"lr_mult": 10}}}},
    "optimizer_config": {"grad_clip": {"max_norm": 35, "norm_type": 2}},
    "lr_config": {"policy": "step", "step": [8, 11], "warmup": "linear", "warmup_iters": 500, "warmup_ratio": 0.001},
    "momentum_config": {"policy": "CosineAnnealing", "min_momentum": 0.8},
    "runner": {"type": "EpochBasedRunner", "max_epochs": 12},
    "workflow": [["train", 1], ["val", 1]],
    "checkpoint_config": {"interval": 1, "max_keep_ckpts": 3, "filename_tmpl": "e_{}.pth"},
    "log_config": {"interval": 50, "hooks": [{"type": "TextLoggerHook"}, {"type": "WandbLoggerHook", "commit": True}]},
    "evaluation": {"interval": 1, "save_best": "auto", "rule": "greater", "metric": "accuracy", "anything": 1},
    "custom_hooks": [{"type": "EMAHook", "momentum": 0.1, "priority": 49}, {"type": "Mine", "of": "mine"}],
    "load_from": None, "resume_from": None, "seed": 3, "dist_params": {"backend": "gloo"}, "my_own": {"a": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def validator() -> Validator:
    return Validator(schema.json_schema())


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    config: Any = json.loads(json.dumps(RIGHT))
    inner = config
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return config  # type: ignore[no-any-return]


def test_what_is_right_is_accepted(validator: Validator) -> None:
    assert validator.accepts(RIGHT)


def test_the_example_is_accepted(validator: Validator) -> None:
    config = Config.fromfile(str(ROOT / "examples" / "mmcv1" / "digits.py"), import_custom_modules=False)
    assert validator.accepts(json.loads(json.dumps(config._cfg_dict.to_dict())))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("optimizer",), {"gen": {"type": "Adam", "lr": 1}, "disc": {"type": "SGD"}}),
        (("optimizer_config",), None),
        (("optimizer_config",), {"type": "GradientCumulativeOptimizerHook", "cumulative_iters": 4}),
        (("lr_config",), None),
        (("lr_config",), {"policy": "Mine", "anything": 1}),
        (("lr_config",), {"policy": "CosineAnnealingCooldown", "min_lr": 0.1, "cool_down_time": 2}),
        (("runner",), {"type": "IterBasedRunner", "max_iters": 3}),
        (("custom_hooks",), {"type": "EMAHook"}),
        (("fp16",), {"loss_scale": "dynamic"}),
    ],
)
def test_other_forms_are_accepted(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert validator.accepts(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("lr_config", "stp"), [1]),
        (("lr_config", "step"), "8"),
        (("lr_config", "warmup"), "lienar"),
        (("lr_config",), {"step": [1]}),
        (("momentum_config", "min_momentum"), "low"),
        (("optimizer", "lrr"), 1),
        (("optimizer", "lr"), "0.1"),
        (("optimizer", "paramwise_cfg", "custom_keys", "head"), {"lr_mul": 1}),
        (("optimizer_config", "grad_clip"), {"norm_type": 2}),
        (("runner", "max_epoch"), 3),
        (("workflow",), [["train"]]),
        (("checkpoint_config", "intervall"), 1),
        (("log_config",), {"hooks": []}),
        (("log_config", "hooks", 0, "intervl"), 1),
        (("evaluation", "rule"), "more"),
        (("custom_hooks", 0, "momentm"), 1),
        (("data", "samples_per_gpu"), "4"),
        (("fp16",), {"los_scale": 1.0}),
        (("dist_params",), {"backend": "ncl"}),
        (("seed",), "three"),
    ],
)
def test_what_is_wrong_is_refused(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert not validator.accepts(changed(path, value))


def test_a_config_with_bases_may_leave_things_out(validator: Validator) -> None:
    assert validator.accepts({"_base_": "base.py", "data": {"samples_per_gpu": 8}})


def test_the_keys_that_check_knows_are_in_the_schema() -> None:
    left_out = {"init_cfg", "train_cfg", "test_cfg", "detector", "total_iters", "diff_seed", "ipu_options"}
    assert set(lower.KNOWN_KEYS) - left_out <= set(schema.keys())


def test_every_listed_name_is_in_its_registry() -> None:
    from etude_openmm.mmcv1.live import optimizers
    from etude_openmm.mmcv1.live.projects import train as _hooks
    from etude_openmm.mmcv1.live.runner import runners
    from etude_openmm.mmcv1.live.runner import runners as hooks
    from etude_openmm.shared.init.module_v1 import INITIALIZERS

    assert _hooks
    registered = {
        "RUNNERS": runners.RUNNERS, "OPTIMIZERS": optimizers.OPTIMIZERS, "HOOKS": hooks.HOOKS,
        "OPTIMIZER_BUILDERS": optimizers.OPTIMIZER_BUILDERS, "INITIALIZERS": INITIALIZERS,
    }  # fmt: skip
    for table, registry in registered.items():
        assert [name for name in listing.registries()[table] if registry.get(name) is None] == []
    ours = {name for name, cls in hooks.HOOKS.module_dict.items() if cls.__module__.startswith("etude.")}
    assert ours - set(listing.HOOKS) <= {"RFSearchHook"}


def test_nothing_of_it_needs_torch() -> None:
    code = (
        "import sys; from etude_openmm.mmcv1 import listing, schema; "
        "listing.tables(); schema.json_schema(); schema.markdown_schema(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--dialect", "mmcv1"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "mmcv 1.x config"
    assert main(["schema", "--dialect", "mmcv1", "--markdown"]) == 0
    assert "`CosineAnnealing(min_lr=None" in capsys.readouterr().out
