"""An update of one's own that trains nothing is noticed after its first step, from a config and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import etude
from etude.data import TensorData
from etude.errors import ConfigError
from tests.cli.commands import CONFIG, Commands

PARTS = """
import torch, etude
from torch.nn.functional import cross_entropy

@etude.UPDATES.register
class ReturnsLoss:
    def __init__(self, forward, optimizers, step):
        self.step = step
    def __call__(self, run, batch):
        return cross_entropy(run.model(batch[0]), batch[1])

@etude.UPDATES.register
class Forgets:
    def __init__(self, forward, optimizers):
        self.optimizers = optimizers
    def __call__(self, run, batch):
        with torch.no_grad():
            run.model(batch[0])

@etude.UPDATES.register
class NeverSteps:
    def __init__(self, forward, optimizers):
        self.optimizers = optimizers
    def __call__(self, run, batch):
        cross_entropy(run.model(batch[0]), batch[1]).backward()

@etude.UPDATES.register
class Later:
    trains_later = True
    def __init__(self, forward, optimizers, step):
        self.step = step
    def __call__(self, run, batch):
        if run.step > 2:
            self.step.learn(run, cross_entropy(run.model(batch[0]), batch[1]))

@etude.UPDATES.register
class Tells:
    def __init__(self, forward, optimizers, step):
        self.step = step
    def __call__(self, run, batch):
        loss = cross_entropy(run.model(batch[0]), batch[1])
        self.step.learn(run, loss)
        return {"loss": loss * 0 - 7, "twice": 2 * loss, "fixed": 3, "scores": run.model(batch[0])}
"""


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ("ReturnsLoss", "returns its loss, and nothing learns from what an update returns: no parameter has changed"),
        ("Forgets", "has changed no parameter in its first step, and computed no gradients"),
        ("NeverSteps", "has computed gradients in 100 steps and changed no parameter"),
    ],
)
def test_an_update_in_a_config_that_trains_nothing_is_a_mistake(command: Commands, update, said):
    config = f"imports: [parts.py]\nupdate: {update}\n{CONFIG.replace('epochs: 2', 'steps: 120')}"
    done = command("train", "u.yaml", "--folder", "run", u_yaml=config, parts_py=PARTS)
    assert done.code == 2 and f"u.yaml:2: the update {update} (" in done.err and said in done.err, done.err
    assert "parts.py:" in done.err and "call step.learn(run, loss)" in done.err and "Traceback" not in done.err
    assert ("take `step`" in done.err) == (update != "ReturnsLoss")


def test_an_update_that_trains_later_says_so(command: Commands):
    config = f"imports: [parts.py]\nupdate: Later\n{CONFIG}"
    assert command("train", "u.yaml", "--folder", "run", "-q", u_yaml=config, parts_py=PARTS).code == 0


def test_what_an_update_returns_is_logged_but_not_twice(command: Commands):
    config = f"imports: [parts.py]\nupdate: Tells\n{CONFIG.replace('every: 3step', 'every: 1step')}"
    assert command("train", "u.yaml", "--folder", "run", "-q", u_yaml=config, parts_py=PARTS).code == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "twice" in row]
    assert len(rows) == 12 and all(row["loss"] > 0 and row["fixed"] == 3 and "scores" not in row for row in rows)
    assert all(row["twice"] == pytest.approx(2 * row["loss"], rel=1e-5) for row in rows)


def data(count=40):
    generator = torch.Generator().manual_seed(1)
    return TensorData(torch.randn(count, 64, generator=generator), torch.arange(count) % 10)


def make(update, **extra):
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return etude.Trainer(model, **{"optimizer": optimizer, "update": update, "quiet": True, **extra})


def loss_of(run, batch):
    return nn.functional.cross_entropy(run.model(batch[0]), batch[1])


def test_an_update_of_a_trainer_that_trains_nothing_is_a_mistake():
    def returns(run, batch, step):
        return loss_of(run, batch)

    def returns_named(run, batch):
        return {"loss": loss_of(run, batch)}

    def forgets(run, batch, step):
        loss_of(run, batch)

    for update, said in ((returns, "returns its loss"), (returns_named, "returns its loss"), (forgets, "in its first")):
        with pytest.raises(ConfigError, match=said) as caught:
            make(update).fit(data(), epochs=1, batch_size=10)
        assert "test_own_update.py:" in str(caught.value) and not getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize(
    ("fields", "accumulate"), [({"lr": 0.0}, 1), ({"lr": 0.1, "momentum": 0.9}, 3), ({"lr": 0.1, "foreach": False}, 1)]
)
def test_an_update_that_trains_is_left_alone(fields, accumulate):
    def update(run, batch, step):
        step.learn(run, loss_of(run, batch))

    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), **fields)
    trainer = etude.Trainer(model, optimizer=optimizer, update=update, accumulate=accumulate, quiet=True)
    run = trainer.fit(data(), epochs=1, batch_size=10)
    assert run.step == 4
    assert not [hook for hook in run.hooks if type(hook).__module__ == "etude.session.first_step.own_update"]


def test_changes_that_torch_does_not_count_are_seen():
    def by_hand(run, batch):
        loss = loss_of(run, batch)
        for param, grad in zip(run.model.parameters(), torch.autograd.grad(loss, run.model.parameters()), strict=True):
            param.data -= 0.1 * grad
        return loss.item()

    run = make(by_hand).fit(data(), epochs=3, batch_size=10, log="1step")
    assert run.events.latest["loss"] > 0


def test_a_refused_first_loss_is_no_forgotten_step():
    def update(run, batch, step):
        loss = loss_of(run, batch)
        step.learn(run, loss * float("nan") if run.step == 0 else loss)

    assert make(update, nonfinite="skip").fit(data(), epochs=1, batch_size=10).step == 4
