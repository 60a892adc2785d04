"""How a run counts, what of it is saved, and how it shows itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from etude.core.hook import Hook, HookTable
from etude.core.run import Counters, Run, named_hooks
from etude.errors import UserError


def test_a_run_shows_its_plan_or_that_it_is_a_run():
    run = Run(model=torch.nn.Linear(1, 1), update=None, loop=lambda run: None, total_steps=4)
    run.step, run.metrics = 2, {"accuracy": 0.123456}
    assert repr(run) == "<Run: Linear, step 2 of 4, accuracy 0.1235>"
    shown = run._repr_html_()
    assert "run" in shown and "2 of 4" in shown and "0.12346" in shown and "folder" not in shown
    run.plan = SimpleNamespace(name="digits")
    assert "digits" in run._repr_html_() and "digits" not in shown


def idle_run(**fields) -> Run:
    return Run(model=torch.nn.Linear(1, 1), update=None, loop=lambda run: None, **fields)


def test_the_first_reason_to_stop_stays():
    run = idle_run()
    run.stop("time is up", exit_code=75)
    run.stop("enough")
    assert (run.stopping, run.exit_code) == ("time is up", 75)


@pytest.mark.parametrize(
    ("stage", "within", "seen"),
    [
        # (steps done, epochs done, epoch of the last step, moment of a recorded value)
        ("", 0, (6, 2, 1, (6, 1))), ("", 2, (6, 2, 2, (6, 2))), ("step", 0, (6, 2, 1, (7, 2))),
        ("after_step", 0, (7, 2, 2, (7, 2))), ("after_epoch", 3, (6, 3, 2, (6, 2))),
    ],
)  # fmt: skip
def test_a_step_counts_when_it_is_done_and_a_record_names_the_epoch_of_its_step(stage, within, seen):
    run = idle_run(step=6, epoch=2, step_in_epoch=within, stage=stage)
    assert (run.done, run.epochs_done, run.last_epoch, run.events.moment()) == seen
    assert idle_run().last_epoch == 0


@pytest.mark.parametrize(("stage", "saved"), [("", (6, 2, 2)), ("after_step", (7, 2, 3)), ("after_epoch", (6, 3, 0))])
def test_saved_counters_say_where_a_resumed_run_continues(stage, saved):
    run = idle_run(step=6, epoch=2, step_in_epoch=2, stage=stage, metrics={"loss": 1.0})
    state = Counters(run).state_dict()
    assert (state["step"], state["epoch"], state["step_in_epoch"]) == saved and state["ended"] is None
    other = idle_run(stage="step")
    Counters(other).load_state_dict(state)
    assert (other.step, other.epoch, other.step_in_epoch) == saved
    assert other.stage == "" and other.metrics == {"loss": 1.0} and other.stopping is None


@pytest.mark.parametrize(("exit_code", "ended"), [(0, "no improvement"), (143, None)])
def test_a_run_that_a_hook_ended_stays_ended_and_one_that_a_signal_ended_continues(exit_code, ended):
    run, other = idle_run(), idle_run()
    run.stop("no improvement", exit_code=exit_code)
    Counters(other).load_state_dict(Counters(run).state_dict())
    assert other.stopping == ended


def test_hooks_of_the_same_name_are_numbered_and_parts_are_what_has_a_state():
    class Counter(Hook):
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    class Saves:
        def state_dict(self):
            return {}

    class Noise(Counter):
        pass

    run = idle_run(hooks=HookTable([Counter(), Noise(), Counter(), Counter()]), data={"train": [1], "val": Counter()})
    run.optimizers = {"": torch.optim.SGD(run.model.parameters()), "other": torch.optim.SGD(run.model.parameters())}
    run.extra_parts = {"mine": Counter(), "half": Saves()}
    assert [name for name, _ in named_hooks(run.hooks)] == ["Counter", "Noise", "Counter#2", "Counter#3"]
    assert list(run.parts()) == [
        "model", "optimizer", "optimizer.other", "data.val", "hook.Counter", "hook.Noise", "hook.Counter#2",
        "hook.Counter#3", "events", "mine", "counters",
    ]  # fmt: skip


def test_a_run_draws_what_it_has_recorded():
    pytest.importorskip("plotly")
    run, curve = idle_run(), [(1.0, 2.0), (2.0, 1.0)]
    with pytest.raises(UserError, match="nothing to plot yet"):
        run.plot("train/loss")
    run.events.writers.append(SimpleNamespace(curves={"lr": curve, "train/loss": curve, "val/accuracy": curve}))
    assert [line.name for line in run.plot().data] == ["train/loss", "val/accuracy"]
    assert [line.name for line in run.plot("lr").data] == ["lr"]
    with pytest.raises(UserError, match="no curve 'train/los'; did you mean 'train/loss'"):
        run.plot("lr", "train/los")
    run.events.writers[:] = [SimpleNamespace(curves={"lr": curve})]
    assert [line.name for line in run.plot().data] == ["lr"]


def test_a_run_shows_its_folder_and_no_total_where_it_is_unknown():
    run = idle_run(folder=Path("runs/a"), step=3)
    assert repr(run) == "<Run: Linear, step 3, runs/a>"
    assert "runs/a" in run._repr_html_() and "of" not in run._repr_html_().partition("3")[2].partition("<")[0]
