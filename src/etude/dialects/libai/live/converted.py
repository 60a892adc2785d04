"""Native parts for converted LiBai configs: the same model, order of data, groups, clipping and schedule."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from etude.core.hook import Hook
from etude.core.run import Run
from etude.core.update import Forward, Step
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.instantiate import instantiate
from etude.dialects.libai.live.data.batches import to_device
from etude.dialects.libai.live.data.loaders import one_dataset
from etude.dialects.libai.live.data.samplers import CyclicSampler
from etude.dialects.libai.live.optim import build as optim
from etude.dialects.libai.live.optim import schedule
from etude.errors import ConfigError
from etude.registry import COLLATES, DATASETS, HOOKS, MODELS, OPTIMIZERS, SAMPLERS, UPDATES

_models: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@MODELS.register(name="libai.Model")
def model(config: Mapping[str, Any]) -> nn.Module:
    """What a lazy config of a model describes."""
    made: nn.Module = instantiate(dict_config(dict(config)))
    _models.add(made)
    return made


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
    """The optimizer of a lazy config with its own groups, for the model that the parameters belong to."""
    given = {id(parameter) for group in params for parameter in group["params"]}
    owner = next((m for m in _models if any(id(p) in given for p in m.parameters())), None)
    if owner is None:
        raise ConfigError("libai.Optimizer needs a model of the type libai.Model")
    made: torch.optim.Optimizer = optim.build_optimizer(dict_config(dict(config)), owner)
    return made


@UPDATES.register(name="libai.Eager")
class Eager(Step):
    """The native step with LiBai's clipping: every group by the norm of its own gradients."""

    def __init__(
        self, forward: Forward, optimizers: Mapping[str, torch.optim.Optimizer], micro_batches: int = 1
    ) -> None:
        device = next((p.device for p in forward.model.parameters()), torch.device("cpu"))
        super().__init__(forward, optimizers, accumulate=micro_batches, device=device)

    def apply(self, run: Run) -> None:
        for each in self.optimizers:
            optim.clip_grad(each)
        super().apply(run)


@HOOKS.register(name="libai.Schedule")
class Schedule(Hook):
    """LiBai's scheduler, stepped after every step."""

    priority = 10

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.scheduler: Any = None

    def attach(self, run: Run) -> None:
        first = next(iter(run.optimizers.values()))
        self.scheduler = schedule.build_lr_scheduler(dict_config(dict(self.config)), first)

    def before_step(self, run: Run) -> None:
        run.events.put("lr", run.optimizers[next(iter(run.optimizers))].param_groups[0]["lr"], last=True)

    def after_step(self, run: Run) -> None:
        self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)
