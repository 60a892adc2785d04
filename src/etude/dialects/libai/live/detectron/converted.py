"""Native parts for converted detectron2 configs: the same model, order of data, losses and schedule."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from etude.core.hook import Hook
from etude.core.run import Run
from etude.core.update import Forward, Losses, Step
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.instantiate import instantiate_detectron2 as instantiate
from etude.dialects.libai.live.detectron.data.loaders import DatasetFromList, MapDataset
from etude.dialects.libai.live.detectron.data.samplers import TrainingSampler
from etude.dialects.libai.live.detectron.schedule import LRMultiplier
from etude.errors import ConfigError
from etude.registry import COLLATES, DATASETS, HOOKS, MODELS, OPTIMIZERS, SAMPLERS, UPDATES

_models: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@MODELS.register(name="detectron2.Model")
def model(config: Mapping[str, Any]) -> nn.Module:
    """What a lazy config of a model describes."""
    made: nn.Module = instantiate(dict_config(dict(config)))
    _models.add(made)
    return made


@DATASETS.register(name="detectron2.Dataset")
def dataset(config: Any, mapper: Any = None) -> Any:
    """A list of dicts or a data set, each sample through the mapper."""
    held = dict_config({"dataset": config, "mapper": mapper})
    made, mapping = instantiate(held.dataset), instantiate(held.mapper)
    listed = DatasetFromList(list(made), copy=False) if not hasattr(made, "__getitem__") or _is_list(made) else made
    return listed if mapping is None else MapDataset(listed, mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or type(value).__name__ == "ListConfig"


@SAMPLERS.register(name="detectron2.Training")
class Training:
    """The first ``count`` indices of a :class:`TrainingSampler`: all that a run draws, as one epoch."""

    def __init__(self, dataset: Any, count: int, seed: int) -> None:
        by_chance = int(np.random.RandomState(seed % 2**32).randint(2**31))  # what detectron2 draws after seeding
        self.sampler, self.count = TrainingSampler(len(dataset), seed=by_chance), count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(self.sampler, self.count)


@COLLATES.register(name="detectron2.List")
def as_list(batch: list[Any]) -> list[Any]:
    """A batch stays the list of its samples."""
    return batch


@OPTIMIZERS.register(name="detectron2.Optimizer")
def optimizer(params: Any, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer of a lazy config with its own groups, for the model that the parameters belong to."""
    given = {id(parameter) for group in params for parameter in group["params"]}
    owner = next((m for m in _models if any(id(p) in given for p in m.parameters())), None)
    if owner is None:
        raise ConfigError("detectron2.Optimizer needs a model of the type detectron2.Model")
    held = dict_config(dict(config))
    held.params.model = owner
    made: torch.optim.Optimizer = instantiate(held)
    return made


class _Everything(Forward):
    """detectron2 learns from every value that the model returns."""

    def __call__(self, batch: Any) -> tuple[Losses, Any, Any]:
        output = self.model(batch)
        return ({"loss": output} if isinstance(output, torch.Tensor) else dict(output)), output, None


@UPDATES.register(name="detectron2.Simple")
class Simple(Step):
    """The native step with detectron2's sum of losses."""

    def __init__(self, forward: Forward, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        device = next((p.device for p in forward.model.parameters()), torch.device("cpu"))
        super().__init__(_Everything(forward.model), optimizers, device=device)


@HOOKS.register(name="detectron2.Schedule")
class Schedule(Hook):
    """detectron2's multiplier of the learning rates, stepped after every step."""

    priority = 10

    def __init__(self, config: Mapping[str, Any], max_iter: int) -> None:
        self.config, self.max_iter = config, max_iter
        self.scheduler: Any = None

    def attach(self, run: Run) -> None:
        first = next(iter(run.optimizers.values()))
        self.scheduler = LRMultiplier(first, instantiate(dict_config(dict(self.config))), self.max_iter)

    def before_step(self, run: Run) -> None:
        run.events.put("lr", run.optimizers[next(iter(run.optimizers))].param_groups[0]["lr"], last=True)

    def after_step(self, run: Run) -> None:
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)
