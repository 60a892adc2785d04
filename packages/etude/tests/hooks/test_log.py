"""Tests of :mod:`etude.hooks.log`."""

from __future__ import annotations

import torch

from etude.core.loop import fit
from etude.events.console import format_record
from etude.events.record import Record
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule
from etude.schedules.curves import Linear
from etude.schedules.phases import schedules_from
from tests.hooks.conftest import Keep, small_run
from tests.hooks.support import every


def test_rates_of_groups_and_scheduled_momenta_are_recorded():
    def recorded(optimizer, *schedules):
        hooks, keep = [every(Log(), "4step"), Schedule(schedules)], Keep()
        run = small_run(hooks, epochs_wanted=1, optimizer=optimizer)
        run.events.writers.append(keep)
        fit(run)
        return keep.records[0].values

    def grouped(model):
        first, second = {"params": model[0].parameters(), "name": "all"}, {"params": model[2].parameters()}
        return torch.optim.SGD([first, second | {"name": "head", "lr": 0.5}], lr=0.1, momentum=0.9)

    def plain(model):
        return torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)

    (falling,) = schedules_from({"momentum": Linear(1.0, 0.5)})
    rates = recorded(grouped)
    assert (rates["lr"], rates["lr/head"]) == (0.1, 0.5) and "momentum" not in rates and "lr/all" not in rates
    assert 0.45 <= recorded(grouped, falling)["momentum"] < 0.9
    assert not {name for name in recorded(plain) if name.startswith(("lr/", "momentum"))}
    assert 0.45 <= recorded(plain, falling)["momentum"] < 0.9
    line = format_record(Record(4, 0, "train", rates, 0.0), {})
    assert "lr 0.1000" in line and "head" not in line


def test_momenta_that_differ_between_groups_are_recorded():
    def optimizer(model):
        first, *rest = model.parameters()
        groups = [{"params": [first], "name": "a", "momentum": 0.5}, {"params": rest, "name": "b"}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    run, keep = small_run(optimizer=optimizer), Keep()
    run.events.writers.append(keep)
    Log().act(run)
    assert keep.records[-1].values == {"lr": 0.1, "momentum": 0.5, "momentum/b": 0.9}
