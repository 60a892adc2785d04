"""Makes a model's output fit its loss and metrics: scores out of a mapping, and shapes that belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from etude.errors import UserCodeError

#: Where models that return a mapping or a dataclass keep what a loss and a metric look at, in order.
SCORE_KEYS = ("logits", "scores", "output", "prediction", "predictions", "preds", "pred", "out")
#: Losses that compare element by element. torch broadcasts (N, 1) against (N,) to (N, N), and nothing is learnt.
ELEMENTWISE = (
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss,
)  # fmt: skip


def as_mapping(output: Any) -> Mapping[str, Any] | None:
    """Return a mapping or dataclass as a mapping; None for anything else."""
    if isinstance(output, Mapping):
        return output
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    return None


def scores(output: Any) -> Any:
    """Return the tensor of scores of a model's output; one that is no mapping or dataclass is returned as it is.

    >>> import torch
    >>> scores({"loss": torch.zeros(()), "logits": torch.ones(2)}).tolist()
    [1.0, 1.0]
    """
    named = as_mapping(output)
    if named is None:
        return output
    for key in SCORE_KEYS:
        if isinstance(named.get(key), Tensor):
            return named[key]
    raise UserCodeError(
        f"the model returns a {type(output).__name__} with {', '.join(map(str, named)) or 'nothing'}; a loss or metric "
        f"that takes a tensor looks for one of {', '.join(SCORE_KEYS)}"
    )


def takes_tensor(part: Any) -> bool:
    """Whether a loss or metric is torch's, torchmetrics' or Étude's, which know tensors only."""
    root = type(part).__module__.partition(".")[0]
    return root in ("torch", "torchmetrics") or (root == "etude" and getattr(part, "key", None) is None)


class Fitted:
    """A loss of torch that is given tensors of the same shape, and mappings' scores."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self._elementwise = isinstance(loss, ELEMENTWISE)

    def __call__(self, output: Any, target: Any) -> Tensor:
        if not isinstance(output, Tensor):
            output = scores(output)
        if self._elementwise and isinstance(output, Tensor) and isinstance(target, Tensor):
            output, target = self._aligned(output, target)
        result: Tensor = self.loss(output, target)
        return result

    def _aligned(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if output.shape != target.shape:
            if output.squeeze().shape != target.squeeze().shape:
                raise UserCodeError(
                    f"the model's output has shape {tuple(output.shape)} and the target {tuple(target.shape)}: "
                    f"{type(self.loss).__name__} compares them element by element"
                )
            output = output.reshape(target.shape)
        return output, target if target.is_floating_point() else target.to(output.dtype)


def fitted(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``loss``, wrapped if it is one of torch's; a loss of the user's own gets whatever the model returns."""
    own = isinstance(loss, nn.Module) and type(loss).__module__.startswith("torch.")
    return Fitted(loss) if own else loss  # type: ignore[arg-type]
