"""The base class of mmcv 1.x's runners, on top of Étude's training loop.

A :class:`~etude.core.run.Run` holds the counters and calls the hooks. This class has mmcv's attributes and methods.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from etude.checkpoint.formats.background import BackgroundWriter, all_ours
from etude.core.hook import Hook as EngineHook
from etude.core.run import Run
from etude.dialects.properties import leads_to, reads
from etude.dist.world import World
from etude.errors import ResumeError
from etude.hooks.signals import saving_at_signals
from etude_openmm.mmcv1 import files
from etude_openmm.mmcv1.live.checks import MissingOutput, WrongOutputs, require
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.parallel import unwrap
from etude_openmm.mmcv1.live.runner import crash_checkpoint, exact_resume
from etude_openmm.mmcv1.live.runner.adapter import Adapted, Routed
from etude_openmm.mmcv1.live.runner.log_buffer import LogBuffer
from etude_openmm.mmcv1.live.runner.registration import Registration
from etude_openmm.mmcv1.live.runner.resuming import Position, Restored, Resuming
from etude_openmm.mmcv1.live.runner.wiring import hold_back
from etude_openmm.mmcv1.live.utils.dist import get_dist_info
from etude_openmm.shared.errors import ConfigTypeError, ConfigValueError
from etude_openmm.shared.live.checkpoint_v1 import _load_checkpoint, content, load_checkpoint, load_state_dict
from etude_openmm.shared.live.loader import revised, state_of

#: Entries of an optimizer's state that have the shape of the parameter.
_LIKE_PARAMETERS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "square_avg")


class BaseRunner(Resuming, Registration):
    """The base of both runners. ``iter`` and ``epoch`` count finished ones and increase after the "after" hooks.

    Subclasses may override ``run``, ``train``, ``val``, ``run_iter``, ``call_hook``, ``save_checkpoint``; the names in
    a workflow are names of methods.
    """

    #: The unit of the run's length, in log lines and file names.
    unit = "epochs"

    def __init__(
        self,
        model: torch.nn.Module,
        batch_processor: Any = None,
        optimizer: Any = None,
        work_dir: str | None = None,
        logger: logging.Logger | None = None,
        meta: dict[str, Any] | None = None,
        max_iters: int | None = None,
        max_epochs: int | None = None,
    ) -> None:
        _check_model(model, batch_processor)
        _check_optimizer(optimizer)
        if not isinstance(logger, logging.Logger):
            raise ConfigTypeError(f"logger must be a logging.Logger, got {type(logger).__name__}")
        if meta is not None and not isinstance(meta, dict):
            raise ConfigTypeError(f"meta must be a dict or None, got {type(meta).__name__}")
        if max_epochs is not None and max_iters is not None:
            raise ConfigValueError("only one of max_epochs and max_iters can be set")
        self.model, self.batch_processor, self.optimizer = model, batch_processor, optimizer
        self.logger, self.meta = logger, meta
        self.work_dir = _make_folder(work_dir)
        self._model_name: str = type(unwrap(model)).__name__
        self._rank, self._world_size = get_dist_info()
        self.timestamp = time.strftime("%Y%m%d_%H%M%S", time.localtime())
        self.mode: str | None = None
        self._hooks: list[Hook] = []
        self._inner_iter = 0
        self._max_epochs, self._max_iters = max_epochs, max_iters
        self.log_buffer = LogBuffer()
        self.outputs: Any = None
        self.data_loader: Any = None
        self._step_kwargs: dict[str, Any] = {}
        self.saver: Hook | None = None
        self._position = Position()
        self.later = BackgroundWriter()
        self._own_part_only = False
        self._restored: Restored | None = None
        self.engine = Run(
            model=model,
            update=self._update,
            loop=self._loop,
            optimizers=optimizer if isinstance(optimizer, dict) else {"": optimizer} if optimizer else {},
            world=World(rank=self._rank, size=self._world_size),
            runner=self,
        )
        self._adapted: list[Hook] = []
        self._acting: list[EngineHook] = []
        hold_back(self)

    # -- counters and values that hooks read ---------------------------------------------------------------------

    _epoch: int = leads_to("engine.epoch")
    _iter: int = leads_to("engine.step")
    #: Finished training epochs.
    epoch: int = reads("engine.epoch")
    #: Finished training iterations.
    iter: int = reads("engine.step")
    #: Position in the epoch; the iter runner counts within an entry of the workflow.
    inner_iter: int = reads("_inner_iter")
    max_epochs: int | None = reads("_max_epochs")
    max_iters: int | None = reads("_max_iters")
    model_name: str = reads("_model_name")
    rank: int = reads("_rank")
    world_size: int = reads("_world_size")

    @property
    def known_meta(self) -> dict[str, Any]:
        """Return ``meta``; an empty dict is made if there is none."""
        if self.meta is None:
            self.meta = {}
        return self.meta

    def current_lr(self) -> Any:
        """Return the learning rate of every group: a list, or a dict of lists for several optimizers."""
        return self._of_groups(lambda group: group["lr"])

    def current_momentum(self) -> Any:
        """Return the momentum of every group, or its first beta, or 0."""
        return self._of_groups(_momentum)

    def _of_groups(self, read: Any) -> Any:
        if isinstance(self.optimizer, Optimizer):
            return [read(group) for group in self.optimizer.param_groups]
        if isinstance(self.optimizer, dict):
            return {name: [read(group) for group in one.param_groups] for name, one in self.optimizer.items()}
        raise RuntimeError("lr and momentum are not known: the runner has no optimizer")

    # -- driving -------------------------------------------------------------------------------------------------

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        raise AttributeError(f"{type(self).__name__} must define train(data_loader)")

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        raise AttributeError(f"{type(self).__name__} must define val(data_loader)")

    def call_hook(self, fn_name: str) -> None:
        """Call one stage of every hook, in order of priority."""
        for hook in list(self._hooks):
            getattr(hook, fn_name)(self)

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Give a batch to the model's ``train_step`` or ``val_step``, and its ``log_vars`` to the log buffer."""
        if self.batch_processor is not None:
            outputs = self.batch_processor(self.model, data_batch, train_mode=train_mode, **kwargs)
        elif train_mode:
            outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)  # type: ignore[operator]
        else:
            outputs = self._val_outputs(data_batch, kwargs)
        if not isinstance(outputs, dict):
            raise WrongOutputs(
                f"{'train_step' if train_mode else 'val_step'} of {self._model_name} must return a dict, "
                f"got {type(outputs).__name__}"
            )
        if "log_vars" in outputs:
            if "num_samples" not in outputs:
                raise MissingOutput(f"a step of {self._model_name} that returns log_vars must return num_samples, too")
            self.log_buffer.update(outputs["log_vars"], outputs["num_samples"])
        self.outputs = outputs

    def _val_outputs(self, data_batch: Any, kwargs: dict[str, Any]) -> Any:
        return self.model.val_step(data_batch, self.optimizer, **kwargs)  # type: ignore[operator]

    def _update(self, run: Run, batch: Any) -> Any:
        self.run_iter(batch, train_mode=True, **self._step_kwargs)
        return self.outputs

    @contextmanager
    def _driving(self, data_loaders: Any, workflow: Any, kwargs: dict[str, Any]) -> Iterator[Run]:
        """Yield Étude's run with the workflow of this runner as its loop."""
        self._flow, self._loaders, self._kwargs = list(workflow), list(data_loaders), kwargs
        self._turns = [(entry, count) for entry, (_, most) in enumerate(self._flow) for count in range(most)]
        engine, before = self.engine, self.engine.loop
        engine.loop = self._loop
        self._sync_hooks(force=True)
        try:
            with saving_at_signals(engine, processes=self._world_size):
                yield engine
        except Exception as error:
            crash_checkpoint.leave(self, error)
            raise
        finally:
            engine.loop = before

    def _open_passes(self) -> list[Any]:
        """Return the iterators over the loaders that may not be exhausted."""
        return []

    def all_is_ours(self) -> bool:
        """Return whether no user-defined code acts between two steps: no hook, no runner."""
        return all_ours([self, *self._hooks])

    def _loop(self, engine: Run) -> None:
        raise AttributeError(f"{type(self).__name__} must define the loop of its run")

    def _check_trains(self) -> None:
        """Raise an error for a workflow that only validates, because it would never end."""
        if all(mode == "val" or count < 1 for mode, count in self._flow):
            raise ConfigValueError(f"the workflow {self._flow} never trains", hint="add ('train', 1)")

    def _method(self, mode: Any) -> Any:
        if not isinstance(mode, str):
            raise TypeError(f"a mode of the workflow must be the name of a method, got {mode!r}")
        if not hasattr(self, mode):
            raise ValueError(f"runner has no method named {mode!r} for the workflow to call: use 'train' or 'val'")
        return getattr(self, mode)

    def _sync_hooks(self, *, force: bool = False) -> None:
        """Give the hooks to Étude's table; again if the list has changed."""
        if self._hooks == self._adapted and not force:
            return
        table, self._adapted = self.engine.hooks, list(self._hooks)
        for acting in self._acting:
            table.remove(acting)
        self._acting = self._engine_hooks()
        for acting in self._acting:
            table.add(acting)

    def _engine_hooks(self) -> list[EngineHook]:
        """Return hooks for Étude's table: one per mmcv hook, or a single one if a subclass overrides ``call_hook``."""
        if type(self).call_hook is not BaseRunner.call_hook:
            return [Routed(self)]
        return [Adapted(hook, self) for hook in self._hooks]

    def _require_end(self, key: str, given: int | None) -> None:
        """Require the length of the run, which may be an argument of ``run``, too, as in older versions of mmcv."""
        if given is not None:
            text = f"setting {key} in run is deprecated, please set {key} in runner_config"
            warnings.warn(text, DeprecationWarning, stacklevel=3)
            setattr(self, f"_{key}", given)
        require(getattr(self, f"_{key}") is not None, f"{key} must be specified during instantiation")

    def _announce(self, workflow: Any, end: int | None) -> None:
        self.logger.info("Start running, host: %s, work_dir: %s", get_host_info(), self.work_dir or "NONE")
        self.logger.info("Hooks will be executed in the following order:\n%s", self.get_hook_info())
        self.logger.info("workflow: %s, max: %d %s", workflow, end, self.unit)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = "cpu",
        strict: bool = False,
        # mmcv's pattern here has an unescaped dot, unlike that of the function load_checkpoint.
        revise_keys: Sequence[tuple[str, str]] = ((r"^module.", ""),),
    ) -> dict[str, Any]:
        """Load only weights: those that fit. The others are logged."""
        found: dict[str, Any] = load_checkpoint(
            self.model, filename, map_location, strict, self.logger, revise_keys=list(revise_keys)
        )
        return found

    def _load_for_resume(self, filename: str, map_location: Any) -> dict[str, Any]:
        """Load weights as :meth:`load_checkpoint` does; do not warn about the averages in Étude's own files."""
        # mmcv takes the current CUDA device for "default", which fails where there is none.
        place = "cpu" if map_location == "default" else map_location
        if type(self).load_checkpoint is not BaseRunner.load_checkpoint:
            return self.load_checkpoint(filename, map_location=place)
        found: dict[str, Any] = _load_checkpoint(filename, place, self.logger)
        state = state_of(found, filename)
        if exact_resume.KEY in found and any(hasattr(hook, "param_ema_buffer") for hook in self._hooks):
            known = self.model.state_dict()
            state = {key: value for key, value in state.items() if key in known or not key.startswith("ema_")}
        state = revised(state, [(r"^module.", "")])
        if self.engine.plan is not None and not state.keys() & unwrap(self.model).state_dict().keys():
            raise ResumeError(f"{filename} is of another model: it has none of the weights of this one")
        load_state_dict(self.model, state, False, self.logger)
        return found

    def _write_checkpoint(
        self, out_dir: str, filename: str, save_optimizer: bool, meta: dict[str, Any] | None, create_symlink: bool
    ) -> None:
        self.later.flush()
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"meta must be a dict or None, got {type(meta).__name__}")
        meta = {} if meta is None else meta
        # As in mmcv, a dict that is given is changed: MMTracking passes the same one at each save.
        meta.update(self.meta or {})
        # As in mmcv: at the end of an epoch, ``iter`` has been increased already and ``epoch`` has not.
        meta.update(epoch=self.epoch + 1, iter=self.iter)
        path = os.path.join(out_dir, filename)
        if self._own_part_only:
            self._position.unsettled.append((path, self._exact_state() or {}))
            return
        state, self.saver = self._exact_state() if save_optimizer else None, None
        found = content(self.model, optimizer=self.optimizer if save_optimizer else None, meta=meta)
        if state is not None:
            found[exact_resume.KEY] = state
            self._position.unsettled.append((path, state))
            exact_resume.remove_note(path)
        self.later.write(partial(files.write, path), files.plain(found))
        if save_optimizer and not filename.startswith("best_"):
            saved = path, max(self.engine.done, self.engine.step)
            self.later.then(partial(setattr, self._position, "saved", saved))
        if create_symlink:
            self.later.then(partial(files.link_latest, out_dir, filename))

    def _load_optimizer(self, checkpoint: Mapping[str, Any], resume_optimizer: bool) -> None:
        if "optimizer" not in checkpoint or not resume_optimizer:
            return
        if isinstance(self.optimizer, Optimizer):
            self._take_optimizer(self.optimizer, checkpoint["optimizer"])
        elif isinstance(self.optimizer, dict):
            for name, one in self.optimizer.items():
                self._take_optimizer(one, checkpoint["optimizer"][name])
        else:
            raise TypeError(f"optimizer must be an Optimizer or a dict of them, got {type(self.optimizer).__name__}")

    def _take_optimizer(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load an optimizer's state; refuse that of another model, which would fail or be wrong in the first update."""
        try:
            optimizer.load_state_dict(dict(state))
        except ValueError as error:
            raise ResumeError(f"the optimizer's state is of another model: {error}; load_from takes weights") from error
        # torch compares the number of parameters, not their shapes.
        names: dict[Any, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, own in optimizer.state.items():
            for value in (own[key] for key in _LIKE_PARAMETERS if isinstance(own.get(key), torch.Tensor)):
                if value.shape != parameter.shape:
                    raise ResumeError(
                        f"{names.get(parameter, 'a parameter')} has the shape {tuple(parameter.shape)}, in the "
                        f"checkpoint {tuple(value.shape)}; load_from takes the weights that fit"
                    )

    def auto_resume(self) -> None:
        """Resume from the newest readable checkpoint of the work_dir, if there is one."""
        newest = files.newest(self.work_dir or ".", say=self.logger.warning)
        if newest is not None:
            self.logger.info("latest checkpoint found: %s", newest)
            self.resume(newest)
        else:
            self.logger.warning("no checkpoint in %s yet, starting at step 0", self.work_dir or ".")

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default") -> None:
        raise AttributeError(f"{type(self).__name__} must define resume")


def get_host_info() -> str:
    """Return ``user@host``, for the log."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError, ImportError):
        return "unknown"


def stored_gpu_count(config_text: str) -> int | None:
    """Return the number of devices in ``gpu_ids`` of a stored config. The text is parsed, never executed."""
    match = re.search(r"^gpu_ids\s*=\s*(.+)$", config_text, re.MULTILINE)
    if match is None:
        return None
    text = match[1].strip()
    counted = re.fullmatch(r"range\((?:(\d+),\s*)?(\d+)\)", text)
    if counted:
        return int(counted[2]) - int(counted[1] or 0)
    try:
        return len(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        return None


def _momentum(group: Mapping[str, Any]) -> Any:
    if "momentum" in group:
        return group["momentum"]
    return group["betas"][0] if "betas" in group else 0


def _check_model(model: Any, batch_processor: Any) -> None:
    if batch_processor is None:
        require(hasattr(model, "train_step"), f"{type(model).__name__} needs a method train_step(data, optimizer)")
        return
    if not callable(batch_processor):
        raise ConfigTypeError(f"batch_processor must be callable, got {type(batch_processor).__name__}")
    warnings.warn(
        "batch_processor is deprecated, please implement train_step() and val_step() in the model instead.",
        DeprecationWarning,
        stacklevel=4,
    )
    inner = unwrap(model)
    if hasattr(inner, "train_step") or hasattr(inner, "val_step"):
        raise RuntimeError("give either a batch_processor or a model with train_step and val_step, not both")


def _check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, dict):
        for name, one in optimizer.items():
            if not isinstance(one, Optimizer):
                raise ConfigTypeError(f"optimizer[{name!r}] must be a torch Optimizer, got {type(one).__name__}")
    elif optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ConfigTypeError(
            f"optimizer must be a torch Optimizer, a dict of them or None, got {type(optimizer).__name__}"
        )


def _make_folder(work_dir: Any) -> str | None:
    if work_dir is None:
        return None
    if not isinstance(work_dir, str):
        raise ConfigTypeError(f"work_dir must be a string or None, got {type(work_dir).__name__}")
    os.makedirs(os.path.abspath(work_dir), exist_ok=True)
    return os.path.abspath(work_dir)
