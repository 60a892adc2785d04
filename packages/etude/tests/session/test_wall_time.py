"""Where the time goes: what a sample is accounted to, and what is said about it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

import etude
from etude.core.hook import Hook
from etude.data import Digits
from etude.session.watch import wall_time


class Sleepy(Hook):
    slept = 0.0

    def after_step(self, run):
        began = time.monotonic()
        time.sleep(0.03)
        self.slept += time.monotonic() - began


class SlowData(torch.utils.data.Dataset):
    """As slow as all the rest is, on any machine."""

    def __init__(self):
        self.left = time.monotonic()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(max(0.004, time.monotonic() - self.left))
        self.left = time.monotonic()
        return torch.zeros(64), 0


def fit(data, hooks=(), steps=20, **settings):
    model = torch.nn.Linear(64, 10)
    trainer = etude.Trainer(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss=torch.nn.CrossEntropyLoss(),
        hooks=hooks,
        folder="r",
        quiet=True,
    )
    trainer.fit(data, steps=steps, batch_size=8, **settings)
    return json.loads(Path("r/status.json").read_text())


def test_a_hook_is_accounted_by_its_name(workdir):
    sleepy = Sleepy()
    spent = fit(Digits("train"), [sleepy])["time"]
    assert spent["hook Sleepy"] > 0.5 * sleepy.slept > 0.2


class SlowUpdate(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.02)
        return super().step(closure)


class SlowMetric:
    name = "slow"

    def update(self, output, target):
        time.sleep(0.1)

    def compute(self):
        return 0.0

    def reset(self):
        pass


def test_update_and_evaluation_have_their_own_rows(workdir):
    model = torch.nn.Linear(64, 10)
    optimizer = SlowUpdate(model.parameters(), lr=0.1)
    trainer = etude.Trainer(
        model, optimizer=optimizer, loss=torch.nn.CrossEntropyLoss(), metrics=[SlowMetric()], folder="r", quiet=True
    )
    trainer.fit(Digits("train"), val=Digits("val"), steps=20, batch_size=64, validate="10step")
    spent = json.loads(Path("r/status.json").read_text())["time"]
    assert spent["update"] > 0.2 and spent["evaluation"] > 0.6, spent


def test_a_run_of_a_dialect_has_its_updates_accounted(workdir):
    from etude.session.watch.wall_time import doing, mark_updates

    seen, model = [], torch.nn.Linear(2, 1)
    run = etude.Run(model=model, update=None, loop=lambda run: None, stage="step")

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(doing(run))

    optimizer = Watched(model.parameters(), lr=0.1)
    marks = mark_updates(run)
    optimizer.step()
    seen.append(doing(run))
    marks.close()
    optimizer.step()
    assert seen == ["update", "forward/backward", "forward/backward"]


def test_waiting_for_data_is_noticed_and_answered_with_numbers(workdir):
    status = fit(SlowData(), steps=60)
    assert status["time"]["data"] > 0.2 * sum(status["time"].values())
    assert any("training waited for data" in text and "workers=2" in text for text in status["warnings"])


def test_advice_comes_only_above_a_fifth():
    assert wall_time.advice({"data": 1.9, "update": 8.1}, workers=0, batch_size=8) == ""
    early = wall_time.advice({"start": 10.0, "data": 4.0, "update": 6.0}, workers=2, batch_size=8)
    assert "20% of the time (4.0 s of 20.0 s)" in early  # as in the table of times
    said = wall_time.advice({"data": 4.0, "update": 6.0}, workers=2, batch_size=8)
    assert (
        "40% of the time (4.0 s of 10.0 s)" in said
        and "workers=4 for the training data (now 2)" in said
        and "larger than 8" in said
    )


def test_the_table_adds_small_shares_up():
    lines = wall_time.table({"update": 8.0, "data": 1.99, "hook A": 0.005, "hook B": 0.005})
    assert [line.split()[0] for line in lines] == ["update", "data", "other"] and "80%" in lines[0]
    assert wall_time.table({}) == []


def test_a_run_too_short_for_a_table_has_none():
    assert wall_time.table({"start": 0.04, "forward/backward": 0.02, "end": 0.01}) == []
    assert len(wall_time.table({"start": 0.4, "forward/backward": 0.2, "end": 0.1})) == 3


def test_the_steps_of_a_run_of_a_moment_are_accounted_too(workdir):
    class Brief(Hook):
        def after_step(self, run):
            time.sleep(0.002)

    spent = fit(Digits("train"), [Brief()], steps=20)["time"]
    assert spent.get("hook Brief"), spent


def test_status_tells_failures_and_warnings(workdir):
    class Breaks(Hook):
        def after_step(self, run):
            import warnings

            warnings.warn("something is odd", stacklevel=1)
            if run.step == 3:
                raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fit(Digits("train"), [Breaks()])
    status = json.loads(Path("r/status.json").read_text())
    assert status["state"] == "failed" and "no more" in status["error"] and "something is odd" in status["warnings"]
    assert status["step"] == 4
    facts = json.loads(Path("r/facts.json").read_text())
    assert facts["groups"][0]["numbers"] == 650 and "Breaks" in [hook["name"] for hook in facts["hooks"]]


def test_the_status_of_a_resumed_run_leaves_the_step_to_its_record(workdir):
    first = fit(Digits("train"), steps=1, checkpoint="1step")
    assert first["step"] == 1
    again = fit(Digits("train"), steps=2, checkpoint="1step", resume=True)
    assert again["state"] == "finished" and "step" not in again
