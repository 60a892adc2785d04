"""What ``etude check`` tells of a lazy config, and what ``schema`` and ``list`` know of the dialect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import etude
from etude.cli import main
from etude_libai.lazy.load import DetectronLazyConfig, get_config
from etude_libai.places import CONFIGS
from etude_libai.schema import KEYS, value

SLIPS = {
    "train.train_itr=5": "did you mean 'train_iter'?",
    "train.evaluation.eval_periods=3": "did you mean 'eval_period'?",
    "train.scheduler.alfa=0.1": "did you mean 'alpha'?",
    "train.scheduler._target_=libai.scheduler.WarmupCosine": "did you mean libai.scheduler.WarmupCosineLR?",
    "optim.lrr=0.1": "oneflow.optim.AdamW takes no argument 'lrr'; did you mean 'lr'?",
    "optim._target_=oneflow.optim.AdmaW": "did you mean oneflow.optim.AdamW?",
    "optim.params.weight_decay_nrom=0.0": "did you mean 'weight_decay_norm'?",
    "graph.enable=true": "did you mean 'enabled'?",
    "model.dropuot=0.1": "did you mean 'dropout'?",
    "model._target_=line_parts.Lnie": "did you mean line_parts.Line?",
    "dataloader.train.num_worker=2": "did you mean 'num_workers'?",
    "dataloader.trian=1": "did you mean 'train'?",
    "train.evaluation.eval_mode=maxx": "did you mean 'max'?",
    "train.log_period=0": "at least 1 is needed",
    "train.warmup_ratio=1.5": "less than 1 is needed",
    "train.train_micro_batch_size=four": "an integer is needed",
    "train.global_batch_size=7": "a multiple of train_micro_batch_size (4) is needed",
    "train.input_placement_device=cudda": "a device such as cpu",
    "train.seed=abc": "an integer is needed",
    "train.amp=true": "a section is needed",
    "train.load_weight=nowhere": "there is no such folder",
    "train.train_micro_batch_size=null": "nothing says how large a batch is",
    "train.scheduler.milestones=[30,60]": "less than 1 is needed; they are shares of the length",
    "train.train_iter=0": "nothing says how long to train",
    "train.scheduler=null": "train has no scheduler; begin with",
    "model=null": "`model` is None",
    "train.seed=${train.seeed}": "Interpolation key 'train.seeed' not found; did you mean train.seed?",
    "graph.auto_parallel.enabled=true": "graph.auto_parallel.enabled has no effect: tensors are split as the model",
    "graph.global_mode.enabled=true": "graph.global_mode.enabled has no effect: processes train data parallel",
    "train.evaluation.evaluator=null": "train.evaluation has no evaluator; write train.evaluation.evaluator = LazyCall",
    "optim._target_=torch.optm.AdamW": "there is no torch.optm.AdamW; did you mean torch.optim.AdamW?",
    "model._target_=line_prats.Line": "did you mean line_parts.Line?",
    "list[0]=3": "write list.0=3",
    "~train": "cannot delete a key",
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_with_its_place_and_what_was_meant(
    config: Path, slip: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "config.py", slip])
    said = capsys.readouterr().out
    assert f"override '{slip}'" in said
    assert SLIPS[slip] in said


def test_a_sound_config_is_read_without_the_paths_of_the_engine(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "config.py"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "config.py: Étude runs this Python file to read it (--no-python-config forbids that)",
        "config.py: no mistakes found",
    ]


def test_milestones_are_shares_of_the_length(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "config.py", "train.scheduler.milestones=[3,7]"]) == 2
    assert "train.scheduler.milestones is [3, 7]: less than 1 is needed" in capsys.readouterr().out
    cut = config.read_text() + "\nfrom libai.scheduler import WarmupMultiStepLR\n"
    config.write_text(f"{cut}train.scheduler = LazyCall(WarmupMultiStepLR)(warmup_factor=0.1, milestones=[0.3, 0.7])\n")
    assert main(["check", "config.py"]) == 0
    assert main(["check", "config.py", "train.scheduler.milestones=[0.7,0.3]"]) == 2
    assert "milestones is [0.7, 0.3]: each must be larger than the one before" in capsys.readouterr().out


def test_what_an_update_says_is_told_with_its_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        f"{config.read_text()}\nfrom omegaconf import OmegaConf\n"
        "train.update(\n    dict(train_itr=5, scheduler=dict(train.scheduler, alfa=0.1)),\n    log_period=0,\n)\n"
        "OmegaConf.update(train, 'evaluation.eval_mode', 'maxx')\n"
        "model = LazyCall(Line)(dropout=0.0)\nmodel.update({'dropuot': 0.1})\n"
    )
    assert main(["check", "config.py"]) == 2
    said = capsys.readouterr().out
    line = 1 + config.read_text().splitlines().index("train.update(")
    for below, told in (
        (1, "unknown key train.train_itr"),
        (2, "train.log_period is 0"),
        (4, "train.evaluation.eval_mode is 'maxx'"),
    ):
        assert f"config.py:{line + below}: {told}" in said
    assert f"config.py:{line + 1}: train.scheduler: " in said
    assert f"config.py:{line + 6}: model: line_parts.Line takes no argument 'dropuot'" in said


def test_an_override_beside_the_key_that_was_meant_is_a_mistake(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a mapping of the user's own, which may hold any key."""
    config.write_text(f"{config.read_text()}model.cfg = dict(hidden_size=4, dim1=1)\n")
    with open("line_parts.py", "a") as file:
        file.write(
            "\n\nclass Line(Line):\n    def __init__(self, dropout=0.0, cfg=None):\n        super().__init__()\n"
        )
    assert main(["check", "config.py", "model.cfg.hiden_size=3"]) == 2
    assert "the config had no key model.cfg.hiden_size; did you mean 'hidden_size'?" in capsys.readouterr().out
    assert main(["check", "config.py", "model.cfg.dim2=3", "model.cfg.hidden_size=5", "model.cfg.other=1"]) == 0


def test_the_schema_knows_keys_types_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--dialect", "libai"]) == 0
    train = json.loads(capsys.readouterr().out)["properties"]["train"]["properties"]
    assert train["log_period"] == {
        "description": "iterations between two lines", "type": "integer", "minimum": 1, "default": 20,
    }  # fmt: skip
    assert train["evaluation"]["properties"]["eval_mode"] == {"enum": ["max", "min"], "default": "max"}
    assert train["max_iter"]["default"] == 90000
    assert main(["schema", "--dialect", "libai", "--markdown"]) == 0
    assert "| `train.checkpointer.period` | integer | `5000` |" in capsys.readouterr().out


def test_the_schema_has_the_defaults_of_the_common_configs() -> None:
    graph = get_config("common/models/graph.py")
    configs = [get_config("common/train.py"), graph, DetectronLazyConfig.load(f"{CONFIGS}/detectron2/common/train.py")]
    for section, keys in KEYS.items():
        for key in keys:
            name = ".".join(map(str, (*section, key)))
            said = [found for cfg in configs if (found := OmegaConf.select(cfg, name, default="")) != ""]
            plain = [found for found in said[:1] if not OmegaConf.is_config(found)]
            schema = value((*section, key))
            assert plain == ([schema["default"]] if "default" in schema else []), name


def test_what_a_config_can_name_is_listed_without_torch() -> None:
    code = (
        "import sys; from etude_libai.listing import tables; found = tables(); "
        "assert 'torch' not in sys.modules; "
        "assert all(line for table in found.values() for line in table.values()), found; "
        "assert 'libai.scheduler.WarmupCosineLR' in found['scheduler']"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CONFIGURABLE = """

from {package} import configurable


class Described(Line):
    @configurable
    def __init__(self, width, dropout=0.0):
        super().__init__(dropout)
        self.width = width

    @classmethod
    def from_config(cls, cfg):
        return dict(width=cfg.width)
"""


@pytest.mark.parametrize("package", ["libai.config", "detectron2.config"])
@pytest.mark.parametrize("target", ["Described", '"line_parts.Described"'])
@pytest.mark.parametrize("given", ["cfg=DictConfig(dict(width=4)), dropout=0.5", "width=4, dropout=0.5"])
def test_a_model_that_takes_its_arguments_from_a_config_is_trained(
    config: Path, package: str, target: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("line_parts.py", "a") as file:
        file.write(CONFIGURABLE.format(package=package))
    imports = "from omegaconf import DictConfig\nfrom line_parts import Described\n"
    config.write_text(f"{imports}{config.read_text()}\nmodel = LazyCall({target})({given})\n")
    assert main(["check", "config.py"]) == 0, capsys.readouterr().out
    run = etude.train("config.py", overrides=["train.train_iter=1"])
    assert (run.model.width, run.model.drop.p) == (4, 0.5)
    main(["check", "config.py", "model.wdith=4", "model.cgf=4"])
    meant = "width" if "cfg=" in given else "cfg"
    assert f"did you mean {meant!r}?" in capsys.readouterr().out


def test_weights_that_are_not_there_are_a_mistake(config: Path) -> None:
    assert main(["check", "config.py", "train.load_weight=nowhere"]) == 2
    assert main(["train", "config.py", "train.train_iter=5"]) == 0
    assert main(["check", "config.py", "train.load_weight=out/model_final"]) == 0
    assert (
        main(["train", "config.py", "train.train_iter=7", "train.load_weight=nowhere", "--resume", "out/model_0000004"])
        == 0
    )


def test_what_a_config_deletes_is_missing_in_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("child.py").write_text("from .config import dataloader, graph, model, optim, train\ndel dataloader\n")
    assert main(["check", "child.py"]) == 2
    assert "child.py: the config has no `dataloader`" in capsys.readouterr().out


def test_a_data_set_of_a_list_is_named_by_its_number(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("line_parts.py", "a") as file:
        file.write("\n\nclass Refusing(Points):\n    def __init__(self, n):\n        raise ValueError(n)\n")
    assert main(["train", "config.py", "dataloader.train.dataset.0._target_=line_parts.Refusing"]) == 3
    assert "dataloader.train.dataset.0: line_parts.Refusing raised ValueError: 40" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "train"])
def test_a_config_for_scripts_of_detectron2_is_known_as_one(
    config: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("blob.yaml").write_text("# a box\nMODEL:\n  DEVICE: cpu\nSOLVER:\n  MAX_ITER: 3\n")
    assert main([verb, "blob.yaml"]) == 2
    told = "".join(capsys.readouterr())
    assert "blob.yaml:2: MODEL is a section of detectron2's configs, which a script reads" in told
    assert "run your script: etude exec tools/train_net.py --config-file blob.yaml" in told


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("optim.lr=-1", "override 'optim.lr=-1': optim: oneflow.optim.AdamW cannot be made: ValueError: Invalid learning rate"),
        ("optim.betas=[0.9,1.5]", "optim: oneflow.optim.AdamW cannot be made: ValueError: Invalid beta parameter"),
        ("optim.params.clip_grad_max_norm=-1", "clip_grad_max_norm must be at least 0, not -1"),
        ("train.scheduler.warmup_factor=1.5", "WarmupCosineLR cannot be made: ValueError: Starting multiplicative factor"),
        ("train.scheduler.warmup_method=linaer", "warmup_method should in ['linear', 'constant'], but got linaer"),
        ("dataloader.train.num_workers=two", "dataloader.train: libai.data.build_image_train_loader cannot be made"),
    ],
)  # fmt: skip
def test_wrong_values_are_told_by_the_classes_before_anything_is_trained(
    config: Path, override: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "config.py", override, "-q"]) == 2
    assert told in capsys.readouterr().err
