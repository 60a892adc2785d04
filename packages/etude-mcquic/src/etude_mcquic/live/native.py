"""Model, dataset and schedule for converted McQuic configs, see :mod:`etude_mcquic.convert`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from etude.core.hook import Call
from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.schedules.curves import Factor, Window
from etude_mcquic.live import builtin
from etude_mcquic.live.data.images import Folder, Lmdb, open_images
from etude_mcquic.live.data.transforms import getTrainingPreprocess, getTrainingTransform
from etude_mcquic.live.hooks import getAllHooks
from etude_mcquic.live.model.compound import Compound
from etude_mcquic.live.model.models import crop_of, find_model, join_alone
from etude_mcquic.live.registry import LossRegistry, LrSchedulerRegistry, find


class Compression(torch.nn.Module):
    """A compressor with its loss as a native model, which returns the losses of a batch of images.

    To do without it, write a module whose `forward` transforms the images and returns such losses.
    """

    def __init__(self, target: str = "PSNR", key: str = "Compressor", params: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        make = find_model(key)
        join_alone(make)
        self.compound = Compound(make(**dict(params or {})), find(LossRegistry, target)())
        self.transform = getTrainingTransform()

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        outputs = self.compound(self.transform(images) if self.training else images)
        return {"loss_rate": outputs["rate"], "loss_distortion": outputs["distortion"]}


def Images(path: str, key: str = "Compressor", at_least: int = 1) -> Folder | Lmdb:
    """Return random crops of images in a folder or an LMDB. Fewer than ``at_least`` are repeated within an epoch.

    To do without it, write a dataset that opens your images and crops them.
    """
    images = open_images(path, transform=getTrainingPreprocess(crop_of(find_model(key))))
    images.repeat = -(-max(at_least, len(images)) // len(images))
    return images


class Hook(EngineHook):
    """A hook of McQuic's own at the points of a native run.

    To do without it, derive a hook from etude.Hook that changes the model as this one does.
    """

    def __init__(self, key: str, params: Mapping[str, Any]) -> None:
        self.chains = getAllHooks([{"key": key, "params": params}])
        self.key = key

    @property
    def name(self) -> str:
        return self.key

    def calls(self) -> Mapping[str, Call]:
        points = {"epochStartHook": "before_epoch", "epochFinishHook": "after_epoch"}
        return {point: partial(self._call, kind) for kind, point in points.items() if len(self.chains[kind])}

    def _call(self, kind: str, run: Run) -> None:
        trainer = SimpleNamespace(_model=run.model.compound, rank=run.world.rank)
        logger = SimpleNamespace(add_scalar=lambda tag, value, global_step: run.events.put(tag, value))
        self.chains[kind](run.done, run.epochs_done, trainer, logger=logger)


class PerEpoch:
    """A scheduler of McQuic's registry as a native curve: its learning rate of each epoch as a factor of the base.

    To do without it, write native phases, such as Linear and Cosine.
    """

    def __init__(self, key: str, params: Mapping[str, Any] | None = None, base: float = 1.0) -> None:
        builtin.registerBuiltinFunctions()
        self.base = base
        weight = torch.nn.Parameter(torch.zeros(1))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD([weight], lr=base, momentum=0.9)
        self.scheduler = find(LrSchedulerRegistry, key)(self.optimizer, **dict(params or {}))
        self.factors = [self._current_factor()]

    def prepare(self, window: Window) -> Factor:
        length = window.steps_per_epoch or 1
        return lambda step: self.factor(int(window.begin + step) // length)

    def factor(self, epoch: int) -> float:
        while len(self.factors) <= epoch:
            self.optimizer.step()
            self.scheduler.step()
            self.factors.append(self._current_factor())
        return self.factors[epoch]

    def _current_factor(self) -> float:
        """Return the factor whose product with the base is exactly the scheduler's rate, to the last bit."""
        rate = float(self.optimizer.param_groups[0]["lr"])
        factor = rate / self.base
        for candidate in (factor, math.nextafter(factor, math.inf), math.nextafter(factor, 0.0)):
            if self.base * candidate == rate:
                return candidate
        return factor
