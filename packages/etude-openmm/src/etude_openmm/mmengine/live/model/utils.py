"""Helpers for models: merge dicts, convert SyncBatchNorm, find parameters without gradients."""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from etude_openmm.mmengine.live.logging.logger import print_log
from etude_openmm.shared.torch_utils import parameters_behind


def merge_dict(*args: dict[Any, Any]) -> dict[Any, Any]:
    """Merge all dicts into one; later ones win."""
    output: dict[Any, Any] = {}
    for item in args:
        assert isinstance(item, dict), f"all arguments of merge_dict should be a dict, but got {type(item)}"
        output.update(item)
    return output


class _BatchNormXd(_BatchNorm):
    """A batch norm that accepts any number of dimensions, as SyncBatchNorm does."""

    def _check_input_dim(self, input: Tensor) -> None:
        return


def revert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Return ``module`` with every SyncBatchNorm replaced by a plain batch norm."""
    made = module
    # mmcv's layer of this name is another class.
    if isinstance(module, SyncBatchNorm) or type(module).__name__ == "SyncBatchNorm":
        made = _as_batch_norm(module)
    for name, child in module.named_children():
        replaced = revert_sync_batchnorm(child)
        if replaced is not child or made is not module:
            made.add_module(name, replaced)
    return made


def _as_batch_norm(module: Any) -> nn.Module:
    made = _BatchNormXd(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
    if module.affine:
        made.weight, made.bias = module.weight, module.bias
        made.weight.requires_grad = module.weight.requires_grad
        made.bias.requires_grad = module.bias.requires_grad
    made.running_mean, made.running_var = module.running_mean, module.running_var
    made.num_batches_tracked = module.num_batches_tracked
    made.training = module.training
    if hasattr(module, "qconfig"):
        made.qconfig = module.qconfig
    return made


def convert_sync_batchnorm(module: nn.Module, implementation: str = "torch") -> nn.Module:
    """Return ``module`` with every batch norm replaced by a SyncBatchNorm."""
    if implementation != "torch":
        raise ValueError(
            f"sync_bn {implementation!r} is not available: mmcv's compiled layers are out of scope, use sync_bn='torch'"
        )
    converted: nn.Module = SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    return converted


def detect_anomalous_params(loss: Tensor, model: nn.Module) -> None:
    """Log the parameters that ``loss`` does not depend on: with DDP they make a run hang."""
    inside = parameters_behind(loss)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in inside:
            print_log(
                f"{name} with shape {tuple(parameter.shape)} is not in the computational graph of the loss",
                logger="current",
                level=logging.ERROR,
            )
