"""Tests of :mod:`etude.hooks.freeze`."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.hooks.freeze import Freeze
from etude.hooks.statistics import Statistics
from etude.hooks.timer import Timer
from etude.optim.clipping import Norm
from tests.hooks.conftest import small_run
from tests.hooks.support import every


def test_freeze_holds_parameters_and_statistics_for_a_while():
    seen = []

    def look(run):
        seen.append(
            (run.model[0].weight.clone().detach(), run.model[1].running_mean.clone(), run.model[2].weight.clone())
        )

    run = small_run([Freeze(["0", "1"], until="1ep"), FunctionHook(look, "after_step"), every(Evaluate(), "2step")])
    start = run.model[0].weight.detach().clone()
    fit(run)
    assert torch.equal(seen[3][0], start) and not torch.equal(seen[4][0], start)
    assert torch.equal(seen[3][1], torch.zeros(4)) and not torch.equal(seen[4][1], torch.zeros(4))
    assert not torch.equal(seen[0][2], seen[1][2])


def test_freeze_can_begin_later_and_leave_norms_running():
    run = small_run([Freeze("1", begin="2step", still=False)])
    run.model[0].weight.requires_grad_(False)
    fit(run)
    assert not run.model[1].weight.requires_grad and run.model[1].training
    assert not run.model[0].weight.requires_grad
    with pytest.raises(ConfigError, match="fits no parameter"):
        small_run([Freeze("encoder")])
    with pytest.raises(ConfigError, match="before it begins"):
        small_run([Freeze("0", begin="2ep", until="1ep")])


def test_freeze_finds_its_parameters_in_a_run_that_it_joins_late():
    run, frozen = small_run(), []
    run.hooks.add(Freeze("0"))
    run.hooks.add(FunctionHook(lambda run: frozen.append(run.model[0].weight.requires_grad), "before_update"))
    fit(run)
    assert frozen == [False] * 8


def test_no_tensor_is_read_between_log_lines():
    class Reads(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Reads.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    hooks = [Timer(), Ema(0.01), every(Statistics(per_layer=True), "1step"), Freeze("0", until="1ep")]
    run = small_run(hooks, clip=[Norm(1.0)], optimizer=lambda m: torch.optim.AdamW(m.parameters(), fused=True))
    with Reads():
        fit(run)
    assert Reads.count == 0


def test_freeze_says_what_it_holds_and_when():
    always, later = Freeze("0"), Freeze(["0", "1"], begin="2step", until="1ep")
    small_run([always, later])
    assert always.describe() == "0 (16 parameters)"
    assert later.describe() == "0, 1 (24 parameters, from step 3 to 4)"


@pytest.mark.parametrize(("begin", "until", "frozen"), [
    (None, None, [True] * 4), ("1step", "3step", [False, True, True, False]), (None, "2step", [True, True, False, False]),
])  # fmt: skip
def test_parameters_are_frozen_from_the_first_step_to_the_last_of_the_window(begin, until, frozen):
    hook = Freeze("0", begin=begin, until=until)
    run, seen = small_run([hook]), []
    for run.step in range(4):
        hook.before_step(run)
        first, norm, last = run.model
        assert first.training == first.weight.requires_grad and norm.training and last.weight.requires_grad
        seen.append(not first.weight.requires_grad)
    assert seen == frozen


def test_a_window_without_steps_is_refused():
    for until in ("2step", "1step"):
        with pytest.raises(ConfigError, match="before it begins"):
            small_run([Freeze("0", begin="2step", until=until)])
    small_run([Freeze("0", begin="2step", until="3step")])
