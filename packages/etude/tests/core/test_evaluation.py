"""What an evaluation gives to its metrics, and what it says when one refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from etude.core.evaluation import Evaluation, metric_name, require_metric
from etude.core.forward import Forward
from etude.core.loop import evaluate
from etude.core.run import Run
from etude.errors import ConfigError, UserCodeError
from etude.metrics.classes import Accuracy
from etude.metrics.values import MAE, Mean
from etude.plan import Place, Spec


def made(model: nn.Module, loss: nn.Module | None = None, **metrics: object) -> tuple[Run, Evaluation]:
    forward = Forward(model, {"loss": loss} if loss else {})
    run = Run(model=model, update=None, loop=lambda run: None)
    return run, Evaluation(forward, metrics)


class Seen:
    """Keeps the shapes of what it gets. Not of the engine, so it gets the output as it is."""

    def __init__(self) -> None:
        self.shapes: list = []

    def reset(self) -> None:
        self.shapes.clear()

    def update(self, output, target) -> None:
        self.shapes.append(tuple(output.shape))

    def compute(self) -> float:
        return float(len(self.shapes))


def test_a_column_of_outputs_is_compared_with_a_row_of_targets_sample_by_sample():
    model = nn.Linear(1, 1)
    nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
    run, evaluation = made(model, lambda output, target: output.mean(), mae=MAE())
    x = torch.tensor([[1.0], [2.0], [4.0]])
    assert evaluate(run, [(x, x[:, 0] + 1.0)], evaluation)["mae"] == 1.0

    class Theirs(Seen):
        __module__ = "torchmetrics.regression"

    run, evaluation = made(model, lambda output, target: output.mean(), theirs=(theirs := Theirs()))
    evaluate(run, [(x, x[:, 0]), (x, x)], evaluation)
    assert theirs.shapes == [(3,), (3, 1)]


def test_scores_of_classes_keep_their_shape_and_so_does_the_output_for_a_metric_of_your_own():
    model, seen = nn.Linear(1, 1, bias=False), Seen()
    run, evaluation = made(model, nn.BCEWithLogitsLoss(), seen=seen)
    evaluate(run, [(torch.ones(3, 1), torch.ones(3, 1))], evaluation)
    assert seen.shapes == [(3, 1)]
    with pytest.raises(UserCodeError, match=r"metric mae, of \(3, 1\) and \(2,\): ValueError: an output"):
        run, evaluation = made(model, lambda output, target: output.sum(), mae=MAE())
        evaluate(run, [(torch.ones(3, 1), torch.ones(2))], evaluation)
    run, evaluation = made(nn.Identity(), lambda output, target: output.sum(), accuracy=Accuracy())
    assert evaluate(run, [(torch.eye(2), torch.tensor([0, 1]))], evaluation)["accuracy"] == 1.0


def test_a_mean_of_outputs_needs_no_target():
    run, evaluation = made(nn.Identity(), mean=Mean())
    assert evaluate(run, [torch.tensor([1.0, 2.0])], evaluation) == {"mean": 1.5}


def test_a_metric_that_fails_is_named_with_its_line_in_the_config():
    class Broken(Seen):
        def update(self, output, target) -> None:
            raise ConfigError("no") if isinstance(target, torch.Tensor) else ValueError("no")

    run, evaluation = made(nn.Identity(), lambda output, target: output.sum(), one=Broken())
    others = Spec(kind="metric", name="Seen", at=Place("c.yaml", 3))
    run.plan = SimpleNamespace(metrics=[others, Spec(kind="metric", name="Broken", at=Place("c.yaml", 7))])
    with pytest.raises(ConfigError, match=r"^c.yaml:7: metric one, of \(2,\) and \(2,\): no$"):
        evaluate(run, [(torch.ones(2), torch.ones(2))], evaluation)
    with pytest.raises(UserCodeError, match=r"^c.yaml:7: metric one, of \(2,\) and a str: ValueError: no$"):
        evaluate(run, [(torch.ones(2), "cat")], evaluation)
    run.plan = None
    with pytest.raises(UserCodeError, match="^metric one, of"):
        evaluate(run, [(torch.ones(2), "cat")], evaluation)


def test_a_model_without_a_loss_gets_the_whole_batch_or_its_inputs_alone():
    class Whole(nn.Module):
        def forward(self, x, target):
            return {"loss": (x - target).mean(), "kept": x}

    class Inputs(nn.Module):
        def forward(self, x):
            return x

    batches = [(torch.full((n,), value), torch.zeros(n)) for n, value in ((3, 1.0), (1, 5.0))]
    assert evaluate(*_swapped(made(Whole()), batches)) == {"loss": 2.0}
    assert evaluate(*_swapped(made(Inputs(), mean=Mean()), batches)) == {"mean": 2.0}


def _swapped(run_and_evaluation, batches):
    run, evaluation = run_and_evaluation
    return run, batches, evaluation


def test_an_error_inside_the_model_is_not_mistaken_for_a_wrong_call():
    class Broken(nn.Module):
        def forward(self, x, target=None):
            raise TypeError("inside" if target is not None else "called again")

    class NoTarget(nn.Module):
        def forward(self, x, y):
            raise AssertionError

    with pytest.raises(TypeError, match="inside"):
        evaluate(*_swapped(made(Broken()), [(torch.ones(1), torch.ones(1))]))
    with pytest.raises(TypeError, match="'y'"):
        evaluate(*_swapped(made(NoTarget()), [(torch.ones(1),)]))


def test_samples_are_counted_by_the_target_or_by_what_else_the_batch_has():
    run, evaluation = made(nn.Identity(), lambda output, target: output.mean())
    batches = [(torch.full((n,), value), "no tensor") for n, value in ((3, 1.0), (1, 5.0))]
    assert evaluate(run, batches, evaluation) == {"loss": 2.0}
    run, evaluation = made(nn.Identity(), lambda output, target: output * 1.0)
    batches = [(torch.tensor(value), torch.tensor(0.0)) for value in (1.0, 5.0)]
    assert evaluate(run, batches, evaluation) == {"loss": 3.0}


def test_what_is_no_metric_is_refused_and_others_are_named_after_their_class():
    class TopOne(Seen):
        pass

    assert metric_name(TopOne()) == "top_one" and metric_name(MAE()) == "mae"
    assert require_metric(seen := Seen()) is seen
    with pytest.raises(ConfigError, match="metric Seen is a class, not an object of it"):
        require_metric(Seen)
    with pytest.raises(ConfigError, match="metric Linear has no method 'update'"):
        require_metric(nn.Linear(1, 1))
