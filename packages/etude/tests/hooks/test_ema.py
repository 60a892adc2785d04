"""EMA and SWA: the average follows, evaluates, and leaves training alone."""

from __future__ import annotations

import pytest
import torch

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.ema import Ema, Swa
from etude.hooks.evaluate import Evaluate
from tests.hooks.conftest import small_run


def weights(run) -> list[torch.Tensor]:
    return [p.detach().clone() for p in run.model.parameters()]


def trained(*hooks, **options):
    history: list[list[torch.Tensor]] = []
    run = small_run([*hooks, FunctionHook(lambda run: history.append(weights(run)), "after_step")], **options)
    start = weights(run)
    fit(run)
    return run, [start, *history]


def test_the_average_follows_its_formula_and_training_does_not_notice():
    ema = Ema(0.2)
    _, history = trained(ema)
    expected = [w.clone() for w in history[0]]
    for now in history[1:]:
        expected = [0.8 * mean + 0.2 * w for mean, w in zip(expected, now, strict=True)]
    torch.testing.assert_close(ema.average.tensors, expected)
    torch.testing.assert_close(trained()[1][-1], history[-1], rtol=0, atol=0)


def test_it_moves_with_updates_only_when_gradients_are_accumulated():
    ema = Ema(0.5)
    trained(ema, accumulate=2)
    assert ema.updates == 4


def test_it_starts_as_a_copy_when_it_begins():
    ema = Ema(0.5, begin="1ep")
    _, history = trained(ema)
    expected = history[5]
    for now in history[6:]:
        expected = [(mean + w) / 2 for mean, w in zip(expected, now, strict=True)]
    torch.testing.assert_close(ema.average.tensors, expected)


def test_swa_is_the_mean_over_epochs():
    swa = Swa(begin="1ep")
    _, history = trained(swa, epochs_wanted=4)
    expected = [torch.stack(same).mean(0) for same in zip(history[8], history[12], history[16], strict=True)]
    torch.testing.assert_close(swa.average.tensors, expected)


def test_evaluation_sees_the_average_and_gives_the_weights_back():
    ema, seen = Ema(0.01), []
    evaluating = Evaluate()
    evaluating.every = "1ep"
    inside = FunctionHook(lambda run: seen.append(weights(run)), "before_eval_step")
    run, history = trained(ema, evaluating, inside)
    torch.testing.assert_close(seen[-1], ema.average.tensors)
    torch.testing.assert_close(weights(run), history[-1], rtol=0, atol=0)


def test_the_summary_names_the_average_only_where_it_was_evaluated():
    evaluated, aside = Ema(0.01), Ema(0.01, evaluate=False)
    assert evaluated.summary() == ""  # nothing is averaged before training
    trained(evaluated)
    trained(aside)
    assert "averaged by EMA" in evaluated.summary() and aside.summary() == ""


def test_the_weights_come_back_when_an_evaluation_fails():
    def broken(run):
        raise ValueError("no")

    evaluating = Evaluate()
    evaluating.every = "1ep"
    run = small_run([Ema(0.01), evaluating, FunctionHook(broken, "after_eval_step")], epochs_wanted=1)
    plain = small_run(epochs_wanted=1)
    fit(plain)
    with pytest.raises(ValueError):
        fit(run)
    torch.testing.assert_close(weights(run), weights(plain), rtol=0, atol=0)


@pytest.mark.parametrize("when", ["attached", "fresh"])
def test_a_state_in_any_order_continues_the_average(when):
    ema = Ema(0.2)
    trained(ema)
    state = ema.state_dict()
    state["average"] = dict(sorted(state["average"].items(), reverse=True))
    again = Ema(0.2)
    if when == "attached":
        run = small_run([again])
        again.load_state_dict(state)
    else:
        again.load_state_dict(state)
        run = small_run([again])
    again.before_run(run)
    torch.testing.assert_close(again.average.tensors, ema.average.tensors)
    assert again.updates == 8


def test_buffers_are_averaged_when_asked():
    ema = Ema(0.5, buffers=True)
    run, _ = trained(ema)
    averaged = ema.averaged_state_dict(run.model)
    assert not torch.equal(averaged["1.running_mean"], run.model[1].running_mean)
    assert torch.equal(averaged["1.num_batches_tracked"], run.model[1].num_batches_tracked)


def test_of_several_averages_one_is_evaluated():
    ema, swa, seen = Ema(0.01), Swa(evaluate=False), []
    evaluating = Evaluate()
    evaluating.every = "1ep"
    inside = FunctionHook(lambda run: seen.append(weights(run)), "before_eval_step")
    run, history = trained(ema, swa, evaluating, inside)
    torch.testing.assert_close(seen[-1], ema.average.tensors)
    torch.testing.assert_close(weights(run), history[-1], rtol=0, atol=0)
    with pytest.raises(ConfigError, match="only one average"):
        fit(small_run([Ema(), Swa()]))


def test_mistakes_are_told():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Ema(0.0)
    ema = Ema()
    small_run([ema])
    with pytest.raises(ConfigError, match=r"differ in 0\.bias"):
        ema.load_state_dict({"updates": 1, "average": {"0.weight": torch.zeros(4, 3)}})


def test_an_average_finds_its_tensors_by_itself_and_only_once():
    hook = Ema(0.5)
    run = small_run([hook])
    hook.before_run(run)
    assert len(hook.average.tensors) == 6
    tensors = hook._tensors
    hook.before_run(run)
    assert hook._tensors is tensors


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
