"""Adapters for converted configs: let Étude's native loop use models and data written for LiBai and detectron2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from etude.core.hook import Hook
from etude.core.run import Run
from etude.dialects import imports
from etude_libai.lazy.extra import dict_config
from etude_libai.lazy.targets import locate
from etude_libai.live.data.loaders import trivial_batch_collator
from etude_libai.live.data.structures import to_device
from etude_libai.live.optim.build import own_parameters

#: A converted config imports this module before the user's modules, which import the old names.
imports.install()


def settings(of: Mapping[str, Any]) -> Any:
    """Return a mapping whose keys are attributes, too, as classes get it from lazy configs.

    To do without it, let the class take the values as arguments of its own.
    """
    return dict_config(dict(of))


def found(name: str) -> Any:
    """Return the function or class of that name.

    To do without it, let the class that gets it take the name, or look it up itself.
    """
    return locate(name)


class Fields:
    """Collates LiBai's samples, as its loaders or the function ``collate`` do, into fields by name for the model.

    To do without it, let the dataset give dicts of tensors, and leave out `collate`.
    """

    def __init__(self, collate: str = "") -> None:
        self.collate = locate(collate) if collate else trivial_batch_collator

    def __call__(self, samples: Sequence[Any]) -> dict[str, Any]:
        return to_device(self.collate(samples), None)


def Mapped(dataset: Any, mapper: Any = None) -> Any:
    """Return a dataset (or list of dicts) whose samples go through ``mapper``, an object or the name of a function.

    To do without it, apply the mapper in a dataset of your own.
    """
    if mapper is None:
        return dataset
    # Needs fvcore, which users of LiBai do not have.
    from etude_libai.live.detectron.data import MapDataset

    return MapDataset(dataset, locate(mapper) if isinstance(mapper, str) else mapper)


def whole(samples: list[Any]) -> list[Any]:
    """Collate samples into a list, which is the only argument of the model.

    To do without it, let the model take batches of tensors.
    """
    return [samples]


class ClipByGroup(Hook):
    """Clips gradients as LiBai does: the parameters of each group by the norm of that group.

    To do without it, write `optim.clip_norm`, which clips all parameters by one norm.
    """

    def __init__(self, max_norm: float, norm_type: float) -> None:
        self.max_norm, self.norm_type = max_norm, norm_type
        self.groups: list[list[torch.nn.Parameter]] = []

    def attach(self, run: Run) -> None:
        groups = [group for optimizer in run.optimizers.values() for group in optimizer.param_groups]
        decay = {id(parameter): group.get("weight_decay") for group in groups for parameter in group["params"]}
        together: dict[Any, list[torch.nn.Parameter]] = {}
        for _, _, parameter in own_parameters(run.model):  # in LiBai's order, as the sum in a norm rounds
            together.setdefault(decay.get(id(parameter)), []).append(parameter)
        self.groups = list(together.values())

    def before_update(self, run: Run) -> None:
        for group in self.groups:
            torch.nn.utils.clip_grad_norm_(group, self.max_norm, self.norm_type)
