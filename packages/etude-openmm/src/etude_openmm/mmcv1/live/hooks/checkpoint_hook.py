"""Checkpoints at intervals, and the pruning of old ones."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from etude.checkpoint.formats.torch_file import Patience
from etude.errors import SaveError
from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.runner import exact_resume
from etude_openmm.mmcv1.live.utils.dist import allreduce_params, master_only

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


@HOOKS.register_module()
class CheckpointHook(Hook):
    """Save every ``interval`` epochs (or iterations) and at the end; keep ``max_keep_ckpts`` of them.

    Pruning walks back from the kept ones in steps of ``interval`` and stops at the first gap, so files that lie off
    the grid (a last save between two intervals) stay.
    """

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        sync_buffer: bool = False,
        file_client_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.interval, self.by_epoch, self.save_optimizer = interval, by_epoch, save_optimizer
        self.out_dir, self.max_keep_ckpts, self.save_last = out_dir, max_keep_ckpts, save_last
        self.sync_buffer, self.file_client_args = sync_buffer, file_client_args
        self.args = kwargs
        self._patience = Patience()

    def before_run(self, runner: BaseRunner) -> None:
        self.out_dir = target_folder(self.out_dir, runner)
        runner.logger.info(f"Checkpoints will be saved to {self.out_dir} by HardDiskBackend.")
        self.args.setdefault("create_symlink", True)

    def after_train_epoch(self, runner: BaseRunner) -> None:
        if not self.by_epoch:
            return
        if self.every_n_epochs(runner, self.interval) or (self.save_last and self.is_last_epoch(runner)):
            runner.logger.info(f"Saving checkpoint at {runner.epoch + 1} epochs")
            self._save(runner)

    def after_train_iter(self, runner: BaseRunner) -> None:
        if self.by_epoch:
            return
        if self.every_n_iters(runner, self.interval) or (self.save_last and self.is_last_iter(runner)):
            runner.logger.info(f"Saving checkpoint at {runner.iter + 1} iterations")
            self._save(runner)

    def _save(self, runner: BaseRunner) -> None:
        if self.sync_buffer:
            allreduce_params(runner.model.buffers())
        if runner.rank != 0 and self.save_optimizer and self.out_dir is not None:
            runner.save_own_part(self.out_dir, **self.args)
        self._save_checkpoint(runner)

    @master_only
    def _save_checkpoint(self, runner: BaseRunner) -> None:
        assert self.out_dir is not None
        runner.later.flush()
        # As in mmcv (its PR 1776): with by_epoch=False the epoch runner still writes epoch_N.pth, and the name below,
        # iter_N.pth, is that of no file: ``last_ckpt`` is wrong and pruning finds nothing.
        current = runner.epoch + 1 if self.by_epoch else runner.iter + 1
        template = self.args.get("filename_tmpl", "epoch_{}.pth" if self.by_epoch else "iter_{}.pth")
        name, last = template.format(current), self._is_last(runner)
        path, before = os.path.join(self.out_dir, name), _named_last(runner)

        def failed(error: SaveError) -> None:
            _name_last(runner, before)
            self._patience.forgive(error, runner.logger.error, last=last)

        # Other ranks write their parts at once. Those of a file that replaces another would not fit it meanwhile.
        alone = runner.world_size == 1 or name != template
        runner.saver = self
        try:
            with runner.later.deferring(failed, only_if=not last and alone and runner.all_is_ours()):
                runner.save_checkpoint(self.out_dir, save_optimizer=self.save_optimizer, **self.args)
        except SaveError as error:
            failed(error)
            return
        # As in mmcv, only after writing: the file itself names the checkpoint before it.
        _name_last(runner, path)
        runner.later.then(self._patience.renew)
        if self.max_keep_ckpts > 0:
            runner.later.then(partial(self._prune, template, current, path))

    def _is_last(self, runner: BaseRunner) -> bool:
        return self.is_last_epoch(runner) if self.by_epoch else self.is_last_iter(runner)

    def _prune(self, template: str, current: int, newest: str) -> None:
        assert self.out_dir is not None
        # An interval of 0 ends here in a ValueError, as in mmcv.
        for step in range(current - self.max_keep_ckpts * self.interval, 0, -self.interval):
            path = os.path.join(self.out_dir, template.format(step))
            # A template without a number names the file just written, which mmcv would delete.
            if path == newest or not os.path.isfile(path):
                break
            os.remove(path)
            exact_resume.remove_all(path)


def _named_last(runner: BaseRunner) -> str | None:
    """Return the newest file, as the run's ``meta`` names it."""
    found: str | None = (runner.meta or {}).get("hook_msgs", {}).get("last_ckpt")
    return found


def _name_last(runner: BaseRunner, path: str | None) -> None:
    if path == _named_last(runner) or runner.meta is None:
        return
    messages = runner.meta.setdefault("hook_msgs", {})
    messages["last_ckpt"] = path
    if path is None:
        del messages["last_ckpt"]
    if not messages:
        del runner.meta["hook_msgs"]


def target_folder(out_dir: str | None, runner: BaseRunner) -> str:
    """Return where a hook saves: the run's folder, or a folder of the run's name inside ``out_dir``."""
    if not out_dir or out_dir == runner.work_dir:
        if runner.work_dir is None:
            raise AssertionError("no folder to save to: give the runner a work_dir, or the hook an out_dir")
        return runner.work_dir
    name = os.path.basename((runner.work_dir or "run").rstrip(os.sep))
    return os.path.join(out_dir, name)
