"""Adapters that converted LiBai and detectron2 configs name: the native engine calls their models and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook
from etude.core.run import Run
from etude.dialects import imports
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.targets import locate
from etude.dialects.libai.live.data.batches import to_device
from etude.dialects.libai.live.data.loaders import trivial_batch_collator
from etude.dialects.libai.live.optim.build import own_parameters

#: A converted config lists this module before your own, which import the old names.
imports.install()


def settings(of: Mapping[str, Any]) -> Any:
    """Return a mapping as lazy configs give it to your classes: its keys are attributes, too."""
    return dict_config(dict(of))


def found(name: str) -> Any:
    """Return the function or class of that name."""
    return locate(name)


class Fields:
    """Collates LiBai's samples as its loaders do, or by the function ``collate``, and gives the model the fields of
    the batch by name."""

    def __init__(self, collate: str = "") -> None:
        self.collate = locate(collate) if collate else trivial_batch_collator

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        return to_device(self.collate(samples), None)


def Mapped(dataset: Any, mapper: Any = None) -> Any:
    """Return a list of dicts or a data set, each sample through detectron2's mapper, an object or a function's name."""
    if mapper is None:
        return dataset
    # Needs fvcore, which users of LiBai do not have.
    from etude.dialects.libai.live.detectron.data import MapDataset

    return MapDataset(dataset, locate(mapper) if isinstance(mapper, str) else mapper)


def whole(samples: list[Any]) -> list[Any]:
    """Keep a batch a list of its samples, as the one argument of the model."""
    return [samples]


class ClipByGroup(Hook):
    """Clips as LiBai does: parameters of equal options by the norm of their own gradients."""

    def __init__(self, max_norm: float, norm_type: float) -> None:
        self.max_norm, self.norm_type = max_norm, norm_type
        self.groups: list[list[torch.nn.Parameter]] = []

    def attach(self, run: Run) -> None:
        groups = [group for optimizer in run.optimizers.values() for group in optimizer.param_groups]
        decay = {id(parameter): group.get("weight_decay") for group in groups for parameter in group["params"]}
        together: dict[Any, list[torch.nn.Parameter]] = {}
        for _, _, parameter in own_parameters(run.model):  # in LiBai's order: a norm is a sum, and sums round
            together.setdefault(decay.get(id(parameter)), []).append(parameter)
        self.groups = list(together.values())

    def before_update(self, run: Run) -> None:
        for group in self.groups:
            torch.nn.utils.clip_grad_norm_(group, self.max_norm, self.norm_type)
