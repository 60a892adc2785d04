"""Strategies of FlexibleRunner: prepare model, optimizers and schedulers for a single device, DDP or FSDP."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

import torch
from mmengine.model.utils import revert_sync_batchnorm
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

from etude_openmm.mmengine.live.collate import function_of
from etude_openmm.mmengine.live.device import default_device
from etude_openmm.mmengine.live.dist.utils import get_world_size
from etude_openmm.mmengine.live.model.sharded import MMFullyShardedDataParallel
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.mmengine.live.optim_wrapper.several import OptimWrapperDict
from etude_openmm.mmengine.live.runner.building import (
    model_of,
    multiply_lr,
    optim_wrapper_of,
    parallel_of,
    schedulers_by_name,
    schedulers_of,
)
from etude_openmm.mmengine.live.runner.features import compile_method
from etude_openmm.shared.registries.root import MODEL_WRAPPERS
from etude_openmm.shared.state import is_wrapper


class BaseStrategy(metaclass=ABCMeta):
    """The base class of strategies. ``prepare`` builds from configs or objects; subclasses implement ``_wrap_model``.

    The runner, not the strategy, saves and loads checkpoints.
    """

    def __init__(
        self,
        *,
        work_dir: str = "work_dirs",
        experiment_name: str | None = None,
        env_kwargs: dict[str, Any] | None = None,
        log_kwargs: dict[str, Any] | None = None,
        auto_scale_lr: dict[str, Any] | None = None,
    ) -> None:
        self.work_dir, self.experiment_name = work_dir, experiment_name
        self._env_kwargs, self._log_kwargs = env_kwargs or {}, log_kwargs or {}
        self._auto_scale_lr = auto_scale_lr
        self.dispatch_kwargs: dict[str, Any] = {}
        self.model: Any = None
        self.optim_wrapper: Any = None
        self.param_schedulers: Any = None
        self._prepared = False

    @abstractmethod
    def _wrap_model(self, model: nn.Module) -> nn.Module:
        """Return the model on its device, wrapped for several processes where that is needed."""

    def prepare(
        self,
        model: nn.Module | dict[str, Any],
        *,
        optim_wrapper: Any = None,
        param_scheduler: Any = None,
        compile: bool | dict[str, Any] = False,
        dispatch_kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Build and wrap the model and, if given, optim wrapper and schedulers. Later calls return the same objects."""
        if self._prepared:
            return self._prepared_components()
        self.dispatch_kwargs.update(dispatch_kwargs or {})
        self.model = self._wrap_model(self._init_model_weights(self.build_model(model)))
        compile_method(self.model, "train_step", compile)
        if optim_wrapper is not None:
            self.optim_wrapper = self.build_optim_wrapper(optim_wrapper, self.model)
            self._scale_lr()
        if param_scheduler is not None:
            self.param_schedulers = self.build_param_scheduler(param_scheduler, self.optim_wrapper)
        self._prepared = True
        return self._prepared_components()

    def build_model(self, model: nn.Module | dict[str, Any]) -> nn.Module:
        """Return the model that a config describes."""
        return model_of(model)

    def build_optim_wrapper(self, optim_wrapper: Any, model: nn.Module) -> OptimWrapper | OptimWrapperDict:
        """Return the optim wrapper that a config describes, with its counts of iterations set."""
        made = optim_wrapper_of(model, optim_wrapper)
        if getattr(made, "_accumulative_counts", 1) > 1 and "max_iters" not in self.dispatch_kwargs:
            raise ValueError('"max_iters" must be specified in dispatch_kwargs: gradients are accumulated')
        made.initialize_count_status(model, 0, self.dispatch_kwargs.get("max_iters", -1))
        return made

    def build_param_scheduler(self, scheduler: Any, optim_wrapper: Any) -> Any:
        """Return a list of schedulers, or a dict of lists by name for several optimizers."""
        facts = {name: self.dispatch_kwargs.get(name) for name in ("max_epochs", "max_iters", "epoch_length")}
        return schedulers_by_name(scheduler, optim_wrapper, lambda one, wrapper: schedulers_of(one, wrapper, **facts))

    def _init_model_weights(self, model: nn.Module) -> nn.Module:
        if self.dispatch_kwargs.get("init_weights_for_test_or_val", True) and hasattr(model, "init_weights"):
            model.init_weights()  # type: ignore[operator]
        return model

    def _scale_lr(self) -> None:
        options = self._auto_scale_lr
        if options and options.get("enable", False):
            assert "base_batch_size" in options, "Lack of `base_batch_size` in `auto_scale_lr`."
            size = self.dispatch_kwargs.get("train_micro_batch_size_per_gpu", 1) * self.world_size
            multiply_lr(self.optim_wrapper, size, options["base_batch_size"])

    @property
    def world_size(self) -> int:
        """Return the number of processes."""
        return 1

    def _prepared_components(self) -> list[Any]:
        parts = [self.model, self.optim_wrapper, self.param_schedulers]
        return [part for part in parts if part is not None]


class SingleDeviceStrategy(BaseStrategy):
    """Puts the model on the available device and turns SyncBatchNorm layers back into plain ones."""

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        return revert_sync_batchnorm(model.to(default_device()))  # type: ignore[no-any-return]


class DDPStrategy(BaseStrategy):
    """Wraps the model in DDP. ``model_wrapper`` is a config of another wrapper; ``sync_bn`` is ``'torch'`` or None."""

    def __init__(
        self, *, model_wrapper: dict[str, Any] | None = None, sync_bn: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.model_wrapper, self.sync_bn = model_wrapper, sync_bn

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        if is_wrapper(model):
            return model
        return parallel_of(model.to(default_device()), self.model_wrapper, self.sync_bn)

    @property
    def world_size(self) -> int:
        return get_world_size()


class FSDPStrategy(DDPStrategy):
    """Wraps the model in FSDP with the arguments ``model_wrapper``. A checkpoint is one file with all weights.

    ``state_dict_cfg`` is checked but does not change that. ``activation_checkpointing`` is a dict with
    ``check_fn``, which returns whether the activations of a module are recomputed.
    """

    def __init__(
        self,
        *,
        model_wrapper: dict[str, Any] | None = None,
        skip_init_weights: bool = False,
        state_dict_cfg: str | dict[str, Any] = "local",
        activation_checkpointing: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(model_wrapper=model_wrapper, **kwargs)
        if not isinstance(skip_init_weights, bool):
            raise TypeError(f"skip_init_weights must be a boolean, but got {type(skip_init_weights)}")
        self.skip_init_weights = skip_init_weights
        _check_state_dict_cfg(state_dict_cfg)
        self.activation_checkpointing = activation_checkpointing

    def _init_model_weights(self, model: nn.Module) -> nn.Module:
        return model if self.skip_init_weights else super()._init_model_weights(model)

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        wrapped = self._sharded(model)
        if self.activation_checkpointing is not None:
            options = dict(self.activation_checkpointing)
            check = function_of(options.pop("check_fn", None), "check_fn")
            apply_activation_checkpointing(wrapped, check_fn=check, **options)
        return wrapped

    def _sharded(self, model: nn.Module) -> nn.Module:
        known: dict[str, Any] = {"module": model}
        if not torch.accelerator.is_available():
            known["device_id"] = torch.device("cpu")  # else torch looks for an accelerator and gives up
        if self.model_wrapper is None:
            return MMFullyShardedDataParallel(**known)
        options = {"type": "MMFullyShardedDataParallel", **self.model_wrapper}
        made: nn.Module = MODEL_WRAPPERS.build(options, default_args=known)
        return made


def _check_state_dict_cfg(state_dict_cfg: Any) -> None:
    if not isinstance(state_dict_cfg, str | dict):
        raise TypeError(f"state_dict_cfg should be a `str` or a `dict`, but got {type(state_dict_cfg)}")
    if isinstance(state_dict_cfg, str) and state_dict_cfg not in ("full", "local"):
        raise ValueError(f"FSDP only supports `full` and `local` state_dict_type, but got {state_dict_cfg}")
