"""States and checkpoints of what a strategy has prepared, for scripts that drive a strategy without a runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from etude.dialects.mmengine import files
from etude.dialects.mmengine.live.device import default_device
from etude.dialects.mmengine.live.model import sharded
from etude.dialects.mmengine.names import VERSION
from etude.dialects.openmm.live.checkpoint import DEFAULT_REVISE, _load_checkpoint, load_state_dict, save_checkpoint
from etude.dialects.openmm.live.loader import revised, state_of
from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.state import unwrapped

Change = Callable[[dict[str, Any]], Any]


class Checkpoints:
    """What is saved is in the layout of a runner's files. Of a model that is shared out all processes have to call."""

    work_dir: str
    model: Any
    optim_wrapper: Any
    param_schedulers: Any
    dispatch_kwargs: dict[str, Any]

    def model_state_dict(self) -> dict[str, Any]:
        """The weights of the model itself."""
        if sharded.is_sharded(self.model):
            return sharded.weights_of(self.model)
        state: dict[str, Any] = unwrapped(self.model).state_dict()
        return state

    def optim_state_dict(self) -> dict[str, Any]:
        """The state of the optim wrapper; by name of several."""
        if sharded.is_sharded(self.model):
            return sharded.optimizer_state(self.model, self.optim_wrapper.optimizer)
        state: dict[str, Any] = self.optim_wrapper.state_dict()
        return state

    def scheduler_state_dict(self) -> dict[str, Any] | list[Any]:
        """The states of the schedulers; lists by name for several optimizers."""
        if isinstance(self.param_schedulers, dict):
            return {name: [one.state_dict() for one in group] for name, group in self.param_schedulers.items()}
        return [one.state_dict() for one in self.param_schedulers]

    def load_model_state_dict(
        self, state_dict: Mapping[str, Any], *, strict: bool = False, revise_keys: Any = DEFAULT_REVISE
    ) -> None:
        """Weights, with their names rewritten first."""
        state = revised(dict(state_dict), revise_keys)
        if sharded.is_sharded(self.model):
            sharded.load_weights(self.model, state, strict=strict)
        else:
            load_state_dict(unwrapped(self.model), state, strict)

    def load_optim_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`optim_state_dict` gave."""
        if sharded.is_sharded(self.model):
            state_dict = sharded.own_optimizer_state(self.model, self.optim_wrapper.optimizer, state_dict)
        self.optim_wrapper.load_state_dict(state_dict)

    def load_scheduler_state_dict(self, state_dict: dict[str, Any] | list[Any]) -> None:
        """Load what :meth:`scheduler_state_dict` gave."""
        mine: Any = self.param_schedulers
        pairs = [(mine[name], state_dict[name]) for name in mine] if isinstance(mine, dict) else [(mine, state_dict)]
        for schedulers, states in pairs:
            for scheduler, state in zip(schedulers, states, strict=False):
                scheduler.load_state_dict(state)

    def load_or_resume(self, *, load_from: str | None = None, resume: bool | str = False) -> dict[str, Any] | None:
        """Weights of ``load_from``, or everything of a file: ``resume`` is its path, or True for the newest one."""
        if isinstance(resume, str):
            return self.resume(resume)
        newest = files.newest_first(self.work_dir) if resume and load_from is None else []
        if newest or (resume and load_from is not None):
            return self.resume(newest[0] if newest else str(load_from))
        return None if load_from is None else self.load_checkpoint(load_from)

    def load_checkpoint(
        self,
        filename: str,
        *,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: Any = DEFAULT_REVISE,
        callback: Change | None = None,
    ) -> dict[str, Any]:
        """The weights of a file; ``callback`` may change its content first. Returns the rest of it."""
        print_log(f"Load checkpoint from {filename}", logger="current")
        place = default_device() if map_location == "default" else map_location
        checkpoint: dict[str, Any] = _load_checkpoint(filename, map_location=place)
        if callback is not None:
            callback(checkpoint)
        state = checkpoint.pop("state_dict") if "state_dict" in checkpoint else state_of(checkpoint, filename)
        self.load_model_state_dict(state, strict=strict, revise_keys=revise_keys)
        return checkpoint

    def resume(
        self,
        filename: str,
        *,
        resume_optimizer: bool = True,
        resume_param_scheduler: bool = True,
        map_location: Any = "default",
        callback: Change | None = None,
    ) -> dict[str, Any]:
        """Weights, optimizers and schedulers of a file; counters are the caller's, in the rest that is returned."""
        checkpoint = self.load_checkpoint(filename, map_location=map_location, callback=callback)
        if resume_optimizer and self.optim_wrapper is not None:
            self.load_optim_state_dict(checkpoint.pop("optimizer"))
            done, length = checkpoint["meta"].get("iter", 0), self.dispatch_kwargs.get("max_iters", -1)
            self.optim_wrapper.initialize_count_status(self.model, done, length)
        if resume_param_scheduler and self.param_schedulers is not None:
            self.load_scheduler_state_dict(checkpoint.pop("param_schedulers"))
        return checkpoint

    def save_checkpoint(
        self,
        filename: str,
        *,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        extra_ckpt: dict[str, Any] | None = None,
        callback: Change | None = None,
    ) -> None:
        """Write all states; ``extra_ckpt`` is added (its ``meta`` too), ``callback`` may change the sharded."""
        extra = dict(extra_ckpt or {})
        meta = {**extra.get("meta", {}), "time": time.strftime("%Y%m%d_%H%M%S"), "mmengine": VERSION}
        checkpoint: dict[str, Any] = {"state_dict": self.model_state_dict()}
        if save_optimizer and self.optim_wrapper is not None:
            checkpoint["optimizer"] = self.optim_state_dict()
        if save_param_scheduler and self.param_schedulers is not None:
            checkpoint["param_schedulers"] = self.scheduler_state_dict()
        checkpoint |= {**extra, "meta": meta}
        if callback is not None:
            callback(checkpoint)
        save_checkpoint(checkpoint, filename)
