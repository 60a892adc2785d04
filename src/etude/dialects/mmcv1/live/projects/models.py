"""Models of MMClassification and MMTracking: registries, bases with their step contract, and the plainest parts.

Other networks, necks, heads and losses come with the projects themselves.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from etude.dialects.mmcv1.live.optimizers import OPTIMIZERS
from etude.dialects.mmcv1.live.overlay.registries import MODELS as MMCV_MODELS
from etude.dialects.openmm.errors import ConfigValueError
from etude.dialects.openmm.init.module_v1 import BaseModule
from etude.dialects.openmm.registries.registry_v1 import Registry
from etude.optim.lamb import LAMB

MODELS = Registry("models", parent=MMCV_MODELS, scope="mmcls")
BACKBONES = NECKS = HEADS = LOSSES = CLASSIFIERS = MODELS
ATTENTION = Registry("attention", scope="mmcls")
TRACK_MODELS = Registry("models", parent=MMCV_MODELS, scope="mmtrack")
TRACKERS = MOTION = REID = AGGREGATORS = TRACK_MODELS

OPTIMIZERS.register_module(name="Lamb", module=LAMB, force=True)


def build_model(cfg: Any) -> Any:
    """Build a classifier or a part of one; ``build_backbone`` and the others of mmcls are this."""
    return MODELS.build(cfg)


def build_track_model(cfg: Any, train_cfg: Any = None, test_cfg: Any = None) -> Any:
    """Build a tracker or a part of one; settings for training and tests belong into its config."""
    if train_cfg is None and test_cfg is None:
        return TRACK_MODELS.build(cfg)
    warnings.warn("train_cfg and test_cfg outside the model are deprecated", stacklevel=2)
    return TRACK_MODELS.build(cfg, default_args={"train_cfg": train_cfg, "test_cfg": test_cfg})


def parse_losses(losses: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The sum of all entries with ``loss`` in their name, and every entry for the log, ``loss`` last.

    The log's values stay tensors: they are read when a line is due.
    """
    log_vars: OrderedDict[str, Any] = OrderedDict()
    for name, value in losses.items():
        if isinstance(value, Tensor):
            log_vars[name] = value.mean()
        elif isinstance(value, list):
            log_vars[name] = torch.stack([part.mean() for part in value]).sum()
        elif isinstance(value, dict):
            log_vars.update(value)
        else:
            raise TypeError(f"{name} is not a tensor or list of tensors")
    total = torch.stack([value for name, value in log_vars.items() if "loss" in name]).sum()
    log_vars["loss"] = total
    return total, {name: _over_ranks(value) for name, value in log_vars.items()}


def _over_ranks(value: Tensor) -> Tensor:
    value = value.detach()
    if dist.is_available() and dist.is_initialized():
        value = value.clone()
        dist.all_reduce(value.div_(dist.get_world_size()))
    return value


class BaseClassifier(BaseModule):
    """``forward(img, return_loss)`` leads to ``forward_train`` or ``simple_test``; the steps keep mmcv's contract."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)

    @property
    def with_neck(self) -> bool:
        return getattr(self, "neck", None) is not None

    @property
    def with_head(self) -> bool:
        return getattr(self, "head", None) is not None

    def extract_feat(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"{type(self).__name__} must define extract_feat(imgs)")

    def forward_train(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        raise AttributeError(f"{type(self).__name__} must define forward_train(imgs, **kwargs)")

    def simple_test(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(f"{type(self).__name__} must define simple_test(img, **kwargs)")

    def forward_test(self, imgs: Any, **kwargs: Any) -> Any:
        """One image tensor, or a list with one; several augmentations of an image are averaged nowhere here."""
        several = imgs if isinstance(imgs, list) else [imgs]
        if len(several) != 1:
            raise TypeError("test-time augmentation needs a classifier that overrides forward_test")
        return self.simple_test(several[0], **kwargs)

    def forward(self, img: Any, return_loss: bool = True, **kwargs: Any) -> Any:
        return self.forward_train(img, **kwargs) if return_loss else self.forward_test(img, **kwargs)

    def _parse_losses(self, losses: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        return parse_losses(losses)

    def train_step(self, data: Mapping[str, Any], optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        losses = self(**data)
        loss, log_vars = self._parse_losses(losses)
        return {"loss": loss, "log_vars": log_vars, "num_samples": len(data["img"].data)}

    def val_step(self, data: Mapping[str, Any], optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        return self.train_step(data, optimizer, **kwargs)


@CLASSIFIERS.register_module()
class ImageClassifier(BaseClassifier):
    """Backbone, neck and head."""

    def __init__(
        self,
        backbone: Any,
        neck: Any = None,
        head: Any = None,
        pretrained: str | None = None,
        train_cfg: Any = None,
        init_cfg: Any = None,
    ) -> None:
        super().__init__({"type": "Pretrained", "checkpoint": pretrained} if pretrained is not None else init_cfg)
        if train_cfg and train_cfg.get("augments"):
            hint = "mix images in the collate function of the data, or in forward_train of a classifier of your own"
            raise ConfigValueError("train_cfg.augments (Mixup, CutMix, …) is not served", hint=hint)
        self.backbone = build_model(backbone)
        self.neck = build_model(neck) if neck is not None else None
        self.head = build_model(head) if head is not None else None

    def extract_feat(self, img: Tensor, stage: str = "neck") -> Any:
        """Return the features of the backbone or the neck, or (``pre_logits``) the input of the head's last layer."""
        if stage not in ("backbone", "neck", "pre_logits"):
            raise AssertionError(f'Invalid output stage "{stage}", please choose from "backbone", "neck", "pre_logits"')
        features = self.backbone(img)
        if self.neck is not None and stage != "backbone":
            features = self.neck(features)
        last = getattr(self.head, "pre_logits", None)
        return last(features) if last is not None and stage == "pre_logits" else features

    def forward_train(self, img: Tensor, gt_label: Any = None, **kwargs: Any) -> dict[str, Any]:
        assert self.head is not None
        return dict(self.head.forward_train(self.extract_feat(img), gt_label))

    def simple_test(self, img: Tensor, img_metas: Any = None, **kwargs: Any) -> Any:
        assert self.head is not None
        return self.head.simple_test(self.extract_feat(img), **kwargs)


@NECKS.register_module()
class GlobalAveragePooling(nn.Module):
    """The mean over all places, flattened; of every feature map when there are several."""

    def __init__(self, dim: int = 2) -> None:
        super().__init__()
        kinds = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
        self.gap = kinds[dim](1)

    def forward(self, inputs: Any) -> Any:
        if isinstance(inputs, tuple):
            return tuple(self.gap(part).flatten(1) for part in inputs)
        return self.gap(inputs).flatten(1)


def accuracy(pred: Any, target: Any, topk: int | tuple[int, ...] = 1, thrs: Any = 0.0) -> Any:
    """Share of samples, in percent, whose label is among the best ``k`` and scores above the threshold."""
    scores, labels = torch.as_tensor(pred), torch.as_tensor(target)
    ks = (topk,) if isinstance(topk, int) else tuple(topk)
    thresholds = thrs if isinstance(thrs, tuple) else (thrs,)
    best, where = scores.float().topk(min(max(ks), scores.shape[1]), dim=1)
    hit = where == labels.reshape(-1, 1)
    found = []
    for k in ks:
        shares = [
            (hit[:, :k] & (best[:, :k] > limit if limit is not None else True)).any(1).float().mean().reshape(1) * 100
            for limit in thresholds
        ]
        found.append(shares if isinstance(thrs, tuple) else shares[0])
    return found[0] if isinstance(topk, int) else found


class Accuracy(nn.Module):
    """:func:`accuracy` as a module."""

    def __init__(self, topk: tuple[int, ...] = (1,)) -> None:
        super().__init__()
        self.topk = topk

    def forward(self, pred: Tensor, target: Tensor) -> Any:
        return accuracy(pred, target, self.topk)


class BaseBackbone(BaseModule, metaclass=ABCMeta):
    """What turns images into features; ``train`` is there to be extended, by freezing stages for example."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Features of ``x``, usually a tuple with those of each stage."""

    def train(self, mode: bool = True) -> Any:
        return super().train(mode)


class BaseHead(BaseModule, metaclass=ABCMeta):
    """What turns features into losses."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)

    @abstractmethod
    def forward_train(self, *args: Any, **kwargs: Any) -> Any:
        """The losses of features and labels, by name."""


@LOSSES.register_module()
class CrossEntropyLoss(nn.Module):
    """Cross entropy of scores and class numbers, as MMClassification counts it: one value a sample, weighted, then
    the sum over ``avg_factor``, times ``loss_weight``."""

    def __init__(
        self,
        use_sigmoid: bool = False,
        use_soft: bool = False,
        reduction: str = "mean",
        loss_weight: float = 1.0,
        class_weight: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if use_sigmoid or use_soft:
            raise ConfigValueError("use_sigmoid and use_soft come with mmcls", hint="pip install mmcls==0.25.0")
        self.reduction, self.loss_weight, self.class_weight = reduction, loss_weight, class_weight

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        if reduction_override not in (None, "none", "mean", "sum"):
            raise AssertionError(f"reduction_override must be one of none, mean and sum, got {reduction_override!r}")
        classes = None if self.class_weight is None else cls_score.new_tensor(self.class_weight)
        loss = F.cross_entropy(cls_score, label, weight=classes, reduction="none")
        loss = loss if weight is None else loss * weight.float()
        reduction = reduction_override or self.reduction
        if avg_factor is not None and reduction == "sum":
            raise ValueError('avg_factor can not be used with reduction="sum"')
        if reduction == "mean":
            loss = loss.mean() if avg_factor is None else loss.sum() / avg_factor
        elif reduction == "sum":
            loss = loss.sum()
        return self.loss_weight * loss


@HEADS.register_module()
class ClsHead(BaseHead):
    """Scores → loss in training, class probabilities in tests."""

    def __init__(
        self, loss: Any = None, topk: int | tuple[int, ...] = (1,), cal_acc: bool = False, init_cfg: Any = None
    ) -> None:
        super().__init__(init_cfg)
        self.topk = (topk,) if isinstance(topk, int) else tuple(topk)
        self.compute_loss = build_model(loss or {"type": "CrossEntropyLoss", "loss_weight": 1.0})
        self.cal_acc = cal_acc

    def loss(self, cls_score: Tensor, gt_label: Tensor, **kwargs: Any) -> dict[str, Any]:
        losses: dict[str, Any] = {}
        if self.cal_acc:
            found = accuracy(cls_score, gt_label, self.topk)
            losses["accuracy"] = {f"top-{k}": share for k, share in zip(self.topk, found, strict=True)}
        losses["loss"] = self.compute_loss(cls_score, gt_label, avg_factor=len(cls_score), **kwargs)
        return losses

    def pre_logits(self, x: Any) -> Tensor:
        found: Tensor = x[-1] if isinstance(x, tuple) else x
        return found

    def scores(self, x: Any) -> Tensor:
        return self.pre_logits(x)

    def forward_train(self, cls_score: Any, gt_label: Tensor, **kwargs: Any) -> dict[str, Any]:
        try:
            return self.loss(self.scores(cls_score), gt_label, **kwargs)
        except Exception as error:
            error.etude_labels = (gt_label, getattr(self, "num_classes", None))  # type: ignore[attr-defined]
            raise

    def simple_test(self, cls_score: Any, softmax: bool = True, post_process: bool = True) -> Any:
        score = self.scores(cls_score)
        pred = F.softmax(score, dim=1) if softmax else score
        return list(pred.detach().cpu().numpy()) if post_process else pred


@HEADS.register_module()
class LinearClsHead(ClsHead):
    """A linear layer in front of :class:`ClsHead`."""

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        init_cfg: Any = {"type": "Normal", "layer": "Linear", "std": 0.01},  # noqa: B006
        **kwargs: Any,
    ) -> None:
        super().__init__(init_cfg=init_cfg, **kwargs)
        if num_classes <= 0:
            raise ValueError(f"num_classes={num_classes} must be a positive integer")
        self.in_channels, self.num_classes = in_channels, num_classes
        self.fc = nn.Linear(in_channels, num_classes)

    def scores(self, x: Any) -> Tensor:
        found: Tensor = self.fc(self.pre_logits(x))
        return found
