"""Batch-norm statistics as those of many batches taken together, in place of the moving averages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from typing import Any

import torch
from torch import nn

logger = logging.getLogger("fvcore.nn.precise_bn")

_BN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def get_bn_modules(model: nn.Module) -> list[nn.Module]:
    """The batch-norm layers that are in training mode and keep statistics."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BN) and module.training and module.track_running_stats
    ]


@torch.no_grad()
def update_bn_stats(model: nn.Module, data_loader: Iterable[Any], num_iters: int = 200, progress: Any = None) -> None:
    """Replace running statistics by mean and variance of all samples of ``num_iters`` batches; only forward is run.

    Every sample counts as much, however large its batch was. ``progress`` is taken and not used.
    """
    layers: list[Any] = get_bn_modules(model)
    if not layers:
        return
    logger.info(f"Computing precise BN statistics for {len(layers)} BN layers ...")
    found = [_Population(layer) for layer in layers]
    with ExitStack() as after:
        for layer, population in zip(layers, found, strict=True):
            after.callback(setattr, layer, "momentum", layer.momentum)
            layer.momentum = 1.0  # the running statistics are then those of the last batch
            after.callback(layer.register_forward_pre_hook(population.see).remove)
        seen = 0
        for inputs in islice(data_loader, num_iters):
            seen += 1
            model(inputs)
            for population in found:
                population.add()
    assert seen == num_iters, (
        f"update_bn_stats is meant to run for {num_iters} iterations, but the dataloader stops at {seen} iterations."
    )
    for population in found:
        population.keep()


class _Population:
    """Mean and mean of squares over everything that one layer has seen, from its statistics batch by batch."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.mean, self.square = torch.zeros_like(layer.running_mean), torch.zeros_like(layer.running_var)
        self.total, self.batch = 0, 0

    def see(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """How many values a channel gets in this forward pass; positions in space count as samples."""
        assert not self.batch, "Some BN layers are reused. This is not supported and probably not desired."
        assert isinstance(inputs[0], torch.Tensor), f"BN layer should take tensor as input. Got {inputs}"
        self.batch = inputs[0].numel() // inputs[0].shape[1]

    def add(self) -> None:
        """Take in the batch that was just seen, if this layer had a part in it."""
        size, self.batch = self.batch, 0
        if not size:
            return
        self.total += size
        mean, corrected = self.layer.running_mean, self.layer.running_var
        square = mean.square() + corrected * ((size - 1) / size)
        self.mean += (mean - self.mean) * (size / self.total)
        self.square += (square - self.square) * (size / self.total)

    def keep(self) -> None:
        if self.total:
            self.layer.running_mean.copy_(self.mean)
            self.layer.running_var.copy_(self.square - self.mean.square())
