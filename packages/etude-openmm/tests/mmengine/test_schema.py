"""The JSON Schema that editors get for MMEngine configs, and the list of what configs can name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from etude_openmm.mmengine import schema
from etude_openmm.mmengine.schema import tables
from etude_openmm.shared.config.config_v2 import Config
from tests.inspection.support import Validator
from tests.places import REPOSITORY

ROOT = REPOSITORY
RIGHT: dict[str, Any] = {
    "model": {"type": "Net"},
    "train_dataloader": {
        "batch_size": 2,
        "dataset": {"type": "D"},
        "sampler": {"type": "DefaultSampler", "shuffle": True},
    },
    "train_cfg": {"by_epoch": True, "max_epochs": 3, "val_interval": 1, "dynamic_intervals": [[2, 1]]},
    "val_cfg": {},
    "val_evaluator": [{"type": "Accuracy"}],
    "optim_wrapper": {
        "type": "AmpOptimWrapper",
        "loss_scale": "dynamic",
        "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9},
        "clip_grad": {"max_norm": 1},
        "paramwise_cfg": {"custom_keys": {"bias": {"lr_mult": 2.0}}, "norm_decay_mult": 0},
    },
    "param_scheduler": [
        {"type": "LinearLR", "start_factor": 0.1, "begin": 0, "end": 1, "convert_to_iter_based": True},
        {"type": "CosineAnnealingMomentum", "T_max": 3},
    ],
    "default_hooks": {"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "auto"}, "timer": None},
    "custom_hooks": [{"type": "EMAHook", "momentum": 0.1, "priority": "LOW"}, {"type": "Mine", "anything": 1}],
    "randomness": {"seed": 1},
    "visualizer": {"type": "Visualizer", "vis_backends": [{"type": "LocalVisBackend"}]},
    "anything": {"of": "mine"},
}


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


@pytest.mark.parametrize("name", ["mae_adamw", "simclr_lars"])
def test_the_examples_are_accepted(validator: Validator, name: str) -> None:
    config = Config.fromfile(ROOT / "examples" / "mmengine" / f"{name}.py", import_custom_modules=False).to_dict()
    assert "model" in config
    assert validator.accepts(json.loads(json.dumps(config)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("param_scheduler",), {"type": "StepLR", "step_size": 2}),
        (("param_scheduler",), {"gen": [{"type": "StepLR", "step_size": 2}], "disc": {"type": "PolyLR"}}),
        (("optim_wrapper",), {"optimizer": {"type": "Mine", "anything": 1}}),
        (("optim_wrapper",), {"constructor": "Two", "gen": {"optimizer": {"type": "SGD", "lr": 1}}}),
        (("val_evaluator",), {"metrics": [{"type": "Accuracy"}]}),
        (("train_cfg",), {"type": "MyLoop", "turns": 3}),
        (("custom_hooks",), [{"type": "my.package.Hook"}]),
        (("log_processor",), {"window_size": 20}),
        (("launcher",), "pytorch"),
    ],
)
def test_other_forms_are_accepted(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert validator.accepts(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("train_cfg", "max_epochs"), "3"),
        (("train_dataloader", "batchsize"), 2),
        (("train_dataloader", "batch_size"), "2"),
        (("train_dataloader", "sampler"), {"type": "DefaultSampler", "shufle": True}),
        (("train_dataloader", "sampler"), {"shuffle": True}),
        (("optim_wrapper", "optimizer"), {"type": "SGD", "learning_rate": 0.1}),
        (("optim_wrapper", "optimizer"), {"type": "SGD", "lr": "0.1"}),
        (("optim_wrapper", "clip_grad"), {"norm": 1}),
        (("optim_wrapper", "accumulative_count"), 2),
        (("optim_wrapper", "paramwise_cfg"), {"custom_keys": {"bias": {"lr_mult": "2"}}}),
        (("param_scheduler",), [{"type": "StepLR"}]),
        (("param_scheduler",), [{"type": "LinearLR", "start": 0.1}]),
        (("default_hooks", "checkpoint"), {"type": "CheckpointHook", "interval": "1"}),
        (("default_hooks", "logger"), {"interval": 1}),
        (("custom_hooks",), {"type": "EMAHook"}),
        (("randomness",), {"sed": 1}),
        (("resume",), "yes"),
        (("launcher",), "torch"),
        (("log_level",), "LOUD"),
        (("custom_imports",), {"import": ["a"]}),
    ],
)
def test_what_is_wrong_is_refused(validator: Validator, path: tuple[Any, ...], value: Any) -> None:
    assert not validator.accepts(changed(path, value))


def test_the_command_prints_both_forms(capsys: Any) -> None:
    assert main(["schema", "--dialect", "mmengine"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["train_cfg"]["description"]
    assert main(["schema", "--dialect", "mmengine", "--markdown"]) == 0
    assert "`CheckpointHook(interval=-1" in capsys.readouterr().out


OWN = """\
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, MODELS, TRANSFORMS

@MODELS.register_module()
class NetOfSchema(BaseModel):
    def __init__(self, width: int, data_preprocessor=None, scale: float = None): ...

@HOOKS.register_module()
class HookOfSchema(Hook):
    def __init__(self, turns): ...

@TRANSFORMS.register_module()
class Jitter:
    def __init__(self, sigma=0.1): ...
"""


def test_classes_of_the_modules_that_a_config_imports_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_of_schema.py").write_text(OWN)
    (tmp_path / "c.py").write_text("custom_imports = dict(imports=['own_of_schema'])\ndefault_scope = 'mmengine'\n")
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "--config", "c.py"]) == 0
    printed = capsys.readouterr().out
    validator = Validator(json.loads(printed))
    for right in ({"width": 2}, {"width": 2, "scale": None}):
        assert validator.accepts(changed(("model",), {"type": "NetOfSchema", **right}))
    for wrong in ({}, {"width": "2"}, {"width": 2, "depth": 1}):
        assert not validator.accepts(changed(("model",), {"type": "NetOfSchema", **wrong}))
    hook = {"type": "HookOfSchema", "turns": 2, "priority": "LOW"}
    assert validator.accepts(changed(("custom_hooks",), [hook]))
    assert not validator.accepts(changed(("custom_hooks",), [{"type": "HookOfSchema"}]))
    assert main(["schema", "--dialect", "mmengine", "--config", "c.py"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["schema", "--config", "c.py", "--markdown"]) == 0
    assert "- `Jitter(sigma=0.1)`" in capsys.readouterr().out


def test_everything_that_a_config_can_name_is_listed() -> None:
    listed = tables()
    assert listed["PARAM_SCHEDULERS"]["LinearLR"].endswith(
        "until the number of epoch reaches a pre-defined milestone: ``end``."
    )
    assert listed["HOOKS"]["EMAHook"].startswith("etude_openmm.mmengine.live.hooks.ema_hook.EMAHook  ")
    assert {"OPTIMIZERS", "OPTIM_WRAPPERS", "LOOPS", "VISBACKENDS"} <= set(listed)


def test_neither_needs_torch() -> None:
    code = (
        "import sys; from etude_openmm.mmengine import schema; schema.tables(); schema.json_schema(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
