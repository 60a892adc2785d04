"""What an evaluation measures. Anything with ``update(output, target)``, ``compute()`` and ``reset()`` is a metric."""

from etude.metrics.classes import F1, Accuracy, Confusion, IoU
from etude.metrics.direction import improves, lower_is_better
from etude.metrics.ranking import AUROC, AveragePrecision
from etude.metrics.values import MAE, R2, RMSE, Mean, Perplexity

__all__ = [
    "AUROC", "F1", "MAE", "R2", "RMSE", "Accuracy", "AveragePrecision", "Confusion", "IoU", "Mean", "Perplexity",
    "improves", "lower_is_better",
]  # fmt: skip
