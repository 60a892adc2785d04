"""Metrics of evaluations. Anything with ``update(output, target)``, ``compute()`` and ``reset()`` is a metric."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.metrics.classes import F1, Accuracy, Confusion, IoU
    from etude.metrics.direction import improves, lower_is_better
    from etude.metrics.ranking import AUROC, AveragePrecision
    from etude.metrics.values import MAE, R2, RMSE, Mean, Perplexity

#: Loaded on first use: reading run folders needs ``direction`` and no torch.
_MODULES = {
    "F1": "classes", "Accuracy": "classes", "Confusion": "classes", "IoU": "classes", "MAE": "values", "R2": "values",
    "RMSE": "values", "Mean": "values", "Perplexity": "values", "AUROC": "ranking", "AveragePrecision": "ranking",
    "improves": "direction", "lower_is_better": "direction",
}  # fmt: skip

__all__ = [
    "AUROC", "F1", "MAE", "R2", "RMSE", "Accuracy", "AveragePrecision", "Confusion", "IoU", "Mean", "Perplexity",
    "improves", "lower_is_better",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(f"etude.metrics.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'etude.metrics' has no attribute {name!r}")
