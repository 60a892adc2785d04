"""One update: how gradients are scaled, clipped, kept over a save, and given to one optimizer of several."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude.core.forward import Forward
from etude.core.hook import FunctionHook
from etude.core.loop import fit, train_step
from etude.core.run import Run
from etude.core.stepping import Stepping
from etude.core.update import Step, read_losses
from etude.errors import ConfigError, UserCodeError
from etude.optim.clipping import Norm, Value
from tests.core.support import make_run


def numbers(model: nn.Module) -> list[float]:
    return torch.cat([param.detach().flatten() for param in model.parameters()]).tolist()


def two_parts(**options) -> Run:
    """A run whose model is two numbers, each with an optimizer of its own."""
    model = nn.ParameterDict({"a": nn.Parameter(torch.ones(())), "b": nn.Parameter(torch.ones(()))})
    optimizers = {name: torch.optim.SGD([model[name]], lr=0.5) for name in ("a", "b")}
    step = Step(Forward(model), optimizers, **options)
    return Run(model, step, lambda run: None, optimizers=optimizers, total_steps=8)


def test_one_optimizer_of_several_learns_alone_and_its_loss_is_recorded_under_its_name():
    run = two_parts()
    run.update.only("a").learn(run, run.model["a"] * run.model["b"])
    assert numbers(run.model) == [0.5, 1.0] and run.model["b"].grad is None
    assert run.events.flush(step=1, epoch=0).values == {"loss/a": 1.0}
    assert run.update.only("a") is run.update.only("a") is not run.update.only("b")
    with pytest.raises(ConfigError, match="no optimizer is called 'c'"):
        run.update.only("c")


def test_an_update_of_your_own_learns_from_one_loss_or_from_the_sum_of_several():
    run = two_parts()
    run.update.learn(run, run.model["a"] * 1.0)
    run.update.learn(run, {"one": run.model["a"] * 1.0, "two": run.model["a"] * 2.0})
    assert numbers(run.model) == [1.0 - 0.5 - 1.5, 1.0]
    with pytest.raises(UserCodeError, match=r"step.learn: the loss many is a tensor of shape \(2,\)"):
        run.update.learn(run, {"many": run.model["a"] * torch.ones(2)})


def test_parts_of_an_update_are_saved_with_it():
    run, other = two_parts(accumulate=2), two_parts(accumulate=2)
    run.update.only("a").learn(run, run.model["a"] * 1.0)
    state = run.update.state_dict()
    assert state["pending"] == 0 and "grads" not in state and state["parts"]["a"]["pending"] == 1
    other.update.load_state_dict(state)
    other.step = 1
    other.update.only("a").learn(other, other.model["a"] * 3.0)
    assert numbers(other.model) == [1.0 - 0.5 * (1.0 + 3.0) / 2, 1.0]


def test_gradients_of_an_incomplete_group_are_saved():
    whole, first, second = (make_run(4, accumulate=4) for _ in range(3))
    fit(whole)
    batches = list(first.data["train"])
    for batch in batches[:3]:
        train_step(first, batch)
    state = first.update.state_dict()
    assert state["pending"] == 3 and set(state["grads"]) == {"0", "1"} and "parts" not in state
    second.update.load_state_dict(state)
    second.step = 3
    train_step(second, batches[3])
    assert second.update.pending == 0 and "grads" not in second.update.state_dict()
    for batch in batches:
        train_step(second, batch)
    assert numbers(second.model) == numbers(whole.model)


def test_how_many_losses_were_bad_in_a_row_is_saved():
    run, other = make_run(), make_run()
    run.update._guard.bad = 2
    other.update.load_state_dict(run.update.state_dict())
    assert other.update.state_dict()["bad"] == 2


def test_the_scale_of_low_precision_is_saved():
    run, other = make_run(precision="fp16"), make_run(precision="fp16")
    fit(run)
    run.update._stepping.scaler.update(4.0)
    other.update.load_state_dict(run.update.state_dict())
    assert other.update._stepping.scaler.get_scale() == 4.0 and make_run().update.state_dict()["scaler"] == {}


def test_low_precision_learns_as_full_precision_does():
    full, low = make_run(clip=[Norm(0.01)]), make_run(clip=[Norm(0.01)], precision="fp16")
    fit(full), fit(low)
    assert numbers(low.model) == pytest.approx(numbers(full.model), abs=1e-3)
    assert low.update._stepping.scaler.get_scale() > 1.0


def test_values_of_gradients_are_clipped_and_the_norm_before_is_recorded():
    run = make_run(1, loss=lambda output, target: output.sum() * 100.0, clip=[Value(0.25)])
    run.max_epochs = run.total_steps = 1
    seen = []
    run.hooks.add(FunctionHook(lambda run: seen.extend(p.grad.abs().max() for p in run.model.parameters()), "before_update"))  # fmt: skip
    fit(run)
    assert [float(value) for value in seen] == [0.25, 0.25]
    assert run.events.flush(step=1, epoch=0).values["grad_norm"] > 100.0


def test_gradients_that_are_not_clipped_have_no_recorded_norm():
    run = make_run(1)
    fit(run)
    assert "grad_norm" not in run.events.flush(step=1, epoch=0).values


def test_a_run_without_an_end_accumulates_whole_groups():
    run = make_run(4, accumulate=3)
    run.total_steps = None
    seen = []
    run.hooks.add(FunctionHook(lambda run: seen.append(run.step), "before_update"))
    fit(run)
    assert seen == [2, 5] and run.update.pending == 2


def test_what_an_update_has_deferred_is_asked_of_those_that_defer():
    seen = []

    class Defers:
        def read_losses(self, run):
            seen.append(run)

    run = make_run()
    run.update = Defers()
    read_losses(run)
    run.update = lambda run, batch: None
    read_losses(run)
    assert seen == [run]


def test_a_way_to_step_changes_nothing_by_itself():
    loss = torch.ones(())
    assert Stepping().scale(loss) is loss and Stepping().state_dict() == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_loss_of_any_type_is_read_on_a_cpu(dtype):
    guard = make_run().update._guard
    for value, finite in ((1.0, True), (float("nan"), False), (float("inf"), False)):
        assert guard.is_finite(torch.tensor(value, dtype=dtype, requires_grad=True)) is finite
