"""MMClassification's logger for Weights & Biases, which keeps checkpoints as artifacts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.dialects.mmcv1.live.checks import require
from etude.dialects.mmcv1.live.hooks import evaluation
from etude.dialects.mmcv1.live.hooks.checkpoint_hook import CheckpointHook
from etude.dialects.mmcv1.live.hooks.hook import HOOKS
from etude.dialects.mmcv1.live.logger.trackers import WandbLoggerHook
from etude.dialects.mmcv1.live.utils.dist import master_only

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


@HOOKS.register_module()
class MMClsWandbHook(WandbLoggerHook):
    """``WandbLoggerHook``, and with ``log_checkpoint`` every saved file as an artifact, results beside it if asked for.

    The table of ``num_eval_images`` pictures with their predictions is not made: it works on images.
    """

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        log_checkpoint: bool = False,
        log_checkpoint_metadata: bool = False,
        num_eval_images: int = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(init_kwargs, interval, **kwargs)
        self.log_checkpoint, self.num_eval_images = log_checkpoint, num_eval_images
        self.log_checkpoint_metadata = log_checkpoint and log_checkpoint_metadata
        self.ckpt_hook: CheckpointHook | None = None
        self.eval_hook: evaluation.EvalHook | None = None

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        self.ckpt_hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
        self.eval_hook = next((hook for hook in runner.hooks if isinstance(hook, evaluation.EvalHook)), None)
        if self.log_checkpoint and self.ckpt_hook is None:
            self.log_checkpoint = self.log_checkpoint_metadata = False
            runner.logger.warning("To log checkpoints in MMClsWandbHook, a CheckpointHook is needed.")
        if self.log_checkpoint_metadata and self.eval_hook is None:
            self.log_checkpoint_metadata = False
            runner.logger.warning("To log metadata of checkpoints in MMClsWandbHook, an EvalHook is needed.")
        if self.log_checkpoint_metadata and self.ckpt_hook is not None and self.eval_hook is not None:
            saves, tests = self.ckpt_hook.interval, self.eval_hook.interval
            require(
                saves % tests == 0,
                f"To log metadata of checkpoints, their interval ({saves}) must be divisible by that of the "
                f"evaluation ({tests})",
            )
        if self.num_eval_images > 0:
            runner.logger.info("MMClsWandbHook logs no pictures here; num_eval_images=0 says so in the config.")

    @master_only
    def after_train_epoch(self, runner: BaseRunner) -> None:
        results = dict(runner.log_buffer.output)
        super().after_train_epoch(runner)
        hook = self.ckpt_hook
        if not self.by_epoch or not self.log_checkpoint or hook is None:
            return
        if self.every_n_epochs(runner, hook.interval) or (hook.save_last and self.is_last_epoch(runner)):
            self._keep(hook, "epoch", runner.epoch + 1, results)

    def after_train_iter(self, runner: BaseRunner) -> None:
        results = dict(runner.log_buffer.output)
        evaluated = runner.log_buffer.ready and self.get_mode(runner) == "val"
        super().after_train_iter(runner)
        hook = self.ckpt_hook
        if self.by_epoch or not self.log_checkpoint or hook is None or runner.rank != 0:
            return
        if self.log_checkpoint_metadata and not evaluated:
            return  # the evaluation of this iteration calls every logger first, and comes back with its results
        if self.every_n_iters(runner, hook.interval) or (hook.save_last and self.is_last_iter(runner)):
            self._keep(hook, "iter", runner.iter + 1, results)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close(self.service.finish)

    def _keep(self, hook: CheckpointHook, unit: str, number: int, results: dict[str, Any]) -> None:
        assert hook.out_dir is not None
        metadata = None
        if self.log_checkpoint_metadata:
            numbers = {key: value for key, value in results.items() if self.is_scalar(value)}
            metadata = {unit: number, **{key: value for key, value in numbers.items() if key != "eval_iter_num"}}
        self.outbox.send(self._send_file, os.path.join(hook.out_dir, f"{unit}_{number}.pth"), metadata)

    def _send_file(self, path: str, metadata: dict[str, Any] | None) -> None:
        name, stem = f"run_{self.service.run.id}_model", os.path.splitext(os.path.basename(path))[0]
        self.service.files(name, [Path(path)], aliases=[stem, "latest"], metadata=metadata)
