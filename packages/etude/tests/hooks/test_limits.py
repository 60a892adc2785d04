"""Hooks at the edges of their options: the first and the last step that counts, and what is not there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from etude.errors import ConfigError
from etude.hooks.checkpoint import Checkpoint
from tests.hooks.conftest import small_run


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
