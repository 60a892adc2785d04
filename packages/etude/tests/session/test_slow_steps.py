from __future__ import annotations

import gc
import json
import time

import pytest
import torch
from torch import nn

import etude
from etude.core.run import Run
from etude.report.text import slow_lines
from etude.session.watch import slow_steps
from etude.session.watch.slow_steps import Overdue, Reading, Seen, SlowSteps

_NOTHING = Reading(0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0)


class Nap(etude.Hook):
    """Sleeps in one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, run: Run) -> None:
        if run.done == self.step:
            time.sleep(1.5)


class Drowsy(torch.utils.data.Dataset):
    """One of its samples takes long."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int):
        if index == 333:
            time.sleep(1.5)
        return torch.zeros(4), index % 2


def _worst(folder, data, workers: int = 0, **settings):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = etude.Trainer(
        model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), folder=folder, quiet=True, **settings
    )
    trainer.fit(data, steps=100, batch_size=4, workers=workers)
    status = json.loads((folder / "status.json").read_text())
    return status, status["slow"]["worst"][0]


def test_a_hook_that_sleeps_is_named_in_the_status_the_log_and_in_show(tmp_path):
    data = torch.utils.data.TensorDataset(torch.zeros(400, 4), torch.zeros(400).long())
    status, worst = _worst(tmp_path, data, hooks=[Nap(60)])
    assert (worst["step"], worst["cause"]) == (60, "hook Nap")
    assert worst["over"] > 1.4 and "test_slow_steps.py" in worst["why"]
    assert "slow: step 60 took" in (tmp_path / "log.txt").read_text()
    shown = slow_lines(status)
    assert shown[0].startswith("slow steps") and any("hook Nap" in line for line in shown)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_sample_is_named_by_its_number_and_the_collector_left_alone(tmp_path, workers):
    before = list(gc.callbacks)
    _, worst = _worst(tmp_path, Drowsy(), workers=workers)
    assert gc.callbacks == before
    assert worst["cause"] == "sample 333"


def _slow(**changes) -> SlowSteps:
    made = SlowSteps(Run(nn.Linear(1, 1), None, print), say=print)  # type: ignore[arg-type]
    made.median, made.limit, made._first = 0.01, 0.015, _NOTHING
    made._bases.append(Reading(10.0, 10.0, 0.1, 0.0, 1000, 0, 0.1, 0))
    return made


@pytest.mark.parametrize(
    ("spent", "seen", "cause"),
    [
        ({"graphs": 1}, {}, "recompilation"),
        ({"collected": 0.4}, {}, "garbage collection"),
        ({"waited": 0.4}, {}, "CPU taken by others"),
        ({"system": 0.3, "faults": 50_000}, {}, "page faults"),
        ({"blocks": 40_000, "system": 0.3}, {}, "disk"),
        ({}, {"on_disk": 0.4, "late": 0.45}, "disk"),
        ({"cpu": 0.0}, {"gap": 0.45}, "the process was stopped"),
        ({}, {"doing": {"waiting for other processes": 0.4}}, "another rank"),
        ({}, {"doing": {"checkpoint": 0.4}}, "a save"),
        ({}, {"doing": {"hook Log": 0.4}}, "logging"),
        ({}, {"doing": {"hook Mine": 0.4}}, "hook Mine"),
        ({}, {}, "unknown"),
    ],
)  # fmt: skip
def test_counters_and_looks_tell_the_cause(spent, seen, cause):
    slow, looked = _slow(), Seen()
    for name, value in seen.items():
        setattr(looked, name, value)
    base = slow._bases[-1]
    now = base._replace(when=base.when + 0.5, cpu=base.cpu + 0.5)
    now = now._replace(**{name: getattr(base, name) + value for name, value in spent.items()})
    job = Overdue(7, 10.0, 0.5, 0.0, 0.0, now, 8, None)
    assert slow._cause(job, 0.49, looked)[0] == cause


def test_an_evaluation_is_no_part_of_a_step_and_causes_are_summed_up():
    slow = _slow()
    slow._explain(Overdue(7, 10.0, 2.0, 0.0, 1.99, _NOTHING, 8, None))
    assert slow.record() == {}
    for step in range(100):
        record = {"step": step, "seconds": 0.3, "over": 0.1 + step / 1000, "cause": f"sample {step}", "why": "long"}
        slow._conclude(record)
    found = slow.record()
    assert list(found["causes"]) == ["slow samples"] and found["causes"]["slow samples"][0] == 100
    assert len(found["worst"]) == slow_steps._KEPT and found["worst"][0]["step"] == 99


@pytest.mark.parametrize("slow", [None, 3, [], {"causes": {}}, {"causes": {"a": 1}}, {"causes": {"a": ["x", "y"]}}])
def test_a_status_of_another_program_shows_no_slow_steps(slow):
    assert slow_lines({"slow": slow}) == []
