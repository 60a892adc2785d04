"""The ``build_*`` methods of MMEngine's Runner: each takes a config, or an object that is built already."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from mmengine.model.utils import convert_sync_batchnorm, revert_sync_batchnorm
from mmengine.optim.scheduler.param_scheduler import _ParamScheduler
from torch import nn
from torch.optim import Optimizer

from etude_openmm.mmengine.live.device import default_device
from etude_openmm.mmengine.live.evaluation import Evaluator
from etude_openmm.mmengine.live.logging.log_processor import LogProcessor
from etude_openmm.mmengine.live.logging.logger import MMLogger
from etude_openmm.mmengine.live.logging.message_hub import MessageHub
from etude_openmm.mmengine.live.loops import BaseLoop, EpochBasedTrainLoop, IterBasedTrainLoop, TestLoop, ValLoop
from etude_openmm.mmengine.live.model.wrappers import is_model_wrapper
from etude_openmm.mmengine.live.optim_wrapper.constructor import build_optim_wrapper
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.mmengine.live.optim_wrapper.several import OptimWrapperDict
from etude_openmm.mmengine.live.runner.dataloaders import _get_batch_size, build_dataloader
from etude_openmm.mmengine.live.runner.features import compile_method
from etude_openmm.mmengine.live.runner.views import Views
from etude_openmm.mmengine.live.visualization.visualizer import Visualizer
from etude_openmm.shared.logging import print_log
from etude_openmm.shared.registries.root import (
    EVALUATOR,
    LOG_PROCESSORS,
    LOOPS,
    MODEL_WRAPPERS,
    MODELS,
    OPTIM_WRAPPERS,
    PARAM_SCHEDULERS,
    VISUALIZERS,
)

T = TypeVar("T")


class Building(Views):
    """Builds the parts of a run. An object of the right class is returned as it is; a wrong type is a ``TypeError``."""

    _train_dataloader: Any
    _val_dataloader: Any
    _test_dataloader: Any
    _val_evaluator: Any
    _test_evaluator: Any

    build_dataloader = staticmethod(build_dataloader)

    # -- log, hub, pictures --------------------------------------------------------------------------------------

    def build_logger(self, log_level: int | str = "INFO", log_file: str | None = None, **kwargs: Any) -> MMLogger:
        """Return the logger of this run. It writes to ``<log_dir>/<timestamp>.log`` unless ``log_file`` is given."""
        log_file = log_file or os.path.join(self.log_dir, f"{self.timestamp}.log")
        options = {"name": self.experiment_name, "file_mode": "a", **kwargs}
        return MMLogger.get_instance(log_level=log_level, log_file=log_file, **options)

    def build_message_hub(self, message_hub: dict[str, Any] | None = None) -> MessageHub:
        """Return the message hub of this run."""
        if not isinstance(message_hub, dict | None):
            raise TypeError(f"message_hub should be dict or None, but got {message_hub!r}")
        return MessageHub.get_instance(**{"name": self.experiment_name, **(message_hub or {})})

    def build_visualizer(self, visualizer: Visualizer | dict[str, Any] | None = None) -> Visualizer:
        """Return the visualizer; by default one that writes scalars to local JSON files."""
        known = {"name": self.experiment_name, "save_dir": self.log_dir}
        if visualizer is None:
            return Visualizer.get_instance(vis_backends=[{"type": "LocalVisBackend"}], **known)
        usual = {"type": "Visualizer", **known}
        return _built(visualizer, Visualizer, "visualizer", lambda given: VISUALIZERS.build({**usual, **given}))

    def build_log_processor(self, log_processor: LogProcessor | dict[str, Any]) -> LogProcessor:
        """Build the log processor, which turns scalars into log lines."""
        usual = {"type": "LogProcessor"}
        return _built(log_processor, LogProcessor, "log processor", lambda g: LOG_PROCESSORS.build({**usual, **g}))

    def build_evaluator(self, evaluator: Evaluator | dict[str, Any] | list[Any]) -> Evaluator:
        """Build an evaluator from a metric, a list of them, or ``dict(metrics=…)``, where ``type`` names its class."""
        if isinstance(evaluator, Evaluator):
            return evaluator
        if isinstance(evaluator, dict) and "metrics" in evaluator:
            made: Evaluator = EVALUATOR.build({"type": "Evaluator", **evaluator})
            return made
        if isinstance(evaluator, dict | list):
            return Evaluator(evaluator)
        raise TypeError(f"evaluator should be one of dict, list of dict, and Evaluator, but got {evaluator!r}")

    # -- model ---------------------------------------------------------------------------------------------------

    def build_model(self, model: nn.Module | dict[str, Any]) -> nn.Module:
        """Return the model."""
        return model_of(model)

    def wrap_model(self, model_wrapper_cfg: dict[str, Any] | None, model: nn.Module) -> nn.Module:
        """Return the model on its device. A run of several processes wraps it, so that their gradients are averaged."""
        if is_model_wrapper(model):
            if model_wrapper_cfg is not None:
                raise TypeError(
                    f'model has been wrapped and "model_wrapper_cfg" should be None, but got {model_wrapper_cfg}'
                )
            return model
        model = model.to(default_device())
        if not self.distributed:
            return revert_sync_batchnorm(model)  # type: ignore[no-any-return]
        unused = self.cfg.get("find_unused_parameters", False)
        return parallel_of(model, model_wrapper_cfg, self.cfg.get("sync_bn"), find_unused_parameters=unused)

    # -- loops ---------------------------------------------------------------------------------------------------

    def build_train_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        """Return the train loop: the class ``type``, or the epoch or iteration loop by ``by_epoch``."""
        if isinstance(loop, dict) and "type" in loop and "by_epoch" in loop:
            raise RuntimeError("Only one of `type` or `by_epoch` can exist in `loop_cfg`.")
        known = {"runner": self, "dataloader": self._train_dataloader}
        return _built(loop, BaseLoop, "train_loop", lambda given: _loop_of(given, _usual_train_loop, known))

    def build_val_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        """Return the validation loop."""
        known = {"runner": self, "dataloader": self._val_dataloader, "evaluator": self._val_evaluator}
        return _built(loop, BaseLoop, "val_loop", lambda given: _loop_of(given, ValLoop, known))

    def build_test_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        """Return the test loop."""
        known = {"runner": self, "dataloader": self._test_dataloader, "evaluator": self._test_evaluator}
        return _built(loop, BaseLoop, "test_loop", lambda given: _loop_of(given, TestLoop, known))

    # -- optimizers and schedulers -------------------------------------------------------------------------------

    def build_optim_wrapper(self, optim_wrapper: Any) -> OptimWrapper | OptimWrapperDict:
        """Build the optim wrapper. A dict of wrappers, or a ``constructor`` in the config, can give several."""
        return optim_wrapper_of(self.model, optim_wrapper)

    def build_param_scheduler(self, scheduler: Any) -> Any:
        """Return a list of schedulers, or a dict of lists by name for several optimizers."""
        assert isinstance(self.optim_wrapper, OptimWrapper), (
            "`build_optim_wrapper` should be called before `build_param_scheduler`: schedulers move its groups"
        )
        return schedulers_by_name(scheduler, self.optim_wrapper, self._build_param_scheduler)

    def _build_param_scheduler(self, scheduler: Any, optim_wrapper: OptimWrapper) -> list[_ParamScheduler]:
        loop = self.train_loop
        return schedulers_of(
            scheduler,
            optim_wrapper,
            max_epochs=getattr(loop, "max_epochs", None),
            max_iters=getattr(loop, "max_iters", None),
            epoch_length=len(self.train_dataloader),
        )

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict[str, Any] | None = None) -> None:
        """Multiply every learning rate by real batch size / ``base_batch_size``, before schedulers are built."""
        if auto_scale_lr is None or not auto_scale_lr.get("enable", False):
            return
        assert "base_batch_size" in auto_scale_lr, "Lack of `base_batch_size` in `auto_scale_lr`."
        if _are_built(self.param_schedulers):
            raise RuntimeError("`scale_lr` should be called before building ParamScheduler: it remembers the first lr")
        assert isinstance(optim_wrapper, OptimWrapper), "`scale_lr should be called after building OptimWrapper"
        real = _get_batch_size(self._train_dataloader) * self.world_size
        multiply_lr(optim_wrapper, real, auto_scale_lr["base_batch_size"])

    @staticmethod
    def _check_scheduler_cfg(param_scheduler: Any) -> None:
        """Raise an error for a malformed scheduler config, before anything is built."""
        if param_scheduler is None or isinstance(param_scheduler, _ParamScheduler):
            return
        if isinstance(param_scheduler, list | tuple):
            for one in param_scheduler:
                if isinstance(one, dict) and "type" not in one:
                    raise ValueError(f"a scheduler config needs a `type`, got {one}")
                if not isinstance(one, dict | _ParamScheduler):
                    raise TypeError(
                        f"each of `param_scheduler` should be a `_ParamScheduler` or a `dict`, but got {one!r}"
                    )
            return
        if not isinstance(param_scheduler, dict):
            raise TypeError(
                f"`param_scheduler` should be a `_ParamScheduler`, `dict`, list or a tuple, but got {param_scheduler!r}"
            )
        if "type" not in param_scheduler:
            for name, one in param_scheduler.items():
                assert isinstance(one, dict | list | tuple | _ParamScheduler), (
                    f"Each value of `param_scheduler` should be a dict or a list, but {name!r} is {one!r}"
                )

    def _maybe_compile(self, target: str) -> None:
        """Compile a method of the model, if the config asks for it."""
        compile_method(self.model, target, self.cfg.get("compile"))


def _built(given: T | dict[str, Any], kind: type, what: str, make: Callable[[dict[str, Any]], T]) -> T:
    """Return an object of the class ``kind`` as it is, or what ``make`` builds from a config."""
    if isinstance(given, dict):
        return make(given)
    if not isinstance(given, kind):
        raise TypeError(f"{what} should be a {kind.__name__} object or dict, but got {given!r}")
    return given


def _loop_of(options: dict[str, Any], usual: Callable[..., BaseLoop], known: dict[str, Any]) -> BaseLoop:
    """Build the loop that a ``type`` names, or the usual one."""
    made: BaseLoop = LOOPS.build(options, default_args=known) if "type" in options else usual(**options, **known)
    return made


def _usual_train_loop(**options: Any) -> BaseLoop:
    return EpochBasedTrainLoop(**options) if options.pop("by_epoch") else IterBasedTrainLoop(**options)


def model_of(model: nn.Module | dict[str, Any]) -> nn.Module:
    """Return ``model`` as it is, or build it from a config."""
    return _built(model, nn.Module, "model", MODELS.build)


def parallel_of(
    model: nn.Module, options: dict[str, Any] | None, sync_bn: str | None, *, find_unused_parameters: bool = False
) -> nn.Module:
    """Return the model wrapped for several processes: in DDP, or in what ``options`` describe."""
    if sync_bn is not None:
        model = convert_sync_batchnorm(model, sync_bn)
    usual = {"broadcast_buffers": False, "find_unused_parameters": find_unused_parameters}
    options = {"type": "MMDistributedDataParallel", **(usual if options is None else options)}
    kind = MODEL_WRAPPERS.get(options["type"]) if isinstance(options["type"], str) else options["type"]
    known: dict[str, Any] = {"module": model}
    if isinstance(kind, type) and issubclass(kind, nn.parallel.DistributedDataParallel):
        known["device_ids"] = [int(os.environ.get("LOCAL_RANK", 0))] if torch.cuda.is_available() else None
    made: nn.Module = MODEL_WRAPPERS.build(options, default_args=known)
    return made


def multiply_lr(optim_wrapper: OptimWrapper, real: int, base: int) -> None:
    """Scale the learning rate of every real group from batches of ``base`` to batches of ``real``."""
    print_log(f"LR is scaled from a batch size of {base} to the current {real}.", logger="current")
    for wrapper in optim_wrapper.values() if isinstance(optim_wrapper, OptimWrapperDict) else [optim_wrapper]:
        # As in MMEngine, the virtual base group is left out: ``base_lr`` in the log is not scaled.
        for group in wrapper.optimizer.param_groups:
            group["lr"] *= float(real) / float(base)


def optim_wrapper_of(model: nn.Module, optim_wrapper: Any) -> OptimWrapper | OptimWrapperDict:
    """Build one optim wrapper or several, as :meth:`Building.build_optim_wrapper` does."""
    if isinstance(optim_wrapper, OptimWrapper):
        return optim_wrapper
    if not isinstance(optim_wrapper, dict):
        raise TypeError(f"optimizer wrapper should be an OptimWrapper object or dict, but got {optim_wrapper!r}")
    optimizer = optim_wrapper.get("optimizer")
    if isinstance(optimizer, Optimizer):
        made: OptimWrapper = OPTIM_WRAPPERS.build({"type": "OptimWrapper", **optim_wrapper})
        return made
    if optimizer is not None or "constructor" in optim_wrapper:
        built: OptimWrapper = build_optim_wrapper(model, optim_wrapper)
        return built
    for name, wrapper in optim_wrapper.items():
        if not isinstance(wrapper, OptimWrapper):
            raise ValueError(
                'each item mush be an optimizer object when "type" and "constructor" are not in optimizer, '
                f"but got {name}={wrapper!r}"
            )
    return OptimWrapperDict(**optim_wrapper)


def schedulers_by_name(scheduler: Any, optim_wrapper: Any, make: Callable[[Any, Any], list[_ParamScheduler]]) -> Any:
    """Return ``make(scheduler, wrapper)``; a dict of such lists by name if there are several optimizers."""
    if not isinstance(optim_wrapper, OptimWrapperDict):
        return make(scheduler, optim_wrapper)
    by_name = isinstance(scheduler, dict) and "type" not in scheduler
    return {name: make(scheduler[name] if by_name else scheduler, wrapper) for name, wrapper in optim_wrapper.items()}


def schedulers_of(
    scheduler: Any,
    optim_wrapper: OptimWrapper,
    *,
    max_epochs: int | None,
    max_iters: int | None,
    epoch_length: int | None,
) -> list[_ParamScheduler]:
    """Build the schedulers of one optimizer. A scheduler without an ``end`` lasts as long as the run."""
    made = []
    for one in scheduler if isinstance(scheduler, Sequence) else [scheduler]:
        if isinstance(one, _ParamScheduler):
            made.append(one)
            continue
        if not isinstance(one, dict):
            raise TypeError(f"scheduler should be a _ParamScheduler object or dict, but got {one!r}")
        # As in MMEngine: ``max_epochs`` of an iteration loop is 1, so a scheduler left at by_epoch=True acts once.
        end = max_epochs if one.get("by_epoch", True) else max_iters
        options = one if end is None else {"end": end, **one}
        known = {"optimizer": optim_wrapper, "epoch_length": epoch_length}
        made.append(PARAM_SCHEDULERS.build(dict(options), default_args=known))
    return made


def _are_built(schedulers: Any) -> bool:
    if isinstance(schedulers, dict):
        return "type" not in schedulers and any(_are_built(one) for one in schedulers.values())
    if isinstance(schedulers, list):
        return any(_are_built(one) for one in schedulers)
    return isinstance(schedulers, _ParamScheduler)
