"""Reverts synchronised batch norms, those of mmcv's layers, too."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm


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
