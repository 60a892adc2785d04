"""Metrics of the order of scores: area under the ROC curve, average precision. Scores are kept until ``compute``."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.errors import ConfigError
from etude.errors.spelling import suggest


class _Scores:
    """Keeps scores and classes of every sample; one column of scores, or one per class.

    Several classes are each compared with all others. ``average`` says how their scores become one: ``macro`` is the
    mean, ``weighted`` counts a class by its samples.
    """

    _AVERAGES = ("macro", "weighted")
    #: What an evaluation warns of, once.
    remark = ""

    def __init__(self, average: str | None = None) -> None:
        if average is not None and average not in self._AVERAGES:
            name = type(self).__name__
            raise ConfigError(f"{name}: no average is called {average!r}", hint=suggest(average, self._AVERAGES))
        self.average = average
        self.reset()

    def reset(self) -> None:
        self._scores: list[Tensor] = []
        self._targets: list[Tensor] = []

    def update(self, output: Tensor, target: Tensor) -> None:
        scores = output.detach()
        scores = scores.squeeze(1) if scores.ndim == target.ndim + 1 and scores.shape[1] == 1 else scores
        if len(scores) != len(target):
            raise ValueError(f"{len(scores)} scores do not go with {len(target)} targets")
        self._scores.append(scores)
        self._targets.append(target.detach())

    def compute(self) -> Tensor:
        if not self._scores:
            return torch.tensor(float("nan"))
        scores, targets = torch.cat(self._scores).double(), torch.cat(self._targets)
        if scores.ndim == 1:
            return self._score(scores, targets > 0)
        if targets.ndim == 2:  # several labels per sample
            values = [self._score(scores[:, k], targets[:, k] > 0) for k in range(scores.shape[1])]
        elif scores.shape[1] == 2:
            return self._score(scores[:, 1] - scores[:, 0], targets == 1)
        else:
            shares = scores.softmax(1)
            values = [self._score(shares[:, k], targets == k) for k in range(scores.shape[1])]
            if self.average is None:
                self.average = "macro"
                text = f"{type(self).__name__} of {len(values)} classes is the mean over each class against all others"
                self.remark = f"{text}; write average: macro to say so, or weighted"
        found = torch.stack(values)
        if self.average != "weighted":
            return found.nanmean()
        several = targets.ndim == 2
        counts = torch.stack([((targets[:, k] > 0) if several else targets == k).sum() for k in range(len(values))])
        counts = torch.where(found.isnan(), 0.0, counts.double())
        return (found.nan_to_num() * counts).sum() / counts.sum()

    def _score(self, scores: Tensor, positive: Tensor) -> Tensor:
        raise NotImplementedError


class AUROC(_Scores):
    """The chance that a sample of the class scores higher than one of another; ties count half.

    Several classes are each compared with all others; ``average`` is ``macro`` (the mean) or ``weighted`` (by their
    samples). A class that never occurs does not count.

    >>> metric = AUROC()
    >>> metric.update(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> float(metric.compute())
    0.75
    """

    name = "auroc"

    def _score(self, scores: Tensor, positive: Tensor) -> Tensor:
        count = positive.sum().double()
        others = len(positive) - count
        _, inverse, counts = torch.unique(scores, return_inverse=True, return_counts=True)
        ranks: Tensor = counts.cumsum(0).double() - (counts - 1) / 2  # the mean rank of equal scores
        above: Tensor = ranks[inverse][positive].sum() - count * (count + 1) / 2
        return above / (count * others)


class AveragePrecision(_Scores):
    """The precision at every sample of the class, in the order of the scores, and their mean: area under the curve.

    >>> metric = AveragePrecision()
    >>> metric.update(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> round(float(metric.compute()), 4)
    0.8333
    """

    name = "average_precision"

    def _score(self, scores: Tensor, positive: Tensor) -> Tensor:
        order = scores.argsort(descending=True, stable=True)
        ordered, hits = scores[order], positive[order].double()
        last = torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool, device=scores.device)])
        precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1, device=scores.device)
        recall = hits.cumsum(0) / hits.sum()
        precision, recall = precision[last], recall[last]  # equal scores are one threshold
        return (recall.diff(prepend=recall.new_zeros(1)) * precision).sum()
