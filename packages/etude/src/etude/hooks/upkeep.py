"""Small housekeeping hooks: empty the allocator's cache, sync buffers over processes, set the epoch of samplers,
find the source of NaN, warn if torch compiled nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import distributed

from etude import torch_private
from etude.core.hook import POINTS, Call, Hook
from etude.errors import ConfigError
from etude.errors.spelling import suggest

if TYPE_CHECKING:
    from etude.core.run import Run


class EmptyCache(Hook):
    """Empties the cache of the accelerator's allocator at the given ``points``, if there is an accelerator."""

    def __init__(self, points: Sequence[str] = ("after_epoch",)) -> None:
        self.points = (points,) if isinstance(points, str) else tuple(points)
        for point in self.points:
            if point not in POINTS:
                raise ConfigError(f"EmptyCache: no point is called {point!r}", hint=suggest(point, POINTS))

    def calls(self) -> Mapping[str, Call]:
        return dict.fromkeys(self.points, self.empty)

    def empty(self, run: Run) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()


class SyncBuffers(Hook):
    """Averages floating-point buffers (batch-norm statistics) over processes after every epoch.

    A process alone has nothing to do.
    """

    @torch.no_grad()
    def after_epoch(self, run: Run) -> None:
        if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
            return
        buffers = [buffer for buffer in run.model.buffers() if buffer.is_floating_point()]
        for buffer in buffers:
            distributed.all_reduce(buffer)
        torch._foreach_div_(buffers, float(distributed.get_world_size()))


class SamplerSeed(Hook):
    """Calls ``set_epoch`` on the sampler, or the batch sampler's, of the training data.

    Étude's own loader needs no such help; a ``DistributedSampler`` repeats its order in every epoch without it.
    """

    priority = 10

    def before_epoch(self, run: Run) -> None:
        loader = run.data["train"]
        for owner in (loader, getattr(loader, "batch_sampler", None)):
            set_epoch = getattr(getattr(owner, "sampler", None), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(run.epoch)
                return


class DetectAnomaly(Hook):
    """Lets torch stop at the operation whose gradient is NaN, and print the line of the forward pass that called it.

    Steps become much slower: use it to find the cause, and remove it again.
    """

    def before_train(self, run: Run) -> None:
        self._before = torch.is_anomaly_enabled()
        torch.autograd.set_detect_anomaly(True)

    def after_train(self, run: Run) -> None:
        torch.autograd.set_detect_anomaly(self._before)


class Compiled(Hook):
    """Warns after the first step if ``torch.compile`` has made no graph of the model, as of a bare ``nn.Linear``."""

    def __init__(self, losses: int = 0) -> None:
        self._before: int | None = None
        self._losses = losses  # each is a separate graph

    def before_train(self, run: Run) -> None:
        self._before = torch_private.graphs()

    def after_step(self, run: Run) -> None:
        if self._before is not None and run.world.is_main and torch_private.graphs() - self._before <= self._losses:
            text = "train.compile has no effect: torch compiled nothing of the model, which runs as it is"
            warnings.warn(f"{text}; put its layers into a module with its own forward", stacklevel=2)
        self._before = None
