"""Metrics against scikit-learn, in batches; on whatever torchmetrics does, the same."""

from __future__ import annotations

import math

import pytest
import torch

from etude.errors import ConfigError
from etude.metrics import F1, MAE, RMSE, Accuracy, Confusion, Mean, improves, lower_is_better

torch.manual_seed(0)
SCORES = torch.randn(50, 4)
TARGETS = torch.randint(4, (50,))
GUESSES = SCORES.argmax(1)


@pytest.fixture(scope="module")
def reference():
    """The metrics of scikit-learn, imported where they are used: every process of pytest-xdist imports this module."""
    from sklearn import metrics

    return metrics


def measured(metric, outputs=SCORES, targets=TARGETS):
    metric.update(torch.zeros_like(outputs), torch.ones_like(targets))
    metric.reset()
    for output, target in zip(outputs.split(16), targets.split(16), strict=True):
        metric.update(output, target)
    return metric.compute()


def test_accuracy_counts_first_guesses_and_the_first_few(reference):
    result = measured(Accuracy(top=[1, 2]))
    assert float(result["accuracy"]) == pytest.approx(reference.accuracy_score(TARGETS, GUESSES))
    assert float(result["accuracy_top2"]) == pytest.approx(
        reference.top_k_accuracy_score(TARGETS, SCORES.numpy(), k=2, labels=range(4))
    )
    with pytest.raises(ConfigError, match="the first 9 of 4 classes hold the right one always"):
        measured(Accuracy(top=9))


def test_accuracy_takes_classes_logits_and_pictures():
    assert float(measured(Accuracy(), GUESSES)["accuracy"]) == float(measured(Accuracy())["accuracy"])
    logits, truth = torch.tensor([-1.0, 2.0, 3.0]), torch.tensor([0, 1, 0])
    assert float(measured(Accuracy(), logits, truth)["accuracy"]) == pytest.approx(2 / 3)
    pictures = torch.randn(6, 3, 2, 2)
    assert float(measured(Accuracy(), pictures, pictures.argmax(1))["accuracy"]) == 1.0
    with pytest.raises(ValueError, match="does not go with"):
        Accuracy().update(torch.zeros(3), torch.zeros(4))


def test_confusion_has_true_classes_in_rows(reference):
    metric = Confusion()
    recalls = measured(metric)
    matrix = torch.from_numpy(reference.confusion_matrix(TARGETS, GUESSES))
    assert torch.equal(metric.matrix, matrix)
    assert float(recalls["recall/2"]) == pytest.approx(float(matrix[2, 2] / matrix[2].sum()))
    assert Confusion(3).matrix.shape == (3, 3)
    with pytest.raises(ConfigError, match="give `classes`"):
        Confusion().update(GUESSES, TARGETS)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_f1_agrees_with_scikit_learn(reference, average):
    assert float(measured(F1(average=average))) == pytest.approx(reference.f1_score(TARGETS, GUESSES, average=average))
    absent = F1(classes=7, average=average)
    assert float(measured(absent, GUESSES)) == pytest.approx(reference.f1_score(TARGETS, GUESSES, average=average))


def test_f1_of_two_classes(reference):
    logits, truth = torch.randn(40), torch.randint(2, (40,))
    assert float(measured(F1(average="binary"), logits, truth)) == pytest.approx(reference.f1_score(truth, logits > 0))
    with pytest.raises(ConfigError, match="did you mean 'macro'"):
        F1(average="marco")


def test_distances_and_means(reference):
    outputs, targets = torch.randn(40, 1), torch.randn(40)
    assert float(measured(MAE(), outputs, targets)) == pytest.approx(
        reference.mean_absolute_error(targets, outputs), abs=1e-6
    )
    assert float(measured(RMSE(), outputs, targets)) == pytest.approx(
        math.sqrt(reference.mean_squared_error(targets, outputs)), abs=1e-6
    )
    mean = Mean("iou")
    mean.update({"iou": torch.tensor([1.0, 2.0, 6.0])})
    assert float(mean.compute()) == 3.0 and mean.name == "iou"
    with pytest.raises(ValueError, match="does not go with"):
        MAE().update(torch.zeros(3), torch.zeros(4))


@pytest.mark.parametrize("metric", [Accuracy(), Confusion(3), F1(3), Mean(), MAE(), RMSE()])
def test_a_metric_that_saw_nothing_is_a_number(metric):
    result = metric.compute()
    values = result.values() if isinstance(result, dict) else [result]
    assert all(math.isfinite(float(value)) for value in values)


def test_ours_have_the_face_of_torchmetrics():
    from torchmetrics.classification import MulticlassAccuracy

    theirs = MulticlassAccuracy(4, average="micro")
    assert float(measured(theirs)) == pytest.approx(float(measured(Accuracy())["accuracy"]))


def test_direction_is_told_by_the_name_or_the_mode():
    assert lower_is_better("loss/val") and lower_is_better("RMSE") and not lower_is_better("accuracy")
    assert not lower_is_better("loss", "max") and lower_is_better("accuracy", "min")
    assert improves(1.0, None, lower=True) and improves(0.5, 1.0, lower=True) and not improves(0.5, 1.0, lower=False)
    assert not improves(math.nan, None, lower=True) and not improves(-math.inf, 0.0, lower=True)
    assert not improves(0.95, 1.0, lower=True, by=0.1)
