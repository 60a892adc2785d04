"""Tests of :mod:`etude.hooks.statistics`."""

from __future__ import annotations

import pytest
import torch

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.hooks.log import Log
from etude.hooks.statistics import Statistics
from tests.hooks.conftest import Keep, small_run
from tests.hooks.support import every


def test_statistics_record_norms_and_distributions():
    keep = Keep()
    run = small_run(
        [every(Statistics(per_layer=True, histograms=True), "4step"), every(Log(), "4step")], epochs_wanted=1
    )
    run.events.writers.append(keep)
    run.hooks.add(FunctionHook(lambda run: norms.append(run.model[0].weight.detach().norm()), "before_update"))
    norms: list = []
    fit(run)
    values = keep.records[0].values
    assert values["norm/weight/0.weight"] == pytest.approx(float(norms[3]))
    assert values["norm/gradient"] > 0
    assert ("histogram", "gradient/2.bias") in [(kind, name) for kind, name, _ in keep.records[0].media]


def test_norms_are_those_of_the_last_step_before_a_record():
    keep, weights, gradients = Keep(), [], []
    run = small_run([every(Statistics(per_layer=True), "1step"), every(Log(), "4step")], epochs_wanted=1)
    run.events.writers.append(keep)

    def look(run) -> None:
        weights.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]).norm())
        gradients.append(run.model[0].weight.grad.norm())

    run.hooks.add(FunctionHook(look, "before_update"))
    fit(run)
    values = keep.records[0].values
    assert values["norm/weight"] == pytest.approx(float(weights[3])) != pytest.approx(float(weights[2]))
    assert values["norm/gradient/0.weight"] == pytest.approx(float(gradients[3])) != pytest.approx(float(gradients[2]))
    assert not keep.records[0].media


def test_statistics_of_a_model_without_gradients_are_empty():
    run, keep = small_run(), Keep()
    run.events.writers.append(keep)
    Statistics(per_layer=True).before_update(run)
    assert not run.events.flush(step=1, epoch=0).values
    for param in run.model[0].parameters():
        param.grad = torch.full_like(param, 2.0)
    Statistics().before_update(run)
    values = run.events.flush(step=1, epoch=0).values
    assert values["norm/gradient"] == pytest.approx(8.0) and set(values) == {"norm/gradient", "norm/weight"}
