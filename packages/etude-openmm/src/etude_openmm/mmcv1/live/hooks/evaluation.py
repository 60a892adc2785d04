"""EvalHook of mmcv: evaluates during training and saves the best checkpoint."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from etude.data.resume import Snapshot
from etude.dist import objects
from etude.errors import SaveError
from etude.errors.spelling import suggest
from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks.checkpoint_hook import target_folder
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.logger.base import LoggerHook
from etude_openmm.mmcv1.live.runner import exact_resume
from etude_openmm.mmcv1.live.testing import multi_gpu_test, single_gpu_test
from etude_openmm.shared.errors import ConfigAttributeError, ConfigKeyError, ConfigTypeError, ConfigValueError
from etude_openmm.shared.metric_rules import BETTER, GREATER_KEYS, LESS_KEYS, WORST, guess

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: Keys of ``evaluation`` that are arguments of the hook. All others go to ``dataset.evaluate``.
HOOK_ARGUMENTS = ("start", "interval", "by_epoch", "save_best", "rule", "greater_keys", "less_keys", "out_dir")


class EvalHook(Hook):
    """Calls ``dataset.evaluate(results)`` every ``interval`` epochs or iterations, from ``start`` on.

    If ``start`` is not after the current position, an evaluation comes before training. ``save_best`` keeps one
    file ``best_<key>_<when>.pth``; ``'auto'`` takes the first key of the first results. The model is put back into
    training mode after each evaluation.
    """

    rule_map: ClassVar[dict[str, Callable[[Any, Any], bool]]] = BETTER
    init_value_map: ClassVar[dict[str, float]] = WORST
    _default_greater_keys: ClassVar[list[str]] = list(GREATER_KEYS)
    _default_less_keys: ClassVar[list[str]] = list(LESS_KEYS)
    #: The default of ``test_fn``, which runs the model over the data.
    usual_test: ClassVar[Callable[..., Any]] = staticmethod(single_gpu_test)

    def __init__(
        self,
        dataloader: DataLoader[Any],
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | None = None,
        rule: str | None = None,
        test_fn: Callable[[Any, Any], Any] | None = None,
        greater_keys: str | Sequence[str] | None = None,
        less_keys: str | Sequence[str] | None = None,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        **eval_kwargs: Any,
    ) -> None:
        if not isinstance(dataloader, DataLoader):
            raise TypeError(f"dataloader must be a DataLoader of torch, got {type(dataloader).__name__}")
        _check_when(start, interval, by_epoch, save_best)
        self.dataloader, self.start, self.interval, self.by_epoch = dataloader, start, interval, by_epoch
        self.save_best, self.rule, self.key_indicator = save_best, rule, save_best
        self.eval_kwargs, self.initial_flag = eval_kwargs, True
        self._resumed = False
        self.out_dir, self.file_client_args = out_dir, file_client_args
        self.test_fn: Callable[..., Any] = self.usual_test if test_fn is None else test_fn
        self.greater_keys = _keys(greater_keys, self._default_greater_keys)
        self.less_keys = _keys(less_keys, self._default_less_keys)
        self.best_ckpt_path: str | None = None
        if save_best is not None:
            self._init_rule(rule, save_best)

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Set whether greater or less is better, from ``rule`` or the name of the key."""
        if rule not in self.rule_map and rule is not None:
            raise KeyError(f"rule must be greater, less or None, got {rule!r}")
        if rule is None and key_indicator != "auto":
            rule = self._inferred_rule(key_indicator)
        # With 'auto', the first results name the key, and both are set again.
        self.rule, self.key_indicator = rule, key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def require_rule(self, runner: BaseRunner, key: str) -> None:
        """Raise an error if neither ``rule`` nor the name of the result says whether greater or less is better."""
        try:
            if self.rule is None:
                self._inferred_rule(key)
        except ValueError as error:
            raise ConfigValueError(str(error), at=place_of(runner, "save_best")) from error

    def _inferred_rule(self, key: str) -> str:
        found = guess(key, self.greater_keys, self.less_keys)
        if found is None:
            text = f"whether {key!r} should grow or shrink does not follow from its name"
            raise ValueError(f"{text}: give rule='greater' or 'less'")
        return found

    def before_run(self, runner: BaseRunner) -> None:
        elsewhere = bool(self.out_dir) and self.out_dir != runner.work_dir
        self.out_dir = target_folder(self.out_dir, runner) if self.out_dir or runner.work_dir else None
        if elsewhere:
            runner.logger.info(f"The best checkpoint will be saved to {self.out_dir} by HardDiskBackend")
        self._resumed = getattr(runner, "restored", None) is not None
        dataset: Any = getattr(self.dataloader, "dataset", None)
        if self._is_default_evaluate() and not callable(getattr(dataset, "evaluate", None)):
            raise ConfigAttributeError(
                f"{type(dataset).__name__} has no method evaluate(results, …), which an evaluation needs",
                hint="--no-validate trains without",
            )
        self._check_arguments(runner, dataset)
        if self.save_best is None:
            return
        if runner.meta is None:
            warnings.warn("runner.meta is None. Creating an empty one.", stacklevel=2)
            runner.meta = {}
        self.best_ckpt_path = runner.meta.setdefault("hook_msgs", {}).get("best_ckpt")

    def _is_default_evaluate(self) -> bool:
        """Return whether ``evaluate`` is this class's: a subclass, or an attribute of the object, may replace it."""
        return getattr(self.evaluate, "__func__", None) is EvalHook.evaluate

    def _check_arguments(self, runner: BaseRunner, dataset: Any) -> None:
        """Raise an error for an unknown argument of ``dataset.evaluate`` before training, not after the first epoch."""
        taken = _arguments(getattr(dataset, "evaluate", None))
        if taken is None or not self._is_default_evaluate():
            return
        for name in self.eval_kwargs:
            if name not in taken:
                raise ConfigTypeError(
                    f"{type(dataset).__name__}.evaluate() takes no argument {name!r}",
                    at=place_of(runner, name), hint=suggest(name, [*taken, *HOOK_ARGUMENTS]),
                )  # fmt: skip

    def before_train_iter(self, runner: BaseRunner) -> None:
        if not self.by_epoch:
            self._evaluate_first(runner.iter, self.after_train_iter, runner)

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if self.by_epoch:
            self._evaluate_first(runner.epoch, self.after_train_epoch, runner)

    def _evaluate_first(self, now: int, evaluate: Callable[[BaseRunner], None], runner: BaseRunner) -> None:
        """Evaluate before the first epoch or iteration, if ``start`` is reached."""
        if self.initial_flag and self.start is not None and now >= self.start:
            with self._without_side_effects():
                evaluate(runner)
        self.initial_flag = False

    @contextmanager
    def _without_side_effects(self) -> Iterator[None]:
        """Undo side effects of the extra evaluation that mmcv makes when a run is resumed.

        It must not draw random numbers from training's generators, nor save a best checkpoint.
        """
        if not self._resumed:
            yield
            return
        generators, wanted, self.save_best = Snapshot.take(), self.save_best, None
        try:
            yield
        finally:
            generators.restore()
            self.save_best = wanted

    def after_train_iter(self, runner: BaseRunner) -> None:
        if self.by_epoch or not self._should_evaluate(runner):
            return
        # As in mmcv: loggers come after this hook, and clearing the buffer would take away their training values.
        for hook in runner._hooks:
            if isinstance(hook, LoggerHook):
                hook.after_train_iter(runner)
        runner.log_buffer.clear()
        self._evaluate_and_go_on(runner)

    def after_train_epoch(self, runner: BaseRunner) -> None:
        if self.by_epoch and self._should_evaluate(runner):
            self._evaluate_and_go_on(runner)

    def _evaluate_and_go_on(self, runner: BaseRunner) -> None:
        """Evaluate, and put the model back into the mode it was in: training may follow.

        If it fails, a checkpoint is saved, so that the run can resume once the mistake is fixed.
        """
        # mmcv leaves the model in eval mode, so that the rest of the epoch trains without dropout and batch statistics.
        training, generators = runner.model.training, Snapshot.take()
        try:
            self._do_evaluate(runner)
        except Exception:
            runner.model.train(training)
            runner.rescue(self, generators)
            raise
        finally:
            runner.model.train(training)

    def _do_evaluate(self, runner: BaseRunner) -> None:
        results = self.test_fn(runner.model, self.dataloader)
        self._take(runner, results)

    def _take(self, runner: BaseRunner, results: Any) -> None:
        # TextLoggerHook removes it. A tracker that is listed before gets it as a value, as in mmcv.
        runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
        score = self.evaluate(runner, results)
        # As in mmcv, a score of 0 is never the best.
        if self.save_best and score:
            self._save_ckpt(runner, score)

    def _should_evaluate(self, runner: BaseRunner) -> bool:
        now = (runner.epoch if self.by_epoch else runner.iter) + 1
        if self.start is None:
            return now % self.interval == 0
        return now >= self.start and (now - self.start) % self.interval == 0

    def _save_ckpt(self, runner: BaseRunner, key_score: float) -> None:
        """Save this model if its score is better than the best one. A tie or a NaN is not better."""
        assert self.rule is not None and self.out_dir is not None
        runner.later.flush()
        kind, now = ("epoch", runner.epoch + 1) if self.by_epoch else ("iter", runner.iter + 1)
        messages = runner.known_meta.setdefault("hook_msgs", {})
        if not self.compare_func(key_score, messages.get("best_score", self.init_value_map[self.rule])):
            return
        name = f"best_{self.key_indicator}_{kind}_{now}.pth".replace(os.sep, "_")
        before, old = dict(messages), self.best_ckpt_path
        self.best_ckpt_path = os.path.join(self.out_dir, name)
        messages.update(best_score=key_score, best_ckpt=self.best_ckpt_path)
        runner.saver = self
        try:
            runner.save_checkpoint(self.out_dir, filename_tmpl=name, create_symlink=False)
        except SaveError as error:
            messages.clear()
            messages.update(before)
            self.best_ckpt_path = old
            runner.logger.error(f"the best checkpoint could not be written, the old one stays: {error}")
            return
        # mmcv deletes the old file first: a run that dies in between has none.
        if old and old != self.best_ckpt_path and os.path.isfile(old):
            os.remove(old)
            exact_resume.remove_all(old)
            runner.logger.info(f"The previous best checkpoint {old} was removed")
        runner.logger.info(f"Now best checkpoint is saved as {name}.")
        runner.logger.info(f"Best {self.key_indicator} is {key_score:0.4f} at {now} {kind}.")

    def evaluate(self, runner: BaseRunner, results: Any) -> Any:
        """Log the results, and return the score that ``save_best`` names, or None."""
        dataset: Any = self.dataloader.dataset
        found = dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs)
        for name, value in found.items():
            runner.log_buffer.output[name] = value
        runner.log_buffer.ready = True
        if self.save_best is None:
            return None
        if not found:
            warnings.warn("the evaluation gave no result, so no best checkpoint can be chosen", stacklevel=2)
            return None
        if self.key_indicator == "auto":
            self.require_rule(runner, str(next(iter(found))))
            self._init_rule(self.rule, next(iter(found)))
        if self.key_indicator not in found:
            raise ConfigKeyError(
                f"save_best={self.key_indicator!r} is not among the results: {', '.join(map(str, found))}",
                at=place_of(runner, "save_best"), hint=_hint(str(self.key_indicator), [str(name) for name in found]),
            )  # fmt: skip
        return found[self.key_indicator]


def _hint(name: str, found: list[str]) -> str:
    """Return a hint: the first result that begins with ``name`` (``accuracy_top-1`` for ``accuracy``) or is similar."""
    longer = next((result for result in found if result.startswith(name)), None)
    return f"did you mean {longer!r}?" if longer else suggest(name, found)


class DistEvalHook(EvalHook):
    """Evaluates on all ranks. Rank 0 gathers the results, logs them and saves the best checkpoint."""

    usual_test: ClassVar[Callable[..., Any]] = staticmethod(multi_gpu_test)

    def __init__(
        self,
        dataloader: DataLoader[Any],
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | None = None,
        rule: str | None = None,
        test_fn: Callable[..., Any] | None = None,
        greater_keys: str | Sequence[str] | None = None,
        less_keys: str | Sequence[str] | None = None,
        broadcast_bn_buffer: bool = True,
        tmpdir: str | None = None,
        gpu_collect: bool = False,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        **eval_kwargs: Any,
    ) -> None:
        super().__init__(
            dataloader, start, interval, by_epoch, save_best, rule, test_fn, greater_keys,
            less_keys, out_dir, file_client_args, **eval_kwargs,
        )  # fmt: skip
        self.broadcast_bn_buffer, self.tmpdir, self.gpu_collect = broadcast_bn_buffer, tmpdir, gpu_collect

    def _do_evaluate(self, runner: BaseRunner) -> None:
        if self.broadcast_bn_buffer and dist.is_available() and dist.is_initialized():
            # Each rank has its own running statistics, as DDP does not average them. All evaluate with those of rank 0.
            for module in runner.model.modules():
                if isinstance(module, _BatchNorm) and module.track_running_stats:
                    dist.broadcast(module.running_var, 0)  # type: ignore[arg-type]
                    dist.broadcast(module.running_mean, 0)  # type: ignore[arg-type]
        folder = self.tmpdir if self.tmpdir is not None else os.path.join(runner.work_dir or ".", ".eval_hook")
        results = self.test_fn(runner.model, self.dataloader, tmpdir=folder, gpu_collect=self.gpu_collect)
        before = self.best_ckpt_path
        if runner.rank == 0:
            self._take(runner, results)
        if self.save_best is not None:
            self._save_own_parts(runner, self.best_ckpt_path if self.best_ckpt_path != before else None)

    def _save_own_parts(self, runner: BaseRunner, saved: str | None) -> None:
        """Broadcast whether a best checkpoint was saved, so that the other ranks save their own state beside it."""
        if not (dist.is_available() and dist.is_initialized()):
            return
        shared = objects.broadcast(saved)
        if shared is not None and runner.rank != 0:
            self.best_ckpt_path = shared
            folder, name = os.path.split(shared)
            runner.save_own_part(folder, filename_tmpl=name, create_symlink=False)


def _check_when(start: Any, interval: Any, by_epoch: Any, save_best: Any) -> None:
    if interval <= 0:
        raise ValueError(f"interval must be a positive number, got {interval}")
    require(isinstance(by_epoch, bool), f"by_epoch must be True or False, got {by_epoch!r}")
    if start is not None and start < 0:
        raise ValueError(f"start must not be negative, got {start}: 0 evaluates before training")
    require(
        isinstance(save_best, str) or save_best is None,
        f"save_best is the name of a result, or 'auto' for the first one, got {save_best!r}",
    )


def _arguments(evaluate: Any) -> list[str] | None:
    """Return the names of the arguments after the results, or None if there are ``**kwargs``."""
    try:
        parameters = list(inspect.signature(evaluate).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return [one.name for one in parameters[1:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]


def place_of(runner: BaseRunner, key: str) -> str:
    """Return the place of ``key`` of ``evaluation`` in the config; empty if a script started the run."""
    plan = runner.engine.plan
    hooks = [hook.spec for hook in plan.hooks if hook.spec.name == "EvalHook"] if plan is not None else []
    return str(hooks[0].place(key)) if hooks else ""


def _keys(given: str | Sequence[str] | None, default: list[str]) -> Sequence[str]:
    if given is None:
        return default
    return (given,) if isinstance(given, str) else given
