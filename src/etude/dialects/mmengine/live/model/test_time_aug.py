"""Predictions for several views of each sample, merged into one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

from etude.dialects.mmengine.live.model.base_model import BaseModel
from etude.dialects.mmengine.live.registry import MODELS


class BaseTTAModel(BaseModel):
    """Wraps a model (``module``); a subclass gives :meth:`merge_preds`."""

    def __init__(self, module: dict[str, Any] | nn.Module, data_preprocessor: dict[str, Any] | None = None) -> None:
        super().__init__(data_preprocessor=data_preprocessor)
        if isinstance(module, nn.Module):
            self.module = module
        elif isinstance(module, dict):
            self.module = MODELS.build(module)
        else:
            raise TypeError(f"The type of module should be a `nn.Module` instance or a dict, but got {module}")
        assert hasattr(self.module, "test_step"), (
            f"Model wrapped by BaseTTAModel must implement `test_step`, {type(self.module).__name__} has none"
        )

    @abstractmethod
    def merge_preds(self, data_samples_list: list[list[Any]]) -> list[Any]:
        """One prediction for each sample from its predictions for all views."""

    def test_step(self, data: Any) -> list[Any]:
        """``data`` holds, for every sample, a list of views; each view goes through the model as a batch."""
        predictions = [self.module.test_step(batch) for batch in _by_view(data)]  # type: ignore[operator]
        return self.merge_preds(list(zip(*predictions, strict=True)))  # type: ignore[arg-type]

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        raise NotImplementedError("`BaseTTAModel.forward` is not called in training or testing: call `test_step`")


def _by_view(data: Any) -> list[Any]:
    """One batch per view: each field of a dict, and each item of a list, holds its views in order."""
    if isinstance(data, dict):
        views = len(next(iter(data.values())))
        return [{name: values[view] for name, values in data.items()} for view in range(views)]
    if isinstance(data, list | tuple):
        return [[item[view] for item in data] for view in range(len(data[0]))]
    raise TypeError(f"data given by dataLoader should be a dict, tuple or a list, but got {type(data)}")
