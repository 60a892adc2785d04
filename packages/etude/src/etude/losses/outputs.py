"""Makes a model's output fit its loss and metrics: scores out of a mapping, and shapes that belong together."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, broadcast_shapes, nn

from etude.dist.layout.shards import whole
from etude.errors import ReturnError, UserCodeError

#: Where models that return a mapping or a dataclass keep what a loss and a metric look at, in order.
SCORE_KEYS = ("logits", "scores", "output", "prediction", "predictions", "preds", "pred", "out")
#: Losses that compare element by element. torch broadcasts (N, 1) against (N,) to (N, N), and nothing is learnt.
ELEMENTWISE = (
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss,
)  # fmt: skip
_ELEMENTWISE_FUNCTIONS = (
    nn.functional.mse_loss, nn.functional.l1_loss, nn.functional.smooth_l1_loss, nn.functional.huber_loss,
    nn.functional.binary_cross_entropy, nn.functional.binary_cross_entropy_with_logits, nn.functional.poisson_nll_loss,
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
    """Return whether a loss or metric is torch's, torchmetrics' or Étude's, which know tensors only."""
    root = type(part).__module__.partition(".")[0]
    return root in ("torch", "torchmetrics") or (root == "etude" and getattr(part, "key", None) is None)


class Fitted:
    """A loss of torch that is given tensors of the same shape, and mappings' scores."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        self.loss = loss
        self._smooths = bool(getattr(loss, "label_smoothing", 0.0))
        self._elementwise = isinstance(loss, ELEMENTWISE) or _plain(loss) in _ELEMENTWISE_FUNCTIONS

    def __call__(self, output: Any, target: Any) -> Tensor:
        if not isinstance(output, Tensor):
            output = scores(output)
        if self._smooths:  # DTensor has no rule for it where several processes hold the classes
            output = whole(output)
        if self._elementwise and isinstance(output, Tensor) and isinstance(target, Tensor):
            output, target = self._aligned(output, target)
        return self.loss(output, target)  # type: ignore[no-any-return]

    def _aligned(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if output.shape != target.shape:
            if not differ_by_ones(output, target):
                raise UserCodeError(
                    f"the model's output has shape {tuple(output.shape)} and the target {tuple(target.shape)}: "
                    f"{_name(self.loss)} compares them element by element"
                )
            output = output.reshape(target.shape)
        return output, target if target.is_floating_point() else target.to(output.dtype)


class Watched:
    """A user-defined loss. Refuses output and target that would broadcast, (N, 1) against (N,), at the first batch.

    A loss that reshapes them itself says so with an attribute ``broadcasts = True``.
    """

    def __init__(self, loss: Callable[..., Any]) -> None:
        self.loss = loss
        self._looked = bool(getattr(_plain(loss), "broadcasts", False))

    def __call__(self, output: Any, target: Any) -> Any:
        if not self._looked:
            self._looked = _has_several(target)
            text = broadcasting(f"loss {_name(self.loss)}", output, target)
            if text:
                raise ReturnError(
                    f"{text}. Reshape one of them first. If the loss does that itself, write "
                    f"{_name(self.loss)}.broadcasts = True"
                )
        return self.loss(output, target)


def warn_of_broadcast(what: str, output: Any, target: Any) -> None:
    """Warn if an operation between output and target would broadcast, (N, 1) against (N,) to (N, N)."""
    text = broadcasting(what, output, target)
    if text:
        warnings.warn(
            f"{text}. Reshape one of them first, as Étude does for losses of torch and for its own metrics. If your "
            "code does so already, all is well",
            stacklevel=4,
        )


def broadcasting(what: str, output: Any, target: Any) -> str:
    """Return what is wrong with shapes that broadcast to more numbers than either has; empty if they do not.

    >>> import torch
    >>> broadcasting("loss", torch.ones(4, 1), torch.ones(4))[:68]
    'the loss gets an output of shape (4, 1) and a target of shape (4,): '
    >>> broadcasting("loss", torch.ones(1, 1), torch.ones(1))
    ''
    """
    if not (isinstance(output, Tensor) and isinstance(target, Tensor)):
        return ""
    if output.shape == target.shape or not differ_by_ones(output, target):
        return ""
    try:
        size = broadcast_shapes(output.shape, target.shape).numel()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return ""
    if size == max(output.numel(), target.numel()):
        return ""
    return (
        f"the {what} gets an output of shape {tuple(output.shape)} and a target of shape {tuple(target.shape)}: "
        "compared as they are, they broadcast to a matrix, and the result is wrong"
    )


def _has_several(target: Any) -> bool:
    """Return whether a batch has more than one sample: the shapes of a single one show nothing."""
    return not isinstance(target, Tensor) or target.numel() > 1


def differ_by_ones(output: Tensor, target: Tensor) -> bool:
    """Return whether the shapes are the same but for dimensions of length one.

    >>> import torch
    >>> differ_by_ones(torch.ones(4, 1), torch.ones(4)), differ_by_ones(torch.ones(4, 2), torch.ones(4))
    (True, False)
    """
    return output.squeeze().shape == target.squeeze().shape


def _plain(loss: Callable[..., Any]) -> Any:
    return loss.func if isinstance(loss, partial) else loss


def _name(loss: Callable[..., Any]) -> str:
    return getattr(_plain(loss), "__name__", type(loss).__name__)


def fitted(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``loss``, wrapped so that shapes are looked at. A user-defined loss gets whatever the model returns."""
    plain = _plain(loss)
    module = getattr(plain, "__module__", None) if not isinstance(plain, nn.Module) else type(plain).__module__
    return Fitted(loss) if str(module).startswith("torch.") or plain in _ELEMENTWISE_FUNCTIONS else Watched(loss)
