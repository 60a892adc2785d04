from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from etude.core.evaluation import Evaluation
from etude.core.forward import Forward, named_losses, takes
from etude.core.hook import POINTS, FunctionHook, Hook, Periodic
from etude.core.loop import Workflow, epochs, evaluate, fit, steps, train
from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.errors import ConfigError, Diverged, Stopped, UserCodeError
from etude.optim.clipping import Norm
from tests.core.support import make_run


class Trace(Hook):
    def __init__(self) -> None:
        self.seen: list = []

    def calls(self):
        return {point: lambda run, point=point: self.seen.append((point, run.epoch, run.step)) for point in POINTS}


def test_points_come_in_the_documented_order_and_see_their_own_numbers():
    trace = Trace()
    run = make_run(2, hooks=[trace])
    run.max_epochs, run.total_steps = 1, 2
    fit(run)
    step = ["before_step", "after_forward", "before_update", "after_step"]
    assert [point for point, *_ in trace.seen] == [
        "before_run", "before_train", "before_epoch", *step, *step, "after_epoch", "after_train", "after_run",
    ]  # fmt: skip
    assert ("after_step", 0, 1) in trace.seen and ("after_epoch", 0, 2) in trace.seen
    assert (run.epoch, run.step, run.step_in_epoch) == (1, 2, 0)


def test_after_train_comes_also_when_training_failed():
    def broken(run):
        raise ValueError("no")

    trace = Trace()
    run = make_run(hooks=[trace, FunctionHook(broken, "after_step")])
    with pytest.raises(ValueError):
        fit(run)
    assert [point for point, *_ in trace.seen][-2:] == ["on_error", "after_train"]


def test_a_loop_over_steps_starts_the_data_again_and_ends_in_the_middle_of_an_epoch():
    run = make_run(3, loop=steps)
    run.total_steps, run.max_epochs = 7, None
    fit(run)
    assert (run.step, run.epoch) == (7, 3)


def test_stop_ends_after_the_step_in_which_it_was_asked():
    run = make_run(hooks=[FunctionHook(lambda run: run.stop("enough") if run.step == 4 else None, "after_step")])
    fit(run)
    assert (run.step, run.stopping) == (5, "enough")


def test_a_workflow_takes_turns():
    seen = []

    class Evaluation:
        def losses(self, run, loader):
            seen.append(("val", run.epoch))

    run = make_run(loop=Workflow([("train", 2), ("val", 1)]))
    run.hooks.add(FunctionHook(lambda run: seen.append(("train", run.epoch)), "before_epoch"))
    run.data["val"] = []
    run.evaluation = Evaluation()
    run.max_epochs, run.total_steps = 4, None
    fit(run)
    assert seen == [("train", 0), ("train", 1), ("val", 2), ("train", 2), ("train", 3)]


def test_a_workflow_ends_at_its_last_step():
    run = make_run(4, loop=Workflow([("train", 1), ("val", 1)]))
    run.data["val"], run.evaluation = [], SimpleNamespace(losses=lambda run, loader: {})
    run.max_epochs, run.total_steps = None, 6
    fit(run)
    assert (run.step, run.epoch) == (6, 2)


@pytest.mark.parametrize(("stop_at", "position"), [(2, 0), (4, 1)])
def test_a_workflow_that_stops_takes_up_the_turn_that_it_did_not_finish(stop_at, position):
    stop = FunctionHook(lambda run: run.stop("enough") if run.done == stop_at else None, "after_step")
    run = make_run(4, loop=Workflow([("train", 1), ("val", 1)]), hooks=[stop])
    fit(run)
    assert run.step == stop_at and run.loop.state_dict() == {"position": position}


def test_a_loss_is_averaged_over_samples_and_not_over_batches():
    run = make_run(loss=lambda output, target: target.mean())
    evaluation = Evaluation(run.update.forward, {})
    batches = [{"input": torch.ones(n, 3), "target": torch.full((n,), value)} for n, value in ((3, 1.0), (1, 5.0))]
    assert evaluate(run, batches, evaluation) == {"loss": 2.0}


def test_several_losses_are_measured_one_by_one_and_in_sum():
    run = make_run()
    run.update.forward.losses = {
        "near": lambda output, target: target.mean(),
        "far": lambda output, target: target.max(),
    }
    batches = [{"input": torch.ones(2, 3), "target": torch.tensor([1.0, 3.0])}]
    assert evaluate(run, batches, Evaluation(run.update.forward, {})) == {
        "loss/near": 2.0,
        "loss/far": 3.0,
        "loss": 5.0,
    }


@pytest.mark.parametrize("accumulate", [1, 2, 3, 4])
def test_accumulation_averages_over_the_group_and_the_last_group_over_what_it_has(accumulate):
    run = make_run(5, accumulate=accumulate)
    run.max_epochs, run.total_steps = 1, 5
    reference = torch.nn.Linear(3, 2)
    reference.load_state_dict(run.model.state_dict())
    batches = list(run.data["train"])
    fit(run)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for start in range(0, 5, accumulate):
        group = batches[start : start + accumulate]
        for inputs, target in group:
            (torch.nn.functional.cross_entropy(reference(inputs), target) / len(group)).backward()
        optimizer.step()
        optimizer.zero_grad()
    for ours, theirs in zip(run.model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_loss_that_is_not_finite_stops_before_the_update():
    data = [(torch.ones(2, 3), torch.zeros(2, dtype=torch.long)), (torch.full((2, 3), float("nan")), torch.zeros(2, dtype=torch.long))]  # fmt: skip
    run = make_run(data=data)
    weights = []
    run.hooks.add(FunctionHook(lambda run: weights.append(run.model.weight.clone()), "after_step"))
    with pytest.raises(Diverged, match="step 2 .*nan.*no checkpoint was saved yet"):
        fit(run)
    assert torch.equal(run.model.weight, weights[-1])


def test_a_message_about_a_loss_that_is_not_finite_names_the_samples():
    inputs = torch.ones(9, 3)
    inputs[7] = float("nan")
    loader = Loader(TensorData(inputs, torch.zeros(9, dtype=torch.long)), batch_size=2)
    with pytest.raises(Diverged, match=r"not finite at step 4 \(loss nan\), batch ids 6, 7; no checkpoint"):
        fit(make_run(data=loader))


def test_gradients_that_always_overflow_end_a_run_of_low_precision():
    run = make_run(30, precision="fp16")
    run.model.weight.register_hook(lambda grad: grad * float("inf"))
    before = run.model.weight.detach().clone()
    with pytest.raises(Diverged, match=r"the loss scale has fallen to \S+ at step 50: the gradients overflow"):
        fit(run)
    assert torch.equal(run.model.weight, before)


def test_bad_batches_are_skipped_on_request_but_not_for_ever():
    good = (torch.ones(2, 3), torch.zeros(2, dtype=torch.long))
    bad = (torch.full((2, 3), float("inf")), torch.zeros(2, dtype=torch.long))
    run = make_run(data=[good, bad, good, bad], nonfinite="skip")
    fit(run)
    assert run.step == 8 and torch.isfinite(run.model.weight).all()
    with pytest.raises(Diverged, match="4 times in a row"):
        fit(make_run(data=[bad] * 9, nonfinite="skip", nonfinite_limit=3))


def test_every_loss_of_a_model_is_summed():
    class Both(torch.nn.Linear):
        def forward(self, x, y):
            return {"loss_a": super().forward(x).mean(), "loss_b": [super(Both, self).forward(x).sum()], "acc": y.sum()}

    model = Both(3, 2)
    run = make_run(model=model)
    run.update.forward.losses = {}
    fit(run)
    losses = run.outputs["losses"]
    assert set(losses) == {"loss_a", "loss_b"}
    torch.testing.assert_close(run.outputs["loss"], losses["loss_a"] + losses["loss_b"])


def test_a_model_without_a_loss_is_told_what_to_do():
    run = make_run()
    run.update.forward.losses = {}
    run.update.forward.model = torch.nn.Identity()
    run.data["train"] = [(torch.ones(2, 3),)]
    with pytest.raises(UserCodeError, match="the model returned no loss.*shape"):
        fit(run)


def test_clipping_bounds_and_records_the_norm():
    run = make_run(clip=[Norm(1e-3)])
    seen = []
    run.hooks.add(FunctionHook(lambda run: seen.append(torch.cat([p.grad.flatten() for p in run.model.parameters()]).norm()), "before_update"))  # fmt: skip
    fit(run)
    assert all(norm <= 1.001e-3 for norm in seen)
    assert "grad_norm" in run.events.flush(step=1, epoch=1).values


def test_bf16_autocast_runs_on_the_cpu():
    dtypes = []
    run = make_run(precision="bf16")
    run.hooks.add(FunctionHook(lambda run: dtypes.append(run.outputs["output"].dtype), "after_forward"))
    fit(run)
    assert set(dtypes) == {torch.bfloat16}


@pytest.mark.parametrize(("every", "expected"), [("3step", [3, 6, 8]), ("4step", [4, 8]), ("1ep", [4, 8]), (None, list(range(1, 9)))])  # fmt: skip
def test_a_periodic_hook_acts_when_due_and_once_more_at_the_end(every, expected):
    class Count(Periodic):
        def act(self, run):
            seen.append(run.done)

    seen: list = []
    hook = Count()
    hook.every = every
    fit(make_run(4, hooks=[hook]))
    assert seen == expected


def test_a_periodic_hook_does_nothing_in_a_run_without_a_step():
    class Count(Periodic):
        def act(self, run):
            seen.append(run.done)

    seen: list = []
    run = make_run(hooks=[Count()])
    run.max_epochs = run.total_steps = 0
    fit(run)
    assert (run.step, seen) == (0, [])


def test_a_bad_batch_is_skipped_where_there_is_nothing_to_roll_back_to():
    good = (torch.ones(2, 3), torch.zeros(2, dtype=torch.long))
    bad = (torch.full((2, 3), float("inf")), torch.zeros(2, dtype=torch.long))
    run = make_run(data=[good, bad, good], nonfinite="rollback")
    fit(run)
    assert run.step == 6 and torch.isfinite(run.model.weight).all()


def test_a_bad_batch_is_followed_by_a_rollback_and_a_skipped_one_is_not():
    class Store:
        rolled = 0

        def rollback(self, run):
            self.rolled += 1

    bad = (torch.full((2, 3), float("inf")), torch.zeros(2, dtype=torch.long))
    for policy, rolled in (("rollback", 2), ("skip", 0)):
        run = make_run(data=[bad], nonfinite=policy)
        run.store = Store()
        fit(run)
        assert run.store.rolled == rolled


def test_on_a_cpu_every_loss_is_read_and_nothing_waits():
    update = make_run(nonfinite="rollback", accumulate=2).update
    assert update.waits == "" and update._guard.peeks


@pytest.mark.parametrize(
    ("given", "loss"),
    [
        (lambda x: x.mean(), 2.0), (lambda x: {"loss": x}, 2.0), (lambda x: {"loss": x.sum(), "loss_b": [x, x[:1]]}, 7.0),
        (lambda x: {"loss": x.sum(), "size": x.max(), "no_loss": None}, 4.0),
    ],
)  # fmt: skip
def test_a_loss_of_several_numbers_is_averaged_and_several_losses_are_summed(given, loss):
    losses = named_losses(given(torch.tensor([1.0, 3.0])))
    assert float(sum(losses.values())) == loss


@pytest.mark.parametrize(
    ("batch", "target"),
    [
        ((1, 2), 2), ([1, 2, 3], 3), ((1,), None), (torch.ones(2), None), ({"x": 1, "label": 5}, 5), ({"x": 1}, None),
    ],
)  # fmt: skip
def test_the_target_is_the_last_of_a_batch_or_has_a_name(batch, target):
    assert Forward(torch.nn.Identity(), {}, target_keys=("target", "label")).target(batch) == target


def test_a_model_takes_what_its_forward_can_be_called_with():
    class Two(torch.nn.Module):
        def forward(self, x, y, *, scale=1): ...

    assert takes(Two(), (1, 2)) and takes(Two(), {"x": 1, "y": 2}) and takes(Two(), [1, 2], scale=3)
    assert not takes(Two(), 1) and not takes(Two(), {"x": 1}) and not takes(Two(), (1, 2), size=3)
    assert takes(torch.nn.DataParallel(Two()), (1, 2)) and not takes(torch.nn.DataParallel(Two()), 1)


def test_a_loop_over_epochs_ends_with_its_last_step():
    run = make_run(4)
    run.max_epochs, run.total_steps = 5, 6
    fit(run)
    assert (run.step, run.epoch) == (6, 2)
    run = make_run(4)
    run.max_epochs, run.total_steps = 5, 8
    fit(run)
    assert (run.step, run.epoch) == (8, 2)


@pytest.mark.parametrize(("names", "recorded"), [("a", {"loss"}), ("ab", {"loss", "loss/a", "loss/b"})])
def test_each_of_several_losses_is_recorded_and_one_alone_once(names, recorded):
    run = make_run(1)
    run.update.forward.losses = {name: torch.nn.CrossEntropyLoss() for name in names}
    run.update(run, run.data["train"][0])
    assert set(run.events.flush(step=1, epoch=0).values) == recorded


def test_a_run_is_driven_as_it_wants_or_as_usual():
    seen = []
    run = make_run()
    run.train_fn = seen.append
    train(run)
    assert seen == [run] and run.step == 0
    run.train_fn = None
    train(run)
    assert run.step == 8


def test_a_stop_at_the_very_end_is_an_error_that_hooks_see():
    def stops(run):
        raise Stopped("stopped by Ctrl-C", 130)

    trace = Trace()
    run = make_run(1, hooks=[FunctionHook(stops, "after_train", priority=60), trace])
    with pytest.raises(Stopped):
        fit(run)
    points = [point for point, *_ in trace.seen]
    assert points[-2:] == ["after_train", "on_error"] and isinstance(run.error, Stopped)


def test_hooks_behind_one_that_stops_the_run_see_the_end_too():
    class Stops(Hook):
        priority = 10

        def after_train(self, run):
            raise Stopped("SIGTERM in the evaluation after step 4", 143)

    seen = []
    last = FunctionHook(lambda run: seen.append("after_train"), "after_train", priority=90)
    with pytest.raises(Stopped, match="SIGTERM"):
        train(make_run(hooks=[Stops(), last]))
    assert seen == ["after_train"]


def test_a_loop_over_steps_needs_a_number_and_batches():
    run = make_run(loop=steps)
    run.total_steps = None
    with pytest.raises(ConfigError, match="needs a number of steps"):
        fit(run)
    run = make_run(loop=steps)
    run.data["train"], run.steps_per_epoch = [], None
    with pytest.raises(ConfigError, match="the training data gave no batch"):
        fit(run)


@pytest.mark.parametrize("flow", [[("val", 1)], [("train", 0)], []])
def test_a_workflow_without_training_is_refused(flow):
    with pytest.raises(ConfigError, match="needs a \\('train', n\\) with n > 0"):
        Workflow(flow)


def test_a_workflow_continues_with_its_turn_and_a_save_at_the_end_of_an_epoch_counts_it():
    saved = []
    run = make_run(2, loop=Workflow([("train", 2), ("val", 1)]))
    run.hooks.add(FunctionHook(lambda run: saved.append(run.loop.state_dict()["position"]), "after_epoch"))
    run.hooks.add(FunctionHook(lambda run: saved.append(run.loop.state_dict()["position"]), "before_epoch"))
    run.max_epochs = 2
    fit(run)
    assert saved == [0, 1, 1, 2] and run.loop.state_dict() == {"position": 2}
    again = Workflow([("train", 2), ("val", 1)])
    again.load_state_dict({"position": 2})
    assert again.state_dict() == {"position": 2}


@pytest.mark.parametrize("loop", [epochs, steps])
def test_a_run_that_was_saved_after_the_last_step_of_an_epoch_owes_its_end_alone(loop):
    trace = Trace()
    run = make_run(4, loop=loop, hooks=[trace])
    run.step, run.step_in_epoch, run.stopping = 4, 4, "enough"
    fit(run)
    points = [
        point for point, *_ in trace.seen if point not in ("before_run", "before_train", "after_train", "after_run")
    ]
    assert points == ["after_epoch"] and (run.epoch, run.step, run.step_in_epoch) == (1, 4, 0)


def test_the_rest_of_an_epoch_is_trained_and_its_beginning_is_not_told_again():
    trace = Trace()
    run = make_run(4, hooks=[trace])
    run.data["train"] = iter(list(run.data["train"])[:4])
    run.step, run.step_in_epoch, run.max_epochs = 1, 1, 1
    fit(run)
    points = [point for point, *_ in trace.seen]
    assert points.count("before_step") == 3 and "before_epoch" not in points and points.count("after_epoch") == 1


def test_data_learns_the_epoch_and_may_have_no_length():
    class Data(list):
        seen: list = []

        def set_epoch(self, epoch):
            self.seen.append(epoch)

    run = make_run(3)
    run.data["train"], run.steps_per_epoch, run.total_steps = Data(run.data["train"]), None, None
    fit(run)
    assert Data.seen == [0, 1] and run.step == 6


@pytest.mark.parametrize(("training", "modes"), [(True, ["eval", "train"]), (False, ["eval"])])
def test_model_and_optimizers_evaluate_in_their_own_mode_and_return_to_the_one_before(training, modes):
    seen = []

    class Free(torch.optim.SGD):
        def eval(self):
            seen.append("eval")

        def train(self):
            seen.append("train")

    class Half(torch.optim.SGD):
        def eval(self):
            seen.append("half")

    run = make_run()
    run.optimizers = {"free": Free(run.model.parameters()), "half": Half(run.model.parameters())}
    held = []
    run.store = SimpleNamespace(snapshot_before_evaluation=held.append)
    run.model.train(training)
    look = FunctionHook(lambda run: held.append((run.model.training, torch.is_grad_enabled())), "before_eval_step")
    run.hooks.add(look)
    run.acting = "outer"
    evaluate(run, list(run.data["train"])[:1], Evaluation(run.update.forward, {}))
    assert seen == modes and held == [run, (False, False)]
    assert run.model.training == training and run.acting == "outer"


@pytest.mark.parametrize(("stage", "kept"), [("after_step", True), ("after_epoch", False)])
def test_hooks_after_an_evaluation_within_a_step_see_the_step(stage, kept):
    run = make_run()
    run.batch, run.outputs, run.stage = "batch", "outputs", stage
    evaluate(run, run.data["train"], Evaluation(run.update.forward, {}))
    assert ((run.batch, run.outputs) == ("batch", "outputs")) == kept


def test_an_error_of_a_step_says_which_it_was():
    def broken(output, target):
        raise ValueError("no")

    with pytest.raises(ValueError) as caught:
        fit(make_run(loss=broken))
    assert caught.value.etude_step == "model Linear, step 1" and "loss loss, step 1" in caught.value.etude_where


def test_one_good_loss_ends_a_row_of_bad_ones():
    good = (torch.ones(2, 3), torch.zeros(2, dtype=torch.long))
    bad = (torch.full((2, 3), float("inf")), torch.zeros(2, dtype=torch.long))
    run = make_run(data=[bad, bad, good, bad, bad], nonfinite="skip", nonfinite_limit=2)
    run.max_epochs, run.total_steps = 1, 5
    fit(run)
    assert run.step == 5 and run.update.state_dict()["bad"] == 2
    assert run.events.flush(step=5, epoch=0).values["nonfinite"] == 1.0
    with pytest.raises(Diverged, match=r"at step 3 \(loss nan\), 3 times in a row"):
        fit(make_run(data=[bad] * 3, nonfinite="skip", nonfinite_limit=2))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bad_loss_is_found_in_any_precision(precision):
    run = make_run(loss=lambda output, target: output.sum() * float("nan"), precision=precision)
    with pytest.raises(Diverged, match="not finite at step 1 "):
        fit(run)
