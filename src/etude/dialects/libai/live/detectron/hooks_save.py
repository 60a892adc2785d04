"""detectron2's hooks that save."""

from __future__ import annotations

from typing import Any

from etude.dialects.libai import files
from etude.dialects.libai.live import hooks_save as shared
from etude.dialects.libai.live.detectron.trainer import HookBase


class PeriodicCheckpointer(files.PeriodicCheckpointer, HookBase):
    """:class:`etude.dialects.libai.files.PeriodicCheckpointer` as a hook."""

    def before_train(self) -> None:
        self.max_iter = self.trainer.max_iter

    def after_step(self) -> None:
        self.step(self.trainer.iter)

    def state_dict(self) -> dict[str, Any]:
        return files.PeriodicCheckpointer.state_dict(self) if self.recent_checkpoints else {}


class BestCheckpointer(shared.BestCheckpointer, HookBase):
    """Saves the best model with its iteration; what a resume goes on from stays the newest checkpoint."""

    logger_name = "detectron2.engine.hooks"
    missing_message = (
        "Given val metric {metric} does not seem to be computed/stored.Will not be checkpointing based on it."
    )

    def _save(self, iteration: int) -> None:
        last = getattr(self._checkpointer, "get_checkpoint_file", lambda: "")()
        self._checkpointer.save(self._file_prefix, iteration=iteration)
        if isinstance(last, str) and last and not last.endswith(f"{self._file_prefix}.pth"):
            self._checkpointer.tag_last_checkpoint(last.rpartition("/")[2])

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() if self.best_metric is not None else {}
