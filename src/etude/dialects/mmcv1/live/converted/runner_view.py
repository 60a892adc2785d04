"""As much of a runner as hooks of mmcv look at, read from a native run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from etude.core.run import Run
from etude.data.resume import Replay
from etude.dialects.mmcv1.live.hooks.lr_updater import per_group
from etude.dialects.mmcv1.live.parallel import MMDataParallel
from etude.dialects.mmcv1.live.runner.log_buffer import LogBuffer


def view_of(run: Run) -> View:
    """The one view of a run: hooks speak to each other through what they put there."""
    update: Any = run.update
    found: View | None = getattr(update, "view", None)
    if found is None:
        found = update.view = View(run)
    return found


class View:
    """A runner to look at. ``wraps``: the model is seen in the wrapper that MMTracking always puts around it."""

    mode = "train"
    #: How many iterations of training follow each other in the workflow of an iteration runner.
    turn = 1
    #: The native store brings everything back by itself.
    restored = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.log_buffer, self.logger = LogBuffer(), logging.getLogger("mmcv")
        self.meta: dict[str, Any] = {}
        self.known_meta = self.meta
        self.rank, self.world_size = run.world.rank, run.world.size
        self.model_name = type(run.model).__name__
        device = next((value.device for value in run.model.parameters()), torch.device("cpu"))
        self.wraps = device.type == "cuda"
        self._device = device
        self._wrapper: MMDataParallel | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"hooks of a converted config cannot ask the runner for {name!r}")

    @property
    def by_steps(self) -> bool:
        """Whether the original is an iteration runner's."""
        plan = self.run.plan
        return self.run.max_epochs is None and (plan is None or plan.train.epochs is None)

    @property
    def epoch(self) -> int:
        """An iteration runner learns that a pass is over only when it has drawn the first batch of the next one."""
        late = self.by_steps and self.run.step_in_epoch == 0
        return max(self.run.epoch - late, 0)

    @property
    def iter(self) -> int:
        return self.run.step

    @property
    def inner_iter(self) -> int:
        """An iteration runner counts within an entry of its workflow."""
        return self.run.step % self.turn if self.by_steps else self.run.step_in_epoch

    @property
    def max_epochs(self) -> int | None:
        """A run by heart has passes over a few batches in the place of epochs."""
        run = self.run
        if run.max_epochs is not None or self.by_steps or not (run.total_steps and run.steps_per_epoch):
            return run.max_epochs
        return -(-run.total_steps // run.steps_per_epoch)

    @property
    def max_iters(self) -> int | None:
        return self.run.total_steps

    _epoch, _iter, _inner_iter, _max_epochs, _max_iters = epoch, iter, inner_iter, max_epochs, max_iters

    @property
    def model(self) -> Any:
        if not self.wraps:
            return self.run.model
        if self._wrapper is None:
            devices: dict[str, Any] = {"device_ids": [self._device.index or 0]} if self._device.type == "cuda" else {}
            self._wrapper = MMDataParallel(self.run.model, **devices)
        return self._wrapper

    @property
    def optimizer(self) -> Any:
        """One, or several by name."""
        found: Any = getattr(self.run.update, "optimizer", None)
        return next(iter(self.run.optimizers.values())) if found is None else found

    @property
    def outputs(self) -> Any:
        return self.run.outputs

    @outputs.setter
    def outputs(self, value: Any) -> None:
        self.run.outputs = value

    @property
    def data_batch(self) -> Any:
        return self.run.batch

    @property
    def data_loader(self) -> Any:
        """Not the way into it that remembers where training is."""
        loader = self.run.data["train"]
        return loader.loader if isinstance(loader, Replay) else loader

    @property
    def hooks(self) -> list[Any]:
        return [hook.hook for hook in self.run.hooks if hasattr(hook, "hook")]

    _hooks = hooks

    @property
    def work_dir(self) -> str:
        return str(self.run.folder or ".")

    def current_lr(self) -> Any:
        return per_group(self.optimizer, lambda group: group["lr"])

    def current_momentum(self) -> Any:
        return per_group(self.optimizer, _momentum)

    def settings(self) -> list[dict[str, Any]]:
        """What the parameter groups say, without their parameters."""
        groups = [group for one in self.run.optimizers.values() for group in one.param_groups]
        return [{key: value for key, value in group.items() if key != "params"} for group in groups]

    def put_back(self, settings: list[dict[str, Any]]) -> None:
        groups = [group for one in self.run.optimizers.values() for group in one.param_groups]
        for group, own in zip(groups, settings, strict=True):
            group.update(own)

    def hand_over(self) -> None:
        """What hooks have put into the log buffer becomes events of the run."""
        buffer = self.log_buffer
        if not (buffer.val_history or buffer.output):
            return
        if self.mode == "train":
            for name, values in buffer.val_history.items():
                for value in values:
                    self.run.events.put(name, value)
            for name, value in buffer.output.items():
                if is_number(value):
                    self.run.events.put(name, value, last=True)
        buffer.clear()


@contextmanager
def kept_weights(model: torch.nn.Module) -> Iterator[None]:
    """Give the model its weights back as they were."""
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    yield
    for name, value in model.state_dict().items():
        if name in before:
            value.copy_(before[name])


def _momentum(group: Mapping[str, Any]) -> Any:
    return group.get("momentum", group["betas"][0] if "betas" in group else 0)


def is_number(value: Any) -> bool:
    """A number of Python, numpy or torch; results may be texts and lists, too, which nobody can draw or compare."""
    if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return not isinstance(value, bool)
    return isinstance(value, np.generic | np.ndarray) and value.size == 1 and np.issubdtype(value.dtype, np.number)
