"""A converted config trains the same weights in native words; what has no native form is refused, all at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import etude
from etude.build import Options
from etude.cli import main
from tests.libai import test_detectron2_resume as detectron2
from tests.sampling import sample

#: The order of shuffled samples is another one natively, and a rule about norms, of which the model has none, a mistake.
IN_ORDER = ["dataloader.train.sampler.shuffle=false", "optim.params.weight_decay_norm=null"]


def require_same_weights(trainer_of: Callable[..., Any], *changes: str) -> None:
    """Compare the weights of ``native.yaml`` and of the trainer; learning rates may differ in the last digit."""
    run = etude.train("native.yaml", options=Options(folder=Path("native"), quiet=True))
    trainer = trainer_of(*changes)
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[name], value, rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.parametrize("accumulate", sample([1, 2], (1,)))
def test_the_native_config_ends_in_the_same_weights(
    config: Path, trainer_of: Callable[..., Any], accumulate: int, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [*IN_ORDER, "model.dropout=0.3", f"train.num_accumulation_steps={accumulate}", "train.train_iter=7"]
    assert main(["convert", str(config), *changes, "-o", "native.yaml"]) == 0
    assert "4 notes on differences" in capsys.readouterr().err
    assert "evaluation and the best checkpoint are left out" in Path("native.yaml").read_text()
    require_same_weights(trainer_of, *changes)


def test_without_a_warm_up_the_weights_are_equal_bit_by_bit(config: Path, trainer_of: Callable[..., Any]) -> None:
    changes = [*IN_ORDER, "train.warmup_ratio=0", "train.scheduler.alpha=1.0", "train.train_iter=7"]
    assert main(["convert", str(config), *changes, "-o", "native.yaml"]) == 0
    run = etude.train("native.yaml", options=Options(folder=Path("native"), quiet=True))
    trainer = trainer_of(*changes)
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value), name


def test_native_words_say_what_they_can(config: Path) -> None:
    assert main(["convert", str(config), "train.train_iter=8", "-o", "native.yaml"]) == 0
    native = yaml.safe_load(Path("native.yaml").read_text())
    assert native["model"] == {"type": "line_parts.Line", "dropout": 0.0}
    assert native["data"]["train"]["dataset"] == {"type": "line_parts.Points", "n": 40}
    assert native["data"]["train"]["shuffle"] and native["data"]["train"]["drop_last"]
    assert native["optim"]["type"] == "AdamW"
    assert native["optim"]["groups"] == [{"match": "*.bias", "weight_decay": 0.0}]  # the model has no norms
    warmup, after = native["schedule"]["lr"]
    assert (warmup["type"], warmup["from"], warmup["until"]) == ("Linear", 0.001, "2step")
    assert after == {"type": "etude_libai.curves.Running", "curve": "Cosine", "arguments": {"to": 0.01}}
    assert native["train"] == {"steps": 8, "seed": 1234}
    text = Path("native.yaml").read_text()
    assert set(re.findall(r"etude_libai\.[\w.]+", text)) == {
        "etude_libai.live.native",
        "etude_libai.live.native.Fields",
        "etude_libai.live.native.ClipByGroup",
        "etude_libai.live.events.notebook.Storage",
        "etude_libai.curves.Running",
    }


SEEDED = """


class Seeded(Points):
    def __init__(self, n, seed):
        super().__init__(n)
        self.seed = seed

    def __getitem__(self, index):
        return super().__getitem__(index * self.seed)
"""


def test_a_seed_of_the_data_becomes_that_of_the_training(config: Path, trainer_of: Callable[..., Any]) -> None:
    with open("line_parts.py", "a") as file:
        file.write(SEEDED)
    text = config.read_text().replace("Error, Line, Points", "Error, Line, Points, Seeded")
    config.write_text(text.replace("[LazyCall(Points)(n=40)]", "[LazyCall(Seeded)(n=40, seed=1)]"))
    changes = [*IN_ORDER, "train.train_iter=5", "train.seed=3"]
    assert main(["convert", str(config), *changes, "-o", "native.yaml"]) == 0
    require_same_weights(trainer_of, *changes)


COLLATED = """


def shifted(samples):
    from libai.data.build import trivial_batch_collator

    batch = trivial_batch_collator(samples)
    batch.get("labels").tensor += 1.0
    return batch


class Turned(torch.utils.data.ConcatDataset):
    def __getitem__(self, index):
        return super().__getitem__(len(self) - 1 - index)


class OwnSampler(CyclicSampler):
    pass


def build_nlp_train_loader(**options):
    pass
"""


def test_a_collate_function_and_a_mixer_of_ones_own_come_along(
    config: Path, trainer_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers that refer to others are written as what they are."""
    with open("line_parts.py", "a") as file:
        file.write("\nfrom libai.data.samplers import CyclicSampler" + COLLATED)
    text = config.read_text().replace("Error, Line, Points", "Error, Line, OwnSampler, Points, Turned, shifted")
    loader = "dataset=[LazyCall(Points)(n=24), LazyCall(Points)(n=9)], num_workers=0, pin_memory=False,"
    text = text.replace("dataset=[LazyCall(Points)(n=40)], num_workers=0,", f"{loader} collate_fn=shifted,")
    text += 'dataloader["train"].dataset_mixer = Turned\noptim.eps = "${optim.weight_decay}"\n'
    config.write_text(text + "train.checkpointer.period = '${train.log_period}'\n")
    assert main(["convert", "config.py", *IN_ORDER, "train.train_iter=5", "-o", "native.yaml"]) == 0
    assert "${" not in Path("native.yaml").read_text()
    require_same_weights(trainer_of, *IN_ORDER, "train.train_iter=5")
    config.write_text(text.replace("LazyCall(CyclicSampler)", "LazyCall(OwnSampler)"))
    assert main(["convert", "config.py", "dataloader.train._target_=line_parts.build_nlp_train_loader"]) == 2
    told = capsys.readouterr().err
    assert "config.py:14: a sampler other than CyclicSampler has no native form" in told
    assert "a loader other than build_nlp_train_loader and build_image_train_loader has no native form" in told


TELLING = """
import torch
from {package}.utils.events import get_event_storage


class Telling({base}):
    def forward(self, *batch, **fields):
        storage = get_event_storage()
        with storage.name_scope("model"):
            storage.put_scalar("step", storage.iter, smoothing_hint=False)
            storage.put_scalar("norm", self.{layer}.weight.norm())
        storage.put_histogram("weights", self.{layer}.weight.detach().flatten())
        storage.put_image("picture", torch.zeros(3, 2, 2))
        return super().forward(*batch, **fields)
"""


def told(folder: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return {name: [line[name] for line in lines if name in line] for name in ("model/step", "model/norm")}


def test_what_a_converted_model_puts_into_the_storage_is_recorded(config: Path) -> None:
    with open("line_parts.py", "a") as file:
        file.write(TELLING.format(package="libai", base="Line", layer="hidden"))
    changes = [*IN_ORDER, "model._target_=line_parts.Telling", "train.train_iter=8", "train.log_period=2"]
    assert main(["convert", str(config), *changes, "-o", "native.yaml"]) == 0
    whole = ["train", "native.yaml", "checkpoint.every=3step", "+log.to=[tensorboard]"]
    assert main([*whole, "--folder", "whole"]) == 0
    assert told("whole")["model/step"] == [1, 3, 5, 7]
    assert all(value > 0 for value in told("whole")["model/norm"])
    before = told("whole")
    assert main([*whole, "--resume", "whole/checkpoints/step-000000003"]) == 0
    assert told("whole") == before


def test_what_cannot_be_converted_is_told_with_its_place(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(config), "train.train_epoch=2", "train.amp.enabled=true"]) == 2
    told = capsys.readouterr().err
    assert "train.train_epoch, which counts by the length of the data, has no native form" in told
    assert "a scaler of its own has no native form" in told


def test_a_class_of_the_config_itself_has_no_name_to_be_found_by(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + "\nclass Mine(Line):\n    pass\n\nmodel = LazyCall(Mine)()\n")
    assert main(["convert", "config.py"]) == 2
    told = capsys.readouterr().err
    assert "config.py:41: model._target_: the class Mine cannot be written into YAML; move what is defined" in told


def test_a_detectron2_config_ends_in_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every batch is all of the data, so that its order, another one natively, makes no difference."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = re.sub("noise = .*", "noise = 0.0", detectron2.PARTS).replace("nn.Dropout(0.3)", "nn.Dropout(0.0)")
    Path("d2_quiet.py").write_text(parts + TELLING.format(package="detectron2", base="Line", layer="fc"))
    Path("config.py").write_text(
        detectron2.CONFIG.replace("d2_parts", "d2_quiet").replace("quiet.Line", "quiet.Telling")
    )
    all_of_it = ["dataloader.train.total_batch_size=30", "optimizer.params.weight_decay_norm=null"]
    assert main(["convert", "config.py", *all_of_it, "-o", "native.yaml"]) == 0
    assert "evaluation and the best checkpoint are left out" in Path("native.yaml").read_text()
    assert main(["check", "native.yaml"]) == 0
    words = yaml.safe_load(Path("native.yaml").read_text())
    assert words["model"] == {"type": "d2_quiet.Telling"} and words["optim"]["type"] == "SGD"
    assert words["schedule"]["lr"][0]["until"] == "3step"
    native = etude.train("native.yaml", options=Options(folder=Path("native"), quiet=True))
    theirs = detectron2.train("config.py", "theirs", *all_of_it)
    for name, value in theirs.model.state_dict().items():
        torch.testing.assert_close(native.model.state_dict()[name], value, rtol=1e-5, atol=1e-7, msg=name)
    assert told("native")["model/step"] == [3, 7, 11]
    assert main(["convert", "config.py", "dataloader.train.aspect_ratio_grouping=True"]) == 2
    assert "aspect ratio" in capsys.readouterr().err
