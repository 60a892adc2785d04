"""Trains a Siamese tracker's backbone that begins frozen: its later stages join at some epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from etude.dialects.mmcv1.live.hooks.hook import HOOKS
from etude.dialects.mmcv1.live.hooks.optimizer_hook import Fp16OptimizerHook, OptimizerHook
from etude.dialects.mmcv1.live.parallel import unwrap
from etude.dialects.openmm.errors import ConfigAttributeError
from etude.errors import suggest

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


class _Thawing:
    """``backbone_train_layers`` of the model's backbone are trained from ``backbone_start_train_epoch`` on."""

    backbone_start_train_epoch: int
    backbone_train_layers: Sequence[str]

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if runner.epoch < self.backbone_start_train_epoch:
            return
        backbone: Any = unwrap(runner.model).backbone
        for name in self.backbone_train_layers:
            stage = getattr(backbone, name, None)
            if stage is None:
                parts = [part for part, _ in backbone.named_children()]
                raise ConfigAttributeError(
                    f"backbone_train_layers: {type(backbone).__name__} has no part {name!r}", hint=suggest(name, parts)
                )
            stage.requires_grad_(True)
            for part in stage.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.train()


@HOOKS.register_module()
class SiameseRPNOptimizerHook(_Thawing, OptimizerHook):
    """:class:`OptimizerHook`, thawing stages of the backbone."""

    def __init__(self, backbone_start_train_epoch: int, backbone_train_layers: Sequence[str], **kwargs: Any) -> None:
        OptimizerHook.__init__(self, **kwargs)
        self.backbone_start_train_epoch = backbone_start_train_epoch
        self.backbone_train_layers = backbone_train_layers


@HOOKS.register_module()
class SiameseRPNFp16OptimizerHook(_Thawing, Fp16OptimizerHook):
    """:class:`Fp16OptimizerHook`, thawing stages of the backbone."""

    def __init__(self, backbone_start_train_epoch: int, backbone_train_layers: Sequence[str], **kwargs: Any) -> None:
        Fp16OptimizerHook.__init__(self, **kwargs)
        self.backbone_start_train_epoch = backbone_start_train_epoch
        self.backbone_train_layers = backbone_train_layers
