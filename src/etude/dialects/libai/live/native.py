"""Native parts for converted LiBai and detectron2 configs: the same model, order of data, groups and schedule."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from etude.core.forward import Forward, Losses
from etude.core.hook import Hook
from etude.core.run import Run
from etude.core.update import Step
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.instantiate import instantiate, instantiate_detectron2
from etude.dialects.libai.live.data.batches import to_device
from etude.dialects.libai.live.data.loaders import one_dataset
from etude.dialects.libai.live.data.samplers import CyclicSampler
from etude.dialects.libai.live.detectron.data.loaders import DatasetFromList, MapDataset
from etude.dialects.libai.live.detectron.data.samplers import TrainingSampler
from etude.dialects.libai.live.detectron.schedule import LRMultiplier
from etude.dialects.libai.live.optim import build as optim
from etude.dialects.libai.live.optim import schedule
from etude.errors import ConfigError
from etude.registry import COLLATES, DATASETS, HOOKS, MODELS, OPTIMIZERS, SAMPLERS, UPDATES

_models: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def _known(made: nn.Module) -> nn.Module:
    """Remember the model, for the optimizer that is made of its parameters."""
    _models.add(made)
    return made


def _owner(params: Any) -> nn.Module:
    """Return the model that the parameters belong to."""
    given = {id(parameter) for group in params for parameter in group["params"]}
    owner = next((m for m in _models if any(id(p) in given for p in m.parameters())), None)
    if owner is None:
        raise ConfigError("the optimizer needs a model of the type libai.Model or detectron2.Model")
    return owner


def _device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


class _Stepped(Hook):
    """A learning rate scheduler that moves after every step."""

    priority = 10
    scheduler: Any = None

    def make(self, optimizer: torch.optim.Optimizer) -> Any:
        raise NotImplementedError

    def attach(self, run: Run) -> None:
        self.scheduler = self.make(next(iter(run.optimizers.values())))

    def before_step(self, run: Run) -> None:
        run.events.put("lr", run.optimizers[next(iter(run.optimizers))].param_groups[0]["lr"], last=True)

    def after_step(self, run: Run) -> None:
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


# -- LiBai -------------------------------------------------------------------------------------------------------------


@MODELS.register(name="libai.Model")
def model(config: Mapping[str, Any]) -> nn.Module:
    """Return what a lazy config of a model describes."""
    return _known(instantiate(dict_config(dict(config))))


@DATASETS.register(name="libai.Dataset")
class Dataset:
    """LiBai's data sets, each sample as a mapping of its fields; ``whole``: as it is, for a :class:`Collate`."""

    def __init__(self, config: Any, mixer: Any = None, whole: bool = False) -> None:
        listed = config if isinstance(config, list) else [config]
        mix = torch.utils.data.ConcatDataset if mixer is None else _found(mixer)
        self.made = one_dataset([dict_config(dict(item)) for item in listed], mix)
        self.whole = whole

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> Any:
        return self.made[index] if self.whole else to_device(self.made[index], None)


@COLLATES.register(name="libai.Collate")
class Collate:
    """A collate function of your own, its batch as a mapping of fields."""

    def __init__(self, function: Any) -> None:
        self.function = _found(function)

    def __call__(self, samples: Any) -> dict[str, Any]:
        return to_device(self.function(samples), None)


def _found(named: Any) -> Any:
    """The function that a converted config names."""
    return instantiate(dict_config(dict(named))) if isinstance(named, Mapping) else named


@SAMPLERS.register(name="libai.Cyclic")
class Cyclic:
    """The order of :class:`CyclicSampler`, epoch by epoch: the tail that fills no batch is never seen."""

    def __init__(self, dataset: Any, micro_batch_size: int, shuffle: bool = False, seed: int = 0) -> None:
        self.sampler = CyclicSampler(dataset, micro_batch_size, shuffle=shuffle, seed=seed)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.sampler.data_size_per_epoch

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler._order(self.epoch))


@OPTIMIZERS.register(name="libai.Optimizer")
def optimizer(params: Any, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer of a lazy config with its own groups, for the model that the parameters belong to."""
    made: torch.optim.Optimizer = optim.build_optimizer(dict_config(dict(config)), _owner(params))
    return made


@UPDATES.register(name="libai.Eager")
class Eager(Step):
    """The native step with LiBai's clipping: every group by the norm of its own gradients."""

    def __init__(
        self, forward: Forward, optimizers: Mapping[str, torch.optim.Optimizer], micro_batches: int = 1
    ) -> None:
        super().__init__(forward, optimizers, accumulate=micro_batches, device=_device_of(forward.model))

    def apply(self, run: Run) -> None:
        for each in self.optimizers:
            optim.clip_grad(each)
        super().apply(run)


@HOOKS.register(name="libai.Schedule")
class Schedule(_Stepped):
    """LiBai's scheduler."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def make(self, optimizer: torch.optim.Optimizer) -> Any:
        return schedule.build_lr_scheduler(dict_config(dict(self.config)), optimizer)


# -- detectron2 --------------------------------------------------------------------------------------------------------


@MODELS.register(name="detectron2.Model")
def detectron2_model(config: Mapping[str, Any]) -> nn.Module:
    """Return what a lazy config of a model describes."""
    return _known(instantiate_detectron2(dict_config(dict(config))))


@DATASETS.register(name="detectron2.Dataset")
def detectron2_dataset(config: Any, mapper: Any = None) -> Any:
    """A list of dicts or a data set, each sample through the mapper."""
    held = dict_config({"dataset": config, "mapper": mapper})
    made, mapping = instantiate_detectron2(held.dataset), instantiate_detectron2(held.mapper)
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
def detectron2_optimizer(params: Any, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer of a lazy config with its own groups, for the model that the parameters belong to."""
    held = dict_config(dict(config))
    held.params.model = _owner(params)
    made: torch.optim.Optimizer = instantiate_detectron2(held)
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
        super().__init__(_Everything(forward.model), optimizers, device=_device_of(forward.model))


@HOOKS.register(name="detectron2.Schedule")
class Multiplied(_Stepped):
    """detectron2's multiplier of the learning rates."""

    def __init__(self, config: Mapping[str, Any], max_iter: int) -> None:
        self.config, self.max_iter = config, max_iter

    def make(self, optimizer: torch.optim.Optimizer) -> Any:
        return LRMultiplier(optimizer, instantiate_detectron2(dict_config(dict(self.config))), self.max_iter)
