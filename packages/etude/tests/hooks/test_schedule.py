"""The schedule hook: what the timeline says is what the optimizer gets."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.evaluate import Evaluate
from etude.hooks.schedule import Schedule, TorchSchedule
from etude.plan import Phase, Spec
from etude.plan import Schedule as SchedulePlan
from etude.units import parse
from tests.hooks.conftest import small_run


def plan(target: str, name: str, until: str | None = None, groups: tuple[str, ...] = (), **args) -> SchedulePlan:
    phase = Phase(curve=Spec(kind="schedule", name=name, args=args), until=parse(until) if until else None)
    return SchedulePlan(target=target, phases=(phase,), groups=groups)


def seen_by(read, *plans: SchedulePlan, **options) -> list:
    seen: list = []
    run = small_run([Schedule(plans), FunctionHook(lambda run: seen.append(read(run)), "before_update")], **options)
    fit(run)
    return seen


def group(run, key: str, index: int = 0):
    return run.optimizers[""].param_groups[index][key]


def test_the_learning_rate_of_each_step_is_base_times_factor():
    seen = seen_by(lambda run: group(run, "lr"), plan("lr", "Linear", "4step", **{"from": 0.0}))
    assert seen == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1])


def test_momentum_is_the_first_beta_and_beta2_the_second():
    betas = seen_by(
        lambda run: group(run, "betas"), plan("momentum", "Constant", factor=0.5), plan("beta2", "Constant", factor=0.1)
    )
    assert betas[0] == pytest.approx((0.45, 0.0999))


def sgd_with_groups(model):
    first, *rest = model.parameters()
    groups = [{"params": [first], "name": "head", "lr": 0.5}, {"params": rest, "name": "rest"}]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def test_groups_are_chosen_by_name_and_keep_their_own_base():
    def read(run):
        return [round(group(run, "lr", index), 6) for index in (0, 1)] + [group(run, "momentum")]

    chosen = seen_by(read, plan("lr", "Constant", groups=("head",), factor=0.1), optimizer=sgd_with_groups)
    assert chosen[0] == [0.05, 0.1, 0.9]
    both = seen_by(
        read, plan("lr", "Constant", factor=0.1), plan("momentum", "Constant", factor=0.5), optimizer=sgd_with_groups
    )
    assert both[0] == [0.05, 0.01, 0.45]


def test_a_learning_rate_that_is_a_tensor_stays_one():
    seen = seen_by(
        lambda run: group(run, "lr").clone(),
        plan("lr", "Linear", "4step"),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), foreach=False),
    )
    assert seen[2] == pytest.approx(0.05)


def test_attributes_of_the_model_are_scheduled():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.4))
    seen = seen_by(lambda run: run.model[1].p, plan("model.1.p", "Linear", "4step"), model=model)
    assert seen[:3] == pytest.approx([0.0, 0.1, 0.2])


def test_a_plateau_reacts_to_evaluations_and_has_a_state():
    hook = Schedule([plan("lr", "Plateau", metric="accuracy", mode="min", gamma=0.5, patience=0)])
    evaluating = Evaluate()
    evaluating.every = "1ep"
    run = small_run([hook, evaluating], epochs_wanted=4)
    run.evaluation.metrics = {}
    run.evaluation.end = lambda: {"accuracy": 1.0}
    fit(run)
    assert group(run, "lr") == pytest.approx(0.025)
    again = Schedule([plan("lr", "Plateau", metric="accuracy", mode="min", gamma=0.5, patience=0)])
    other = small_run([again])
    again.load_state_dict(hook.state_dict())
    again.before_step(other)
    assert group(other, "lr") == pytest.approx(0.1 * 0.5**3)


def test_loading_an_optimizer_does_not_change_the_base():
    hook = Schedule([plan("lr", "Constant", factor=0.5)])
    run = small_run([hook])
    fit(run)
    run.optimizers[""].load_state_dict(run.optimizers[""].state_dict())
    hook.after_load(run)
    hook.before_step(run)
    assert group(run, "lr") == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (plan("weight_dcay", "Constant"), "did you mean 'weight_decay'"),
        (plan("lr", "Constant", groups=("haed",)), "no parameter group is called haed"),
        (plan("model.nothing", "Constant"), "no attribute 'nothing'"),
        (plan("model.0.wieght", "Constant"), "no attribute '0.wieght'"),
        (plan("model.7.p", "Constant"), "no '7'"),
        (plan("model.training", "Constant"), "not a number"),
    ],
)
def test_a_target_that_is_not_there_is_told_before_training(wrong, says):
    with pytest.raises(ConfigError, match=says):
        small_run([Schedule([wrong])])


def test_a_plateau_without_its_metric_is_told():
    evaluating = Evaluate()
    evaluating.every = "1ep"
    with pytest.raises(ConfigError, match="no evaluation gives a metric 'acuracy'; did you mean 'accuracy'"):
        fit(small_run([Schedule([plan("lr", "Plateau", metric="acuracy")]), evaluating]))


@pytest.mark.parametrize(("by", "scheduled"), [("step", 4), ("epoch", 2)])
def test_a_torch_scheduler_is_stepped_by_updates_of_the_weights_or_by_epochs(by, scheduled):
    run = small_run(accumulate=2)  # two epochs of four batches: four updates
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizers[""], step_size=1)
    run.hooks.add(TorchSchedule(scheduler, by))
    fit(run)
    assert scheduler.last_epoch == scheduled


def test_a_torch_scheduler_is_stepped_at_the_end_of_an_epoch_that_ends_within_a_group():
    run = small_run(accumulate=3, batches=4)
    scheduler = torch.optim.lr_scheduler.StepLR(run.optimizers[""], step_size=1)
    run.hooks.add(TorchSchedule(scheduler, "epoch"))
    fit(run)
    assert scheduler.last_epoch == 2


def test_a_scheduler_of_torch_says_whether_it_moves_the_momentum_and_keeps_its_state():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    steady = TorchSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 3))
    moving = TorchSchedule(torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=9))
    assert (steady.moves_momentum, moving.moves_momentum, steady.by, moving.by) == (False, True, "epoch", "step")
    assert [list(hook.calls()) for hook in (steady, moving)] == [["after_epoch"], ["after_step"]]
    run = small_run()
    steady._step(run)
    again = TorchSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 3))
    again.load_state_dict(steady.state_dict())
    assert again.scheduler.last_epoch == 1


def test_a_scheduler_that_waits_is_given_the_result_that_it_watches():
    run = small_run()
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(run.optimizers[""], factor=0.5, patience=0)
    hook = TorchSchedule(scheduler)
    hook.attach(run)
    assert list(hook.calls()) == ["after_eval"] and hook.by == "loss"
    run.metrics = {"loss": 1.0}
    hook._step(run), hook._step(run)
    assert run.optimizers[""].param_groups[0]["lr"] == 0.05
    run.metrics = {"lost": 1.0}
    with pytest.raises(ConfigError, match="no evaluation gives a metric 'loss'; did you mean 'lost'"):
        hook._step(run)
    del run.data["val"]
    with pytest.raises(ConfigError, match="ReduceLROnPlateau watches 'loss', and there is no validation data"):
        hook.attach(run)


def test_a_schedule_without_plans_changes_nothing():
    hook, run = Schedule(), small_run()
    hook.before_step(run), hook.after_eval(run)
    hook.before_run(run), hook.before_step(run)
    assert hook.state_dict() == {"reactive": []} and not hook.moves_momentum


@pytest.mark.parametrize(
    ("make", "by", "message"),
    [
        (lambda one: lr_scheduler.StepLR(one, 1), "accuracy", "stepped by 'step' or by 'epoch', not by 'accuracy'"),
        (lambda one: lr_scheduler.ReduceLROnPlateau(one, mode="max"), "", "needs the metric that it watches"),
    ],
)
def test_a_scheduler_of_torch_that_would_never_be_right_is_refused(make, by, message):
    run = small_run()
    with pytest.raises(ConfigError, match=message):
        TorchSchedule(make(run.optimizers[""]), by)
    other = torch.optim.SGD(run.model.parameters())
    with pytest.raises(ConfigError, match="drives an optimizer that is not the trainer's"):
        TorchSchedule(lr_scheduler.StepLR(other, 1), among=run.optimizers.values())


def test_a_scheduler_that_waits_for_the_accuracy_to_fall_is_warned_about():
    (optimizer,) = small_run().optimizers.values()
    with pytest.warns(UserWarning, match="waits for the accuracy to fall"):
        TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer), "accuracy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer, mode="max"), "accuracy")
        plain = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer), among=[optimizer])
        TorchSchedule(lr_scheduler.StepLR(optimizer, 1), "step")
        assert TorchSchedule(lr_scheduler.StepLR(optimizer, 1)).by == "epoch"
        cycle = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=9)
        assert TorchSchedule(cycle).by == "step" and TorchSchedule(cycle).moves_momentum
    assert (made.by, plain.by, plain.moves_momentum) == ("accuracy", "loss", False)
    run = small_run()
    plain.attach(run)
    del run.data["val"]
    with pytest.raises(ConfigError, match="watches 'loss', and there is no validation data"):
        plain.attach(run)
    run.metrics = {"los": 1.0}
    with pytest.raises(ConfigError, match="no evaluation gives a metric 'loss'; did you mean 'los'"):
        plain._step(run)
