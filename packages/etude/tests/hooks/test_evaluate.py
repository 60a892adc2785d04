"""Tests of :mod:`etude.hooks.evaluate`."""

from __future__ import annotations

import math

import pytest

from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.evaluate import Evaluate
from etude.hooks.log import Log
from etude.hooks.timer import Timer
from tests.hooks.conftest import Keep, small_run
from tests.hooks.support import every, scripted


def test_evaluate_records_and_remembers_the_best():
    keep, hook = Keep(), every(Evaluate(), "1ep")
    run = small_run([hook], epochs_wanted=4)
    run.events.writers.append(keep)
    scripted(run, [0.5, 0.9, math.nan, 0.7])
    fit(run)
    assert [(r.step, r.epoch, r.split) for r in keep.records] == [
        (4, 0, "val"),
        (8, 1, "val"),
        (12, 2, "val"),
        (16, 3, "val"),
    ]
    assert hook.best == {"accuracy": (0.9, 8)} and hook.summary() == "best    accuracy 0.9000 (step 8)"
    again = Evaluate()
    again.load_state_dict(hook.state_dict())
    assert again.best == hook.best


def test_evaluate_measures_all_of_the_data_once_more_at_the_end():
    keep = Keep()
    run = small_run([every(Evaluate(), "3step")], epochs_wanted=2)
    run.events.writers.append(keep)
    run.data["val"].load_state_dict({"epoch": 0, "batch": 1, "samples": 32})
    fit(run)
    assert [record.step for record in keep.records] == [3, 6, 8]
    assert run.model.training and set(run.metrics) == {"loss", "accuracy"}


def test_evaluate_needs_its_data():
    run = small_run([Evaluate("vla")])
    with pytest.raises(ConfigError, match="did you mean 'val'"):
        fit(run)


def test_timer_tells_of_the_steps_since_the_last_record():
    keep = Keep()
    timer = Timer()
    run = small_run([timer, every(Log(), "4step"), every(Evaluate(), "1ep")], epochs_wanted=3)
    run.events.writers.append(keep)
    fit(run)
    records = [record for record in keep.records if record.split == "train"]
    assert len(records) == 3
    for record in records:
        values = record.values
        assert values["time/step"] > 0 and values["time/data"] > 0 and values["memory/megabytes"] > 10
        assert values["throughput/steps_per_second"] == pytest.approx(1 / (values["time/step"] + values["time/data"]))
    again = [float(gauge) for gauge in list(timer._gauges.values())[:3]]
    assert again == [records[-1].values[name] for name in list(timer._gauges)[:3]]
    assert timer.totals["evaluation"] > 0
    for name in ("step", "data"):  # a record has the mean of its four steps
        assert 4 * sum(record.values[f"time/{name}"] for record in records) == pytest.approx(timer.totals[name])


def test_records_of_one_step_say_the_same_epoch_whenever_they_are_written():
    """A log line of the last step comes after the run's last epoch is counted, its evaluation before."""
    run = small_run([every(Log(), "3step"), every(Evaluate(), "1ep")], epochs_wanted=2)
    keep = Keep()
    run.events.writers.append(keep)
    fit(run)
    assert [(r.step, r.epoch, r.split) for r in keep.records] == [
        (3, 0, "train"), (4, 0, "val"), (6, 1, "train"), (8, 1, "val"), (8, 1, "train"),
    ]  # fmt: skip


def test_an_evaluation_rewinds_its_data_and_names_a_metric_rather_than_a_loss():
    hook, run = Evaluate(), small_run()
    assert hook.summary() == ""
    rewound = []
    run.data["val"] = type("Data", (list,), {"rewind": lambda self: rewound.append(self)})(run.data["val"])
    hook.act(run)
    assert len(rewound) == 1 and hook.summary().startswith("best    accuracy ")
    hook.best = {"loss": (0.25, 3)}
    assert hook.summary() == "best    loss 0.2500 (step 3)"
