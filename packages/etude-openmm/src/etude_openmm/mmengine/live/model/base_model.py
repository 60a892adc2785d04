"""MMEngine's BaseModel: the training, validation and test step of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from etude_openmm.mmengine.live import user_errors
from etude_openmm.mmengine.live.model.preprocessor import BaseDataPreprocessor
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.shared.init.module_v2 import BaseModule
from etude_openmm.shared.registries.root import MODELS


class BaseModel(BaseModule):
    """The base class of models. ``forward`` has a mode: ``'loss'`` (losses by name), ``'predict'`` or ``'tensor'``.

    ``data_preprocessor`` is a module, a config of one, or None for one that only moves data to the device.
    """

    def __init__(
        self, data_preprocessor: dict[str, Any] | nn.Module | None = None, init_cfg: dict[str, Any] | None = None
    ) -> None:
        super().__init__(init_cfg)
        if data_preprocessor is None:
            data_preprocessor = {"type": "BaseDataPreprocessor"}
        if isinstance(data_preprocessor, nn.Module):
            self.data_preprocessor = data_preprocessor
        elif isinstance(data_preprocessor, Mapping):
            self.data_preprocessor = MODELS.build(data_preprocessor)
        else:
            raise TypeError(
                f"data_preprocessor should be a `dict` or `nn.Module` instance, but got {type(data_preprocessor)}"
            )

    def train_step(self, data: Any, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Run preprocessor, forward, backward and update. Losses stay tensors: reading one waits for the device."""
        return learn(self, self, data, optim_wrapper)[1]

    def val_step(self, data: Any) -> list[Any]:
        """Return predictions for a batch of validation data."""
        predictions: list[Any] = self._run_forward(self.data_preprocessor(data, False), mode="predict")
        return predictions

    def test_step(self, data: Any) -> list[Any]:
        """Return predictions for a batch of test data."""
        predictions: list[Any] = self._run_forward(self.data_preprocessor(data, False), mode="predict")
        return predictions

    @abstractmethod
    def forward(self, inputs: Tensor, data_samples: list[Any] | None = None, mode: str = "tensor") -> Any:
        """Return losses, predictions or raw outputs, as ``mode`` says."""

    def _run_forward(self: Any, data: Any, mode: str) -> Any:
        """Call the model with what the preprocessor gave. Wrappers of models have this method, too."""
        try:
            if isinstance(data, Mapping):
                return self(**data, mode=mode)
            if isinstance(data, list | tuple):
                return self(*data, mode=mode)
        except TypeError as error:
            user_errors.of_forward(error, self, data)
            raise
        raise TypeError(f"Output of `data_preprocessor` should be list, tuple or dict, but got {type(data)}")

    def parse_losses(self, losses: Mapping[str, Tensor | Sequence[Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of all entries whose key contains ``loss``, and all entries as scalars for the log, sum first.

        An entry that is itself called ``loss`` is logged in place of the sum.
        """
        # ``loss`` is the first of them, although its value comes last.
        log_vars: OrderedDict[str, Any] = OrderedDict(loss=0)
        total: Any = None
        for name, value in losses.items():
            scalar = _mean(name, value)
            log_vars[name] = scalar
            if "loss" in name:
                total = scalar if total is None else total + scalar
        if "loss" not in losses:
            log_vars["loss"] = 0 if total is None else total
        return (0 if total is None else total), log_vars  # type: ignore[return-value]

    # -- the device: preprocessors follow the model ----------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Self:
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        if device is not None:
            self._set_device(torch.device(device))
        return super().to(*args, **kwargs)

    def cuda(self, device: int | torch.device | None = None) -> Self:
        index = torch.cuda.current_device() if device is None else device
        self._set_device(torch.device("cuda", index) if isinstance(index, int) else torch.device(index))
        return super().cuda(device)

    def cpu(self, *args: Any, **kwargs: Any) -> Self:
        self._set_device(torch.device("cpu"))
        return super().cpu()

    def _set_device(self, device: torch.device) -> None:
        for module in self.modules():
            if isinstance(module, BaseDataPreprocessor):
                module._device = device


def learn(outer: Any, model: Any, data: Any, optim_wrapper: OptimWrapper) -> tuple[Tensor, dict[str, Tensor]]:
    """Do one training step; return the loss and the values to log. ``outer`` is ``model`` or the wrapper around it."""
    with optim_wrapper.optim_context(outer):
        losses = outer._run_forward(model.data_preprocessor(data, True), mode="loss")
    try:
        loss, log_vars = model.parse_losses(losses)
        optim_wrapper.update_params(loss)
    except Exception as error:
        user_errors.of_losses(error, model, losses)
        raise
    return loss, log_vars


def _mean(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.dim() == 0 else value.mean()
    if isinstance(value, Sequence) and value and all(isinstance(item, Tensor) for item in value):
        total = _mean(name, value[0])
        for item in value[1:]:
            total = total + _mean(name, item)
        return total
    raise TypeError(f"{name} is not a tensor or list of tensors but {type(value)}")
