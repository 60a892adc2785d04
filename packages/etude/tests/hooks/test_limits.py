"""Hooks at the edges of their options: the first and the last step that counts, and what is not there."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from etude import torch_private
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.alerts import Alerts
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.early_stop import EarlyStop, TimeBudget
from etude.hooks.ema import Ema, Swa
from etude.hooks.evaluate import Evaluate
from etude.hooks.freeze import Freeze
from etude.hooks.log import Log
from etude.hooks.profiler import Profiler
from etude.hooks.schedule import Schedule, TorchSchedule
from etude.hooks.statistics import Statistics
from etude.hooks.upkeep import Compiled, EmptyCache
from tests.hooks.conftest import Keep, small_run


@pytest.mark.parametrize(("graphs", "losses", "main", "told"), [
    (0, 0, True, True), (1, 0, True, False), (1, 1, True, True), (2, 1, True, False), (0, 0, False, False),
])  # fmt: skip
def test_a_model_of_which_nothing_was_compiled_is_warned_about_once(recwarn, monkeypatch, graphs, losses, main, told):
    count = [5]
    monkeypatch.setattr(torch_private, "graphs", lambda: count[0])
    hook, run = Compiled(losses), SimpleNamespace(world=SimpleNamespace(is_main=main))
    hook.after_step(run)  # without a beginning there is nothing to compare
    hook.before_train(run)
    count[0] += graphs
    hook.after_step(run), hook.after_step(run)
    assert [("compiled nothing" in str(one.message)) for one in recwarn] == [True] * told


def test_the_cache_is_emptied_where_there_is_an_accelerator(monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("cuda"))
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append("mps"))
    for cuda, mps in ((True, True), (True, False), (False, True), (False, False)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        EmptyCache().empty(None)
    assert emptied == ["cuda", "cuda", "mps"]
    assert list(EmptyCache("after_eval").calls()) == ["after_eval"] and list(EmptyCache().calls()) == ["after_epoch"]
    with pytest.raises(ConfigError, match="EmptyCache: no point is called 'after_epok'"):
        EmptyCache(["after_step", "after_epok"])


@pytest.mark.parametrize("make", [
    lambda: EarlyStop(patience=0), lambda: Profiler(first=0), lambda: Profiler(steps=0), lambda: Freeze([]),
    lambda: Ema(0.0), lambda: Ema(1.1), lambda: TimeBudget("2ep"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_options_may_be_at_their_limits():
    assert EarlyStop(patience=1).patience == Profiler(first=1, steps=1).steps == Ema(1.0).momentum == 1


@pytest.mark.parametrize(("metric", "target", "value", "stops"), [
    ("loss", 0.5, 0.5, True), ("loss", 0.5, 0.6, False), ("accuracy", 0.5, 0.5, True), ("accuracy", 0.5, 0.4, False),
])  # fmt: skip
def test_a_target_is_reached_when_it_is_met(metric, target, value, stops):
    run = small_run()
    run.metrics = {metric: value}
    EarlyStop(metric, target=target).after_eval(run)
    assert (run.stopping == f"{metric} has reached {value:g}") == stops and (run.stopping is None) != stops


def test_patience_counts_evaluations_since_the_last_improvement():
    hook, run = EarlyStop("accuracy", patience=2, by=0.1), small_run()
    for value, waited in ((0.5, 0), (0.6, 1), (0.71, 0), (0.7, 1)):
        run.metrics, run.step = {"accuracy": value}, run.step + 1
        hook.after_eval(run)
        assert hook.waited == waited and run.stopping is None
    again = EarlyStop("accuracy", patience=2, by=0.1)
    again.load_state_dict(hook.state_dict())
    again.after_eval(run)
    assert run.stopping == "accuracy has not improved since step 3" and run.exit_code == 0


@pytest.mark.parametrize(("total", "left"), [(True, 4.0), (False, 10.0)])
def test_a_time_budget_counts_earlier_processes_only_in_total(total, left):
    now = [100.0]
    run = small_run()
    run.clock = lambda: now[0]
    run.peers = object()  # ranks begin together
    hook = TimeBudget("10s", total=total)
    hook.load_state_dict({"seconds": 6.0})
    hook.before_train(run)
    now[0] += left - 0.5
    hook.after_step(run)
    assert run.stopping is None and hook.state_dict()["seconds"] == pytest.approx(9.5)
    now[0] += 0.5
    hook.after_step(run)
    assert run.stopping == "the time budget of 10 s is used up" and run.exit_code == 75


@pytest.mark.parametrize("settle", [2, 4])
def test_a_loss_is_compared_after_as_many_as_settle(settle):
    run, keep = small_run(), Keep()
    run.events.writers.append(keep)
    hook = Alerts(deviations=0.0, settle=settle)
    hook.before_train(run), hook.before_train(run)
    assert len(run.events.writers) == 2
    for step in range(settle):
        run.events.write({"loss": 1.0}, step=step, epoch=0, split="train")
    assert hook.seen == settle and (hook.mean, hook.variance) == (1.0, 0.0)
    run.events.write({"loss": 1.1}, step=settle, epoch=0, split="train")
    with pytest.warns(UserWarning, match="the loss has jumped to 2 at step 0; 1.0"):
        run.events.write({"loss": 2.0}, step=settle, epoch=0, split="train")
    assert [record.values for record in keep.records if record.split == "event"] == [{"loss_spike": 2.0}]


def test_usual_losses_are_a_mean_and_a_variance_and_leave_out_what_is_not_finite():
    run, hook = small_run(), Alerts(settle=100)
    hook.before_train(run)
    for loss in (1.0, 3.0, math.nan, math.inf):
        run.events.write({"loss": loss}, step=1, epoch=0, split="train")
    assert (hook.mean, hook.variance, hook.seen) == (2.0, 1.0, 2)
    for _ in range(18):
        run.events.write({"loss": 2.0}, step=1, epoch=0, split="train")
    run.events.write({"loss": 12.0}, step=1, epoch=0, split="train")
    assert hook.mean == pytest.approx(3.0)


def test_a_step_is_slow_from_a_second_and_many_times_the_usual_on(monkeypatch):
    run, keep, now = small_run(), Keep(), [0.0]
    run.events.writers.append(keep)
    monkeypatch.setattr("etude.hooks.alerts.perf_counter", lambda: now[0])
    hook = Alerts(times=4.0, settle=2)

    def step(seconds: float) -> None:
        hook.before_step(run)
        now[0] += seconds
        hook.after_step(run)

    for seconds in (0.125, 0.125, 1.0, 0.5):
        step(seconds)
    assert not keep.records
    with pytest.warns(UserWarning, match="step 0 took 50 s; 0.4"):
        step(50.0)
    assert [record.values for record in keep.records] == [{"time/slow_step": 50.0}]


@pytest.mark.parametrize(("weights_only", "acted_at", "saves"), [
    (True, 5, [{}]), (False, 5, []), (False, 3, [{"metrics": {}, "weights_only": False}]),
])  # fmt: skip
def test_after_a_signal_the_steps_since_the_last_checkpoint_are_saved(weights_only, acted_at, saves):
    seen: list = []
    run = small_run()
    run.store = SimpleNamespace(save=lambda run, **options: seen.append(options))
    hook = Checkpoint(weights_only=weights_only, save_last=False)
    hook.load_state_dict({**hook.state_dict(), "acted_at": acted_at})
    run.step, run.exit_code = 5, 143
    hook.after_train(run)
    assert seen == saves
    for name, value in (("exit_code", 0), ("error", ValueError()), ("step", 0), ("store", None)):
        before = getattr(run, name)
        setattr(run, name, value)
        Checkpoint(weights_only=True).after_train(run)
        setattr(run, name, before)
    assert seen == saves


def test_a_checkpoint_by_a_metric_needs_an_evaluation_that_gives_it():
    run = small_run()
    Checkpoint(best="accuracy").attach(run), Checkpoint(best="loss/a").attach(run), Checkpoint().attach(run)
    with pytest.raises(ConfigError, match="no metric 'acuracy'; did you mean 'accuracy'"):
        Checkpoint(best="acuracy").attach(run)
    run.evaluation.metrics = {"other": SimpleNamespace()}
    Checkpoint(best="acuracy").attach(run)
    del run.data["val"]
    with pytest.raises(ConfigError, match="'accuracy' needs an evaluation, and there is no data.val"):
        Checkpoint(best="accuracy").attach(run)


@pytest.mark.parametrize(("forever", "per_epoch", "steps"), [
    (None, 4, 0), ("3step", None, 3), ("2ep", None, 0), ("2ep", 4, 8),
])  # fmt: skip
def test_checkpoints_for_ever_are_counted_in_steps(forever, per_epoch, steps):
    rule = Checkpoint(keep=2, best="loss", best_k=3, forever=forever).retention(per_epoch)
    assert (rule.last, rule.best, rule.mode, rule.forever) == (2, 3, "min", steps)
    assert Checkpoint().retention(None).best == 0


def test_the_best_scores_are_remembered_up_to_their_number():
    hook, run = Checkpoint(best="accuracy", best_k=2), small_run()
    assert not hook.has_new_best(run)
    for step, value, ranked in ((1, 0.5, True), (2, 0.4, True), (3, 0.3, False), (4, 0.45, True), (5, 0.45, False)):
        run.step, run.metrics = step, {"accuracy": value}
        hook.after_eval(run)
        assert hook.has_new_best(run) == ranked and hook.fresh_metrics(run) == {"accuracy": value}
    assert (hook.best_value, hook.best_step) == (0.5, 1)
    again = Checkpoint(best="accuracy", best_k=2)
    again.load_state_dict(hook.state_dict())
    assert again.state_dict() == hook.state_dict() and again.state_dict()["top"] == [0.5, 0.45]
    old = {key: value for key, value in hook.state_dict().items() if key not in ("top", "ranked_at")}
    again.load_state_dict(old)
    assert again.state_dict()["top"] == [0.5] and again.state_dict()["ranked_at"] == 1
    run.step = 6
    assert hook.fresh_metrics(run) == {}


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


def test_an_evaluation_rewinds_its_data_and_names_a_metric_rather_than_a_loss():
    hook, run = Evaluate(), small_run()
    assert hook.summary() == ""
    rewound = []
    run.data["val"] = type("Data", (list,), {"rewind": lambda self: rewound.append(self)})(run.data["val"])
    hook.act(run)
    assert len(rewound) == 1 and hook.summary().startswith("best    accuracy ")
    hook.best = {"loss": (0.25, 3)}
    assert hook.summary() == "best    loss 0.2500 (step 3)"


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


def test_averages_that_do_not_fit_the_model_are_refused():
    hook, run = Ema(), small_run()
    hook.load_state_dict({"updates": 3, "average": {"other": torch.ones(1)}})
    with pytest.raises(ConfigError, match="Ema: the checkpoint and the model differ in 0.bias"):
        hook.before_run(run)


def test_a_mean_gives_each_epoch_the_same_weight():
    hook = Swa()
    seen = []
    for hook.updates in range(4):
        seen.append(hook.weight())
    assert seen == [1.0, 0.5, 1 / 3, 0.25]


def test_an_average_that_has_not_begun_is_the_weights():
    hook, run = Ema(begin="3step"), small_run()
    hook.before_run(run)
    assert hook.average is None and hook.summary() == ""
    assert all(torch.equal(value, run.model.state_dict()[name]) for name, value in hook.averaged_state_dict(run.model).items())  # fmt: skip
    for run.step, begun in ((1, False), (2, False), (3, True)):
        hook.after_step(run)
        assert (hook.average is not None) == begun
    assert hook.updates == 1


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


def test_a_profile_without_a_folder_is_written_nowhere(elsewhere):
    run = small_run([hook := Profiler(first=1, steps=1)])
    fit(run)
    assert hook._traced and hook._profile is None


def test_momenta_that_differ_between_groups_are_recorded():
    def optimizer(model):
        first, *rest = model.parameters()
        groups = [{"params": [first], "name": "a", "momentum": 0.5}, {"params": rest, "name": "b"}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    run, keep = small_run(optimizer=optimizer), Keep()
    run.events.writers.append(keep)
    Log().act(run)
    assert keep.records[-1].values == {"lr": 0.1, "momentum": 0.5, "momentum/b": 0.9}
