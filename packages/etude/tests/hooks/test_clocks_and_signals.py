"""What hooks measure by the clock, and what a signal does to a script of one's own."""

from __future__ import annotations

import warnings

import pytest

from etude.hooks.checkpoint import Checkpoint
from tests.hooks.conftest import small_run


def test_a_checkpoint_by_a_metric_that_no_evaluation_gives_is_warned_about():
    run = small_run()
    run.metrics = {"accuracy": 0.5}
    with pytest.warns(UserWarning, match="the evaluation gave no 'acuracy'; did you mean 'accuracy'"):
        Checkpoint(best="acuracy").after_eval(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint().after_eval(run)
        hook = Checkpoint(best="accuracy", best_k=2)
        for run.step, score in enumerate((0.5, 0.4, 0.4, 0.7)):
            run.metrics = {"accuracy": score}
            hook.after_eval(run)
            assert hook.has_new_best(run) == (run.step != 2)
    assert (hook.best_value, hook.best_step) == (0.7, 3) and hook.fresh_metrics(run) == {"accuracy": 0.7}
    run.step = 4
    assert hook.fresh_metrics(run) == {} and not hook.has_new_best(run)
    older = {key: value for key, value in hook.state_dict().items() if key not in ("top", "ranked_at")}
    other = Checkpoint(best="accuracy")
    other.load_state_dict(older)
    assert (other._top, other._ranked_at) == ([0.7], 3)
    other.load_state_dict(older | {"best_value": None})
    assert other._top == []
