"""detectron2's hooks that save."""

from __future__ import annotations

import weakref
from typing import Any

from etude.dialects.libai.live import distributed as dist
from etude.dialects.libai.live.detectron.trainer import HookBase
from etude.dialects.libai.live.hooks import hooks_save as shared
from etude.dialects.libai.live.resume.state import moment


class PeriodicCheckpointer(shared.PeriodicCheckpointer, HookBase):
    """LiBai's, as a hook of detectron2's trainers."""


class Companion:
    """Stands for the checkpointer in the processes that write nothing: adds their generators to what is written."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = weakref.proxy(trainer)

    def save(self, name: str, **kwargs: Any) -> None:
        moment(self.trainer, gather=True)

    def get_checkpoint_file(self) -> str:
        return ""


def together(trainer: Any, checkpointer: Any) -> Any:
    """Return what each process gives to its ``PeriodicCheckpointer``, so that all of them are there when one saves."""
    trainer.saves_together = dist.get_world_size() > 1
    return checkpointer if dist.is_main_process() else Companion(trainer)


class BestCheckpointer(shared.BestCheckpointer, HookBase):
    """Saves the best model with its iteration; where a resume starts stays the newest checkpoint."""

    logger_name = "detectron2.engine.hooks"
    missing_message = (
        "Given val metric {metric} does not seem to be computed/stored.Will not be checkpointing based on it."
    )

    def _best_checking(self) -> None:
        """Every process for itself: detectron2's scripts register this hook in the first one only."""
        saves = self._decide()
        if saves is not None:
            self._keep(*saves)

    def _save(self, iteration: int) -> None:
        last = getattr(self._checkpointer, "get_checkpoint_file", lambda: "")()
        self._checkpointer.save(self._file_prefix, iteration=iteration)
        if isinstance(last, str) and last and not last.endswith(f"{self._file_prefix}.pth"):
            self._checkpointer.tag_last_checkpoint(last.rpartition("/")[2])
