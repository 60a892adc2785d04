"""Saves periodic, last and best checkpoints, and removes old ones."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.fileio import FileClient, get_file_backend

from etude.checkpoint.formats.torch_file import Patience
from etude.errors import SaveError
from etude_openmm.mmengine import files
from etude_openmm.mmengine.live.dist.utils import is_main_process
from etude_openmm.mmengine.live.hooks.hook import OUTDATED, DataBatch, Hook
from etude_openmm.shared.errors import ConfigKeyError
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.metric_rules import BETTER, GREATER_KEYS, LESS_KEYS, WORST, guess, missing_result


class BestRules(Hook):
    """Reads ``save_best``, ``rule``, ``greater_keys`` and ``less_keys``. Raises an error early if they are wrong."""

    rule_map = BETTER
    init_value_map = WORST
    _default_greater_keys = list(GREATER_KEYS)
    _default_less_keys = list(LESS_KEYS)

    save_best: str | list[str] | None
    key_indicators: list[str]
    rules: list[str | None]
    is_better_than: dict[str, Callable[[float, float], bool]]

    def _read_best(
        self,
        save_best: str | list[str] | None,
        rule: str | list[str] | None,
        greater_keys: Sequence[str] | str | None,
        less_keys: Sequence[str] | str | None,
    ) -> None:
        self.greater_keys = _keys(greater_keys, self._default_greater_keys)
        self.less_keys = _keys(less_keys, self._default_less_keys)
        self.save_best, self.rule = save_best, rule
        if save_best is None:
            return
        assert isinstance(save_best, str) or _all_text(save_best), (
            f'"save_best" should be a str or list of str or None, but got {type(save_best)}'
        )
        names = [save_best] if isinstance(save_best, str) else list(save_best)
        assert len(set(names)) == len(names), f'Find duplicate element in "save_best": {names}'
        assert len(names) == 1 or "auto" not in names, (
            'Only support one "auto" in "save_best" list, and nothing beside it'
        )
        assert rule is None or isinstance(rule, str) or _all_text(rule), (
            f'"rule" should be a str or list of str or None, but got {type(rule)}'
        )
        self.save_best = names
        self._init_rule(rule, names)

    def _init_rule(self, rules: Any, key_indicators: str | list[str]) -> None:
        """Set the names and rules. Called again once ``auto`` has found its metric."""
        names = [key_indicators] if isinstance(key_indicators, str) else key_indicators
        given = [rules] if rules is None or isinstance(rules, str) else list(rules)
        assert len(given) in (1, len(names)), (
            f'Number of "rule" must be 1 or the same as number of "save_best", but got {len(given)}.'
        )
        given = given * len(names) if len(given) == 1 else given
        self.rules, self.is_better_than = [], {}
        for name, rule in zip(names, given, strict=True):
            rule = self._rule_of(name, rule)
            self.rules.append(rule)
            if rule is not None:
                self.is_better_than[name] = BETTER[rule]
        self.key_indicators = names

    def _rule_of(self, name: str, rule: str | None) -> str | None:
        if rule is not None and rule not in BETTER:
            raise KeyError(f"rule must be greater, less or None, but got {rule}")
        if rule is None and name != "auto":
            rule = guess(name, self.greater_keys, self.less_keys)
            if rule is None:
                raise ValueError(f"Cannot infer the rule for key {name}, thus rule must be specified: greater or less")
        return rule


class CheckpointHook(BestRules):
    """``epoch_N.pth`` or ``iter_N.pth`` every ``interval`` from ``save_begin`` on, and at the end with ``save_last``.

    ``max_keep_ckpts`` bounds how many of them stay. ``save_best`` keeps ``best_<metric>_epoch_N.pth`` for a metric, a
    list of metrics or ``'auto'`` (the first one); a new best also renews the newest periodic file, so that it knows
    the best score. A file is removed only when the one that replaces it is safely written. ``published_keys`` makes
    small copies of the last and best files at the end, with a hash in their names.
    """

    out_dir: str
    priority = "VERY_LOW"

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | Path | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: Sequence[str] | str | None = None,
        less_keys: Sequence[str] | str | None = None,
        file_client_args: dict[str, Any] | None = None,
        filename_tmpl: str | None = None,
        backend_args: dict[str, Any] | None = None,
        published_keys: str | list[str] | None = None,
        save_begin: int = 0,
        **kwargs: Any,
    ) -> None:
        if file_client_args is not None and backend_args is not None:
            raise ValueError('"file_client_args" and "backend_args" cannot be set at the same time')
        if file_client_args is not None:
            log_warning(OUTDATED)
        if save_begin < 0:
            raise ValueError(f"save_begin should not be less than 0, but got {save_begin}")
        self.interval, self.by_epoch = interval, by_epoch
        self.save_optimizer, self.save_param_scheduler = save_optimizer, save_param_scheduler
        self.out_dir = out_dir  # type: ignore[assignment]
        self.max_keep_ckpts, self.save_last, self.save_begin = max_keep_ckpts, save_last, save_begin
        self.args = kwargs
        self.file_client_args, self.backend_args = file_client_args, backend_args
        self.filename_tmpl = filename_tmpl or ("epoch_{}.pth" if by_epoch else "iter_{}.pth")
        self._read_best(save_best, rule, greater_keys, less_keys)
        self.best_ckpt_path: str | None = None
        self.best_ckpt_path_dict: dict[str, str | None] = {}
        self.keep_ckpt_ids: deque[int] = deque()
        self.last_ckpt: str | None = None
        self._patience = Patience()
        self.published_keys = _published(published_keys)

    # -- points --------------------------------------------------------------------------------------------------

    def before_train(self, runner: Any) -> None:
        self._settle_folder(runner)
        runner.logger.info(f"Checkpoints will be saved to {self.out_dir}.")
        for name in files.sweep(self.out_dir) if is_main_process() else ():
            runner.logger.info(f"removed unfinished checkpoint {name}")
        infos = runner.message_hub.runtime_info
        if self.save_best is not None:
            for name in self.key_indicators:
                self._set_best_path(name, infos.get(self._info("best_ckpt", name)))
        if self.max_keep_ckpts > 0:
            ids = list(infos.get("keep_ckpt_ids", []))
            surplus, kept = ids[: -self.max_keep_ckpts], ids[-self.max_keep_ckpts :]
            for step in surplus:
                self._remove(self._path(step))
            self.keep_ckpt_ids = deque(kept, self.max_keep_ckpts)

    def after_train_epoch(self, runner: Any) -> None:
        if not self.by_epoch:
            return
        last = self.save_last and self.is_last_train_epoch(runner)
        if last or self.every_n_epochs(runner, self.interval, self.save_begin):
            runner.logger.info(f"Saving checkpoint at {runner.epoch + 1} epochs")
            self._save_checkpoint(runner)

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        if self.by_epoch:
            return
        last = self.save_last and self.is_last_train_iter(runner)
        if last or self.every_n_train_iters(runner, self.interval, self.save_begin):
            runner.logger.info(f"Saving checkpoint at {runner.iter + 1} iterations")
            self._save_checkpoint(runner)

    def after_val_epoch(self, runner: Any, metrics: dict[str, Any] | None = None) -> None:
        if not metrics:
            runner.logger.warning("the validation gave no metrics: there is nothing to choose a best checkpoint by")
            return
        self._save_best_checkpoint(runner, metrics)

    def after_train(self, runner: Any) -> None:
        runner.later.flush()
        self._save_where_it_stopped(runner)
        if self.published_keys is None:
            return
        best = [self.best_ckpt_path, *self.best_ckpt_path_dict.values()]
        for path in [self.last_ckpt if self.save_last else None, *best]:
            if path is not None:
                self._publish_model(runner, path)

    # -- saving --------------------------------------------------------------------------------------------------

    def _save_checkpoint(self, runner: Any) -> None:
        # The counter of what was just finished moves on after this hook.
        meta = {"epoch": runner.epoch + int(self.by_epoch), "iter": runner.iter + int(not self.by_epoch)}
        step = meta["epoch" if self.by_epoch else "iter"]
        runner.later.flush()
        last = self.is_last_train_epoch(runner) if self.by_epoch else self.is_last_train_iter(runner)
        before, kept = self.last_ckpt, list(self.keep_ckpt_ids)

        def failed(error: SaveError) -> None:
            self._patience.forgive(error, runner.logger.error, last=last)
            self._forget_attempt(runner, before, kept)

        try:
            with runner.later.deferring(failed, only_if=not last and runner.all_is_ours()):
                self._save_checkpoint_with_step(runner, step, meta)
        except SaveError as error:
            failed(error)
        else:
            runner.later.then(self._patience.renew)

    def _save_where_it_stopped(self, runner: Any) -> None:
        """Save the last epoch or iteration if a hook has ended training and ``save_last`` is set."""
        if not self.save_last or getattr(runner.train_loop, "stop_training", False) is not True:
            return
        step = runner.epoch if self.by_epoch else runner.iter
        if step > 0 and self.last_ckpt != self._path(step):
            unit = "epochs" if self.by_epoch else "iterations"
            runner.logger.info(f"Saving checkpoint at {step} {unit}, where training was stopped")
            self._save_checkpoint_with_step(runner, step, {"epoch": runner.epoch, "iter": runner.iter})

    def _forget_attempt(self, runner: Any, before: str | None, kept: list[int]) -> None:
        """Forget a save that failed: the checkpoint before it is the last one again, and nothing is removed."""
        self.last_ckpt, self.keep_ckpt_ids = before, deque(kept, self.keep_ckpt_ids.maxlen)
        _put_back(runner.message_hub, {"last_ckpt": before, "keep_ckpt_ids": kept or None})

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict[str, Any]) -> None:
        obsolete = self._note_kept(runner, step) if self.max_keep_ckpts > 0 else None
        self.last_ckpt = self._path(step)
        runner.message_hub.update_info("last_ckpt", self.last_ckpt)
        self._save(
            runner,
            self.filename_tmpl.format(step),
            meta,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            by_epoch=self.by_epoch,
        )
        runner.later.then(partial(self._point_to_last, runner.work_dir, self.last_ckpt, obsolete))

    def _point_to_last(self, work_dir: str, path: str, obsolete: int | None) -> None:
        """Let ``last_checkpoint`` name a file that is written, and remove the one that is one too many."""
        if is_main_process():
            files.write_text(os.path.join(work_dir, "last_checkpoint"), path)
        if obsolete is not None:
            self._remove(self._path(obsolete))

    def _note_kept(self, runner: Any, step: int) -> int | None:
        """Add ``step`` to those that are kept; return the step whose file is one too many, if there is one."""
        obsolete = None
        if not self.keep_ckpt_ids or self.keep_ckpt_ids[-1] != step:
            if len(self.keep_ckpt_ids) == self.max_keep_ckpts:
                obsolete = self.keep_ckpt_ids.popleft()
            self.keep_ckpt_ids.append(step)
            runner.message_hub.update_info("keep_ckpt_ids", list(self.keep_ckpt_ids))
        return obsolete

    def _save_best_checkpoint(self, runner: Any, metrics: dict[str, Any]) -> None:
        if not self.save_best:
            return
        runner.later.flush()
        if "auto" in self.key_indicators:
            self._init_rule(self.rules, [next(iter(metrics))])
        self._settle_folder(runner)
        now = runner.epoch if self.by_epoch else runner.iter
        meta = {"epoch": runner.epoch, "iter": runner.iter}
        improved = [
            self._save_if_better(runner, name, rule, _given(metrics, name), now, meta)
            for name, rule in zip(self.key_indicators, self.rules, strict=True)
        ]
        if any(improved) and self.last_ckpt is not None:
            self._save_checkpoint_with_step(runner, now, meta)  # again, so that it knows the new best score

    def _save_if_better(
        self, runner: Any, name: str, rule: str | None, score: Any, now: int, meta: dict[str, Any]
    ) -> bool:
        hub = runner.message_hub
        best = hub.runtime_info.get(self._info("best_score", name), self.init_value_map[rule or "greater"])
        if score is None or not self.is_better_than[name](score, best):
            return False
        old = self.best_ckpt_path_dict.get(name) if len(self.key_indicators) > 1 else self.best_ckpt_path
        # A metric's prefix ("val/acc") would name a folder.
        file = f"best_{name}_{self.filename_tmpl.format(now)}".replace("/", "_")
        path = os.path.join(self.out_dir, file)
        infos = {self._info("best_score", name): score, self._info("best_ckpt", name): path}
        before = {key: hub.runtime_info.get(key) for key in infos}
        hub.update_info_dict(infos)
        self._set_best_path(name, path)
        try:
            self._save(runner, file, meta, save_optimizer=False, save_param_scheduler=False, by_epoch=False)
        except SaveError as error:
            _put_back(hub, before)
            self._set_best_path(name, old)
            self._patience.forgive(error, runner.logger.error)
            return False
        if old and old != path and is_main_process() and os.path.exists(old):
            self._remove(old)
            runner.logger.info(f"The previous best checkpoint {old} is removed")
        unit = "epoch" if self.by_epoch else "iter"
        runner.logger.info(f"The best checkpoint with {score:0.4f} {name} at {now} {unit} is saved to {file}.")
        return True

    def _save(self, runner: Any, file: str, meta: dict[str, Any], **options: Any) -> None:
        if options.get("save_optimizer"):
            runner.gather_shares()
        runner.save_checkpoint(
            self.out_dir, file, self.file_client_args, meta=meta, backend_args=self.backend_args, **options, **self.args
        )

    def _publish_model(self, runner: Any, ckpt_path: str) -> None:
        if not is_main_process():
            return
        content = files.read(ckpt_path)
        kept = {key: value for key, value in content.items() if key in (self.published_keys or ())}
        digest = hashlib.sha256(pickle.dumps(kept)).hexdigest()[:8]  # as in the names of OpenMMLab's model zoos
        target = f"{os.path.splitext(ckpt_path)[0]}-{digest}.pth"
        files.write(target, kept)
        runner.logger.info(f"The checkpoint ({ckpt_path}) is published to {target}.")

    # -- names and places ----------------------------------------------------------------------------------------

    def _settle_folder(self, runner: Any) -> None:
        """Set ``out_dir``, once: ``out_dir/<name of work_dir>``, or ``work_dir`` itself."""
        if hasattr(self, "file_backend"):
            return
        if self.out_dir is None:
            self.out_dir = runner.work_dir
        elif str(self.out_dir) != runner.work_dir:
            self.out_dir = os.path.join(self.out_dir, os.path.basename(runner.work_dir.rstrip(os.sep)))
        self.file_backend = get_file_backend(self.out_dir, backend_args=self.backend_args)
        self.file_client = FileClient.infer_client(self.file_client_args, self.out_dir)

    def _path(self, step: int) -> str:
        return os.path.join(self.out_dir, self.filename_tmpl.format(step))

    def _remove(self, path: str) -> None:
        if is_main_process():
            files.remove(path)

    def _info(self, word: str, name: str) -> str:
        return word if len(self.key_indicators) == 1 else f"{word}_{name}"

    def _set_best_path(self, name: str, path: str | None) -> None:
        if len(self.key_indicators) == 1:
            self.best_ckpt_path = path
        else:
            self.best_ckpt_path_dict[name] = path


def _given(metrics: dict[str, Any], name: str) -> Any:
    if name in metrics:
        return metrics[name]
    text, hint = missing_result("save_best", name, metrics)
    raise ConfigKeyError(text, hint=hint)


def _published(keys: str | list[str] | None) -> list[str] | None:
    if keys is None:
        return None
    names = [keys] if isinstance(keys, str) else keys
    if not _all_text(names):
        raise TypeError(f'"published_keys" should be a str or a sequence of str or None, but got {type(keys)}')
    assert len(set(names)) == len(names), f"published_keys names a key twice: {names}"
    return list(names)


def _put_back(hub: Any, infos: dict[str, Any]) -> None:
    """Restore what the hub knew before; None: it knew nothing."""
    for key, value in infos.items():
        if value is None:
            hub.pop_info(key)
        else:
            hub.update_info(key, value)


def _keys(given: Sequence[str] | str | None, default: list[str]) -> Sequence[str]:
    if given is None:
        return default
    keys = (given,) if isinstance(given, str) else given
    assert _all_text(keys), f"keys of metrics should be names, got {keys!r}"
    return keys


def _all_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
