"""detectron2's runs go on from a checkpoint: data, random numbers, lines, with each kind of loader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.api import train_config
from etude.checkpoint.formats import foreign
from etude.errors import ResumeError
from tests.libai import project
from tests.libai.test_kill import assert_same, cut, die, files_of, killed, lines
from tests.sampling import sample

PARTS = '''
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from detectron2.evaluation import DatasetEvaluator


def images(n=30):
    return [{"index": i, "width": 4 + i % 3, "height": 5} for i in range(n)]


def mapper(entry):
    """Random numbers of three makes, as augmentations draw them."""
    noise = 0.01 * (random.random() + np.random.rand() + torch.rand(1).item())
    return {**entry, "x": torch.tensor([entry["index"] / 30.0 + noise])}


class Plain(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return mapper({"index": index % 30})


def shuffled(num_workers=0):
    return DataLoader(Plain(), batch_size=4, shuffle=True, collate_fn=list, num_workers=num_workers)


def stream():
    while True:
        yield [mapper({"index": random.randrange(30)}) for _ in range(4)]


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(1, 1), nn.Dropout(0.3)

    def forward(self, batch):
        x = torch.stack([sample["x"] for sample in batch])
        if not self.training:
            return [{"error": float((self.fc(x) - 2 * x).abs().mean())} for _ in batch]
        return {"loss_mse": ((self.drop(self.fc(x)) - 2 * x) ** 2).mean()}


class Error(DatasetEvaluator):
    def reset(self):
        self.errors = []

    def process(self, inputs, outputs):
        self.errors += [output["error"] for output in outputs]

    def evaluate(self):
        return {"line": {"error": sum(self.errors) / len(self.errors)}}
'''

CONFIG = """
from detectron2.config import LazyCall as L
from detectron2.data import build_detection_test_loader, build_detection_train_loader
from detectron2.model_zoo import get_config
from detectron2.solver import WarmupParamScheduler
from fvcore.common.param_scheduler import CosineParamScheduler
import d2_parts

train = get_config("common/train.py").train
train.max_iter, train.log_period, train.eval_period, train.seed, train.device = 12, 4, 4, 3, "cpu"
train.checkpointer = dict(period=4, max_to_keep=3)
model = L(d2_parts.Line)()
optimizer = get_config("common/optim.py").SGD
optimizer.lr = 0.1
lr_multiplier = L(WarmupParamScheduler)(
    scheduler=L(CosineParamScheduler)(start_value=1.0, end_value=0.1), warmup_factor=0.1, warmup_length=0.25
)
dataloader = dict(
    train=L(build_detection_train_loader)(
        dataset=d2_parts.images(), mapper=d2_parts.mapper, total_batch_size=4, num_workers=0,
        aspect_ratio_grouping=False,
    ),
    test=L(build_detection_test_loader)(dataset=d2_parts.images(8), mapper=d2_parts.mapper),
    evaluator=L(d2_parts.Error)(),
)
"""

LOADERS = {
    "batches": (),
    "batches-workers": ("dataloader.train.num_workers=2",),
    "shuffled": ("dataloader.train=null", "dataloader.train={_target_:d2_parts.shuffled}"),
    "shuffled-workers": ("dataloader.train=null", "dataloader.train={_target_:d2_parts.shuffled,num_workers:2}"),
    "stream": ("dataloader.train=null", "dataloader.train={_target_:d2_parts.stream}"),
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "d2_parts.py").write_text(PARTS)
    (tmp_path / "config.py").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "config.py"
    sys.modules.pop("d2_parts", None)
    project.forget_loggers()


def train(config: str, folder: str, *overrides: str, resume: str | None = None, **options: Any) -> Any:
    project.forget_loggers()
    return train_config(
        config, list(overrides), options=etude.Options(folder=Path(folder), resume=resume, quiet=True, **options)
    )


def content(folder: str, name: str = "model_final.pth") -> dict[str, Any]:
    return {key: value for key, value in foreign.read(Path(folder, name)).items() if key != "trainer"}


def trainer_part(folder: str) -> dict[str, Any]:
    return {k: v for k, v in foreign.read(Path(folder, "model_final.pth"))["trainer"].items() if k != "etude"}


@pytest.mark.parametrize("kind", sample(LOADERS, (1, 4)))
def test_a_killed_run_ends_in_the_same_bits(config: str, kind: str) -> None:
    options = LOADERS[kind]
    train(config, "whole", *options)
    killed(lambda: train(config, "parts", *options, chaos="kill-saved@step=9"))
    torch.manual_seed(99)
    train(config, "parts", *options, resume="")
    assert_same(content("whole"), content("parts"))
    assert_same(trainer_part("whole"), trainer_part("parts"))
    assert lines("whole") == lines("parts")
    assert [line["iteration"] for line in lines("parts")] == [3, 7, 11, 12]


def test_a_damaged_checkpoint_is_passed_over_and_refused_where_it_was_named(config: str) -> None:
    train(config, "whole")
    killed(lambda: train(config, "parts", chaos="kill-saved@step=9"))
    cut(Path("parts/model_0000007.pth"))
    with pytest.raises(ResumeError, match="model_0000007"):
        train(config, "parts", resume="parts/model_0000007.pth")
    train(config, "parts", resume="")
    assert_same(content("whole"), content("parts"))
    assert "model_0000007.pth cannot be used" in Path("parts/log.txt").read_text()


def test_a_signal_leaves_a_checkpoint_to_go_on_from(config: str) -> None:
    train(config, "whole")
    stopped = train(config, "parts", chaos="sigterm@step=6")
    assert 6 <= stopped.step < 12
    assert Path("parts/last_checkpoint").read_text() == f"model_{stopped.step - 1:07d}.pth"
    train(config, "parts", resume="")
    assert_same(content("whole"), content("parts"))


def test_a_run_that_has_ended_is_left_alone_or_gone_on_with(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    train(config, "whole", "train.max_iter=8")
    before = files_of("whole")
    train(config, "whole", "train.max_iter=8", resume="")
    assert "whole: training has finished after 8 iterations; a larger train.max_iter goes on" in capsys.readouterr().out
    assert files_of("whole") == before
    train(config, "whole", resume="")
    assert [line["iteration"] for line in lines("whole")] == [3, 7, 11, 12]


def test_a_run_that_was_killed_in_its_last_evaluation_evaluates_again(config: str) -> None:
    def doomed() -> None:
        import d2_parts

        evaluate, looked = d2_parts.Error.evaluate, []

        def counting(self: Any) -> Any:
            looked.append(self)
            return die() if len(looked) == 3 else evaluate(self)

        d2_parts.Error.evaluate = counting
        train(config, "parts")

    train(config, "whole")
    killed(doomed)
    assert Path("parts/last_checkpoint").read_text() == "model_final.pth"
    train(config, "parts", resume="")
    assert_same(content("whole"), content("parts"))
    assert lines("whole") == lines("parts")
