"""What the user's code returns and cannot be used: whose it is, what came and what is expected, from both ways in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import etude
from etude.errors import UserError
from tests.cli.commands import Commands

PARTS = """
import torch, etude
from torch.nn.functional import cross_entropy
from etude.data import Digits

LOSSES = {
    "nothing": lambda value: None,
    "number": lambda value: value.item(),
    "vector": lambda value: value * torch.ones(3),
    "one": lambda value: value.reshape(1),
    "detached": lambda value: value.detach(),
    "whole": lambda value: value.long(),
}

@etude.LOSSES.register
class Loss(torch.nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, output, target):
        return LOSSES[self.kind](cross_entropy(output, target))

@etude.METRICS.register
class Metric:
    def __init__(self, kind: str):
        self.kind = kind

    def reset(self): ...

    def update(self, output, target): ...

    def compute(self):
        kinds = {"nothing": None, "vector": torch.ones(3), "text": "high", "named": {"a": 1.0, "b": None},
                 "nan": float("nan"), "fine": torch.tensor([0.5]), "many": {"dice": 0.5}}
        return kinds[self.kind]

class Picture:
    pass

@etude.DATASETS.register
class Data(torch.utils.data.Dataset):
    def __init__(self, kind: str = "", first: int = 0):
        self.kind, self.first = kind, first

    def __len__(self):
        return 32

    def __getitem__(self, index):
        image, label = torch.full((64,), index / 32), index % 10
        if index < self.first:
            return image, label
        if self.kind == "picture":
            from PIL import Image
            return Image.new("L", (8, 8)), label
        return {"": (image, label), "nothing": None, "half": (image, None), "single": (image,), "bare": image,
                "three": (image, image, label), "keys": {"image": image, "size": 8, "label": label}}[self.kind]

@etude.MODELS.register
class Net(torch.nn.Module):
    def __init__(self, kind: str = ""):
        super().__init__()
        self.layer, self.kind = torch.nn.Linear(64, 10), kind
        if kind == "frozen":
            self.requires_grad_(False)

    def forward(self, pixels):
        output = self.layer(pixels)
        if self.kind == "tuple":
            return output, output
        if self.kind != "silent":
            return output
"""

TEXT = """\
imports: [parts.py]
model: {type: Net, kind: MODEL}
loss: LOSS
data:
  train: {dataset: {type: Data, kind: DATA, first: 0}, batch_size: 8, shuffle: false}
  val: {dataset: Data, batch_size: 8}
optim: {type: SGD, lr: 0.1}
metrics: [{type: Metric, kind: METRIC}]
train: {epochs: 1}
"""
GOOD = {"MODEL": "''", "LOSS": "CrossEntropyLoss", "DATA": "''", "METRIC": "fine"}


def loss(kind):
    return {"LOSS": f"{{type: Loss, kind: {kind}}}"}


A_LOSS = r"r.yaml:3: the loss Loss \(parts.py:2\d\) returned %s.*; a loss is a tensor of one number that has a gradient"
CASES = {
    "loss None": (loss("nothing"), A_LOSS % "None"),
    "loss float": (loss("number"), A_LOSS % r"a float \(leave out .item\(\)\)"),
    "loss vector": (loss("vector"), A_LOSS % r"a tensor of shape \(3,\)"),
    "loss of shape (1,)": (loss("one"), A_LOSS % r"a tensor of shape \(1,\)"),
    "loss detached": (loss("detached"), A_LOSS % "a tensor without a gradient"),
    "one of two losses": ({"LOSS": "[CrossEntropyLoss, {type: Loss, kind: nothing}]"}, A_LOSS % "None"),
    "loss integer": (loss("whole"), A_LOSS % "a tensor of int64, which has no gradient"),
    "metric None": ({"METRIC": "nothing"}, r"r.yaml:8: metric metric: Metric.compute \(parts.py:\d+\) returned None; a"),
    "metric vector": ({"METRIC": "vector"}, r"Metric.compute \(parts.py:\d+\) returned a tensor of shape \(3,\); a metric"),
    "metric text": ({"METRIC": "text"}, r"Metric.compute \(parts.py:\d+\) returned a str; a metric computes a number"),
    "metric of a mapping": ({"METRIC": "named"}, r"Metric.compute \(parts.py:\d+\) returned None for 'b'; a metric"),
    "sample None": ({"DATA": "nothing"}, r"r.yaml:5: Data.__getitem__ \(parts.py:\d+\) returned None for sample 0; a sample"),
    "later sample None": (
        {"DATA": "nothing, first: 5", ", first: 0": ""}, r"Data.__getitem__ \(parts.py:\d+\) returned None for sample 5;"),
    "target None": ({"DATA": "half"}, r"Data.__getitem__ \(parts.py:\d+\) returned \(64, None\) for sample 0; a sample"),
    "a picture of PIL": ({"DATA": "picture"}, r"returned \(Image, int\) for sample 0; a picture of PIL is no tensor yet"),
    "no target": ({"DATA": "single"}, r"r.yaml:5: a loss needs batches of .* list of 1; Data.__getitem__ \(parts.py:\d+\)"),
    "no tuple": ({"DATA": "bare"}, r"this batch is a tensor of shape \(8, 64\); Data.__getitem__ \(parts.py:\d+\) makes"),
    "too many inputs": (
        {"DATA": "three"}, r"r.yaml:2: Net.forward \(parts.py:\d+\) takes pixels, and the batch has 2 inputs before its target"),
    "keys that forward does not take": (
        {"DATA": "keys"}, r"takes pixels, and the batch has image, size: it does not take image, size and it misses pixels; D"),
    "forward without return": (
        {"MODEL": "silent"}, r"r.yaml:2: Net.forward \(parts.py:\d+\) returned None; a model returns its output: is there a `ret"),
    "forward returns a tuple": (
        {"MODEL": "tuple"}, r"Net.forward \(parts.py:\d+\) returned a tuple of 2; the loss CrossEntropyLoss takes a tensor"),
    "everything frozen": ({"MODEL": "frozen"}, r"r.yaml:2: every parameter of the optimizers is frozen"),
}  # fmt: skip


def config_of(changes):
    text = TEXT
    for word, value in {**GOOD, **changes}.items():
        text = text.replace(word, value)
    return text


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_used_is_named_before_an_epoch_is_spent(command: Commands, case):
    changes, said = CASES[case]
    done = command("train", "r.yaml", "--folder", "run", r_yaml=config_of(changes), parts_py=PARTS)
    assert done.code == 2, done.err
    assert re.search(said, done.err), done.err
    assert "fault of the engine" not in done.err and "/etude/" not in done.err
    assert not re.search("after [1-9]", done.err)  # no step was made
    assert not Path("run/checkpoints").exists()


def test_the_same_parts_train_when_they_are_right(command: Commands):
    done = command("train", "r.yaml", "--folder", "run", "-q", r_yaml=config_of({}), parts_py=PARTS)
    assert done.code == 0, done.err


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("a picture of PIL", "one of two losses")])
def test_the_same_from_python(workdir, case):
    changes, said = CASES[case]
    Path("r.yaml").write_text(config_of(changes))
    Path("parts.py").write_text(PARTS)
    from etude.building.components import build_component, import_modules

    plan, _ = etude.load_plan("r.yaml")
    import_modules(plan)
    model = build_component(plan.model)
    trainer = etude.Trainer(
        model, loss=build_component(plan.losses[0]), optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        metrics=[build_component(spec) for spec in plan.metrics], quiet=True,
    )  # fmt: skip
    before = [param.clone() for param in model.parameters()]
    with pytest.raises(UserError) as caught:
        train, val = (build_component(plan.data[split].dataset) for split in ("train", "val"))
        data = torch.utils.data.DataLoader(train, 8) if "sample" not in case and case != "target None" else train
        trainer.fit(data, val=val, epochs=1, **({"batch_size": 8} if data is train else {}))
    pattern = re.sub(r"r\.yaml:\d: ", "", said)
    pattern = re.sub(r"for sample \d", r"for sample \\d+", pattern)  # Trainer shuffles
    assert re.search(pattern, str(caught.value)), str(caught.value)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_a_metric_of_nan_is_told_once(command: Commands):
    done = command("train", "r.yaml", "train.epochs=3", r_yaml=config_of({"METRIC": "nan"}), parts_py=PARTS)
    assert done.code == 0 and done.err.count("is not a number (nan)") == 1
    assert re.search(r"warning: metric: Metric.compute \(parts.py:\d+\) .* after step 4", done.err)


def test_a_result_that_a_metric_of_ones_own_does_not_give_ends_before_the_first_epoch(command: Commands):
    hooks = "hooks: [{type: EarlyStop, metric: dise}]\n"
    done = command("train", "r.yaml", "--folder", "a", r_yaml=config_of({"METRIC": "many"}) + hooks, parts_py=PARTS)
    assert done.code == 2 and "r.yaml:10: EarlyStop: no metric gives 'dise'; did you mean 'dice'?" in done.err, done.err
    best = config_of({"METRIC": "many"}) + "checkpoint: {best: dise}\n"
    done = command("train", "r.yaml", "--folder", "a", r_yaml=best)
    assert done.code == 2 and "r.yaml:10: Checkpoint: no metric gives 'dise'; did you mean 'dice'?" in done.err
    plateau = config_of({"METRIC": "many"}) + "schedule: {lr: [{type: Plateau, metric: dise}]}\n"
    done = command("train", "r.yaml", "--folder", "a", r_yaml=plateau)
    assert done.code == 2 and "no metric gives 'dise'; did you mean 'dice'?" in done.err
    assert not Path("a").exists()
    good = config_of({"METRIC": "many"}) + "checkpoint: {best: dice}\n" + hooks.replace("dise", "dice")
    assert command("train", "r.yaml", "--folder", "a", "-q", r_yaml=good).code == 0


WATCHED = """
import random, numpy, torch, etude

@etude.DATASETS.register
class Noisy(torch.utils.data.Dataset):
    calls = 0

    def __init__(self, size: int = 64):
        self.size, self.asked, self.points = size, 0, torch.arange(64 * 64.0).reshape(64, 64) / 4096

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.asked += 1
        noise = torch.rand(64) + random.random() + float(numpy.random.rand()) + self.asked
        return self.points[index] + noise, index % 10

@etude.METRICS.register
class Seen:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def reset(self):
        self.total = 0.0

    def update(self, output, target):
        self.total += float(output.sum())
        self.count += 1

    def compute(self):
        return self.total + self.count

@etude.MODELS.register
class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = torch.nn.Linear(64, 10), torch.nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        if not self.training:
            inputs = inputs + torch.rand(64)
        return self.layer(self.drop(inputs)) + self.calls
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_trial_of_the_validation_leaves_no_trace(command: Commands, monkeypatch, workers):
    config = f"""
imports: [watched.py]
model: Counts
loss: CrossEntropyLoss
data:
  train: {{dataset: Noisy, batch_size: 8, workers: {workers}}}
  val: {{dataset: {{type: Noisy, size: 24}}, batch_size: 8, workers: {workers}}}
optim: {{type: AdamW, lr: 1e-2}}
train: {{epochs: 2, validate: 5step}}
metrics: [Seen]
log: {{every: 1step}}
"""
    tried = []
    from etude.session.first_step import trial

    whole = trial._first_batch
    monkeypatch.setattr(trial, "_first_batch", lambda loader: tried.append(1) or whole(loader))
    assert command("train", "w.yaml", "--folder", "with", "-q", w_yaml=config, watched_py=WATCHED).code == 0
    assert tried
    monkeypatch.setattr(trial, "_first_batch", lambda loader: None)
    assert command("train", "w.yaml", "--folder", "without", "-q").code == 0
    assert Path("with/metrics.jsonl").read_bytes() == Path("without/metrics.jsonl").read_bytes()
    done = command("ckpt", "diff", "with", "without")
    assert done.code == 0, done.out
