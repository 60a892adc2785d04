"""What an evaluation measures. Anything with ``update(output, target)``, ``compute()`` and ``reset()`` is a metric."""

from etude.metrics.classes import F1, Accuracy, Confusion
from etude.metrics.direction import improves, lower_is_better
from etude.metrics.values import MAE, RMSE, Mean

__all__ = ["F1", "MAE", "RMSE", "Accuracy", "Confusion", "Mean", "improves", "lower_is_better"]
