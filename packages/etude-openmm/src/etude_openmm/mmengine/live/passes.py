"""An endless iterator over a dataloader, and the losses that a model returns in a validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from etude.data.seeds import kept_generators
from etude.data.torch_loader import position
from etude.data.torch_loader.passes import Passes
from etude_openmm.mmengine.live.collate import is_element
from etude_openmm.mmengine.live.hooks.upkeep_hooks import set_epoch
from etude_openmm.mmengine.live.logging.history_buffer import HistoryBuffer
from etude_openmm.shared.logging import log_warning


class _InfiniteDataloaderIterator:
    """Repeats the batches of a dataloader without end. Samplers get ``set_epoch`` before each new pass.

    The first pass begins with the first batch that is asked for, so that a resumed run loads no batch in vain.
    """

    def __init__(self, dataloader: Any, passes: Passes | None = None) -> None:
        self._dataloader, self._passes = dataloader, passes
        self._iterator: Iterator[Any] | None = None
        self._epoch = 0
        if isinstance(dataloader, DataLoader) and dataloader.generator is None:
            torch.empty((), dtype=torch.int64).random_()  # as MMEngine, which makes an iterator here

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._first_pass()
        try:
            return next(self._iterator)
        except StopIteration:
            self._next_pass()
            self._iterator = self._begin()
            return next(self._iterator)

    def skip(self, count: int) -> None:
        """Skip the first ``count`` batches, as if they had been taken."""
        known = None if self._passes is None else self._passes.resumed
        if known is None:
            self._iterator = self._first_pass(count)
            return
        self._epoch, first = known
        if self._epoch == 0:
            self._iterator = self._first_pass(count - first)
        else:
            set_epoch(self._dataloader, self._epoch)
            self._iterator = self._begin(count - first)

    def _first_pass(self, skip: int = 0) -> Iterator[Any]:
        with kept_generators():
            return self._begin(skip, restart=self._next_pass)

    def _begin(self, skip: int = 0, restart: position.Restart | None = None) -> Iterator[Any]:
        if self._passes is None:
            return position.begin(self._dataloader, skip=skip, restart=restart)
        return self._passes.begin(self._epoch, skip, restart)

    def _next_pass(self) -> None:
        if self._epoch == 0:
            log_warning("Reach the end of the dataloader, it starts again; an InfiniteSampler would avoid the restart")
        self._epoch += 1
        set_epoch(self._dataloader, self._epoch)


class ValLosses:
    """Averages losses over a validation or test. Models return them as a last data element that holds only ``loss``."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.histories: dict[str, HistoryBuffer] = {}

    def __bool__(self) -> bool:
        return bool(self.histories)

    def take(self, outputs: Any) -> Any:
        """Return the predictions without the trailing losses, which are recorded."""
        last: Any = outputs[-1] if isinstance(outputs, list | tuple) and outputs else None
        if not is_element(last) or list(last.keys()) != ["loss"]:
            return outputs
        for name, value in dict(last.get("loss")).items():
            history = self.histories.setdefault(name, HistoryBuffer())
            for scalar in _scalars(name, value):
                history.append(scalar)
        return outputs[:-1]

    def means(self) -> dict[str, float]:
        """Return each loss under its own name, and the sum of those called loss as ``val_loss`` or ``test_loss``."""
        means = {name: history.mean() for name, history in self.histories.items()}
        total = sum(value for name, value in means.items() if "loss" in name)
        return {**means, f"{self.stage}_loss": total}


def _scalars(name: str, value: Any) -> list[torch.Tensor]:
    """Return the values to average: each loss of a list by itself, while training takes their sum."""
    if isinstance(value, torch.Tensor):
        return [value.detach().mean()]
    if isinstance(value, list | tuple):
        return [item.detach().mean() for item in value]
    raise TypeError(f"{name} is not a tensor or a list of tensors")
