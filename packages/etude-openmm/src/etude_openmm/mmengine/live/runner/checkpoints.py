"""Loads, resumes and saves the checkpoints of a runner, and writes the config beside them."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from etude.data.resume import Snapshot
from etude.errors import ResumeError
from etude.ledger.writer import state_of_ledger
from etude_openmm.mmengine import files
from etude_openmm.mmengine.live import exact
from etude_openmm.mmengine.live.collate import on_cpu
from etude_openmm.mmengine.live.device import default_device
from etude_openmm.mmengine.live.dist.collectives import gather_object
from etude_openmm.mmengine.live.dist.utils import is_main_process
from etude_openmm.mmengine.live.hooks.hook import OUTDATED
from etude_openmm.mmengine.live.logging.history_buffer import HistoryBuffer
from etude_openmm.mmengine.live.model import sharded
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper
from etude_openmm.mmengine.live.runner.validation_notes import ValidationNotes, scheduler_states
from etude_openmm.mmengine.names import VERSION
from etude_openmm.shared.config.config_base import dump_public, pretty_public
from etude_openmm.shared.live.checkpoint import DEFAULT_REVISE, _load_checkpoint, _load_checkpoint_to_model
from etude_openmm.shared.live.loader import revised, state_of
from etude_openmm.shared.state import get_state_dict, is_wrapper, unwrapped, weights_to_cpu


class Checkpoints(ValidationNotes):
    """The part of a runner that reads and writes its state."""

    _resume: bool
    _load_from: str | None
    _has_loaded: bool
    _generators: Any = None
    _shares: list[Any] | None = None
    _randomness_cfg: dict[str, Any]

    def load_or_resume(self) -> None:
        """Load or resume as ``resume`` and ``load_from`` say, the first time it is called."""
        if self._has_loaded:
            return
        if self._resume and self._load_from is None:
            self._resume_latest()
        elif self._load_from is not None:
            self.resume(self._load_from) if self._resume else self.load_checkpoint(self._load_from)
            self._has_loaded = True

    def _resume_latest(self) -> None:
        """Resume from ``last_checkpoint``; if that file is damaged, from the newest one that can be read."""
        candidates = files.newest_first(self.work_dir)
        if not candidates:
            self.logger.info(f"There is no checkpoint in {self.work_dir} yet: training starts from the beginning.")
        for number, path in enumerate(candidates, start=1):
            try:
                self.resume(path)
            except (ResumeError, FileNotFoundError) as error:
                if number == len(candidates):
                    raise
                self.logger.warning(f"skipped {path}: {error}")
            else:
                self.logger.info(f"Auto resumed from the latest checkpoint {path}.")
                return

    def load_checkpoint(
        self,
        filename: str,
        map_location: str | torch.device | Any = "cpu",
        strict: bool = False,
        revise_keys: Any = DEFAULT_REVISE,
    ) -> dict[str, Any]:
        """Load the weights of a file; hooks may change its content first. Returns the content."""
        checkpoint = _load_checkpoint(filename, map_location=map_location, logger="current")
        self.call_hook("after_load_checkpoint", checkpoint=checkpoint)  # type: ignore[attr-defined]
        if sharded.is_sharded(self.model):
            sharded.load_weights(self.model, revised(state_of(checkpoint, ""), revise_keys), strict=strict)
        else:
            model = unwrapped(self.model)
            _load_checkpoint_to_model(model, checkpoint, strict, logger=self.logger, revise_keys=revise_keys)
        self._has_loaded = True
        self.logger.info(f"Load checkpoint from {filename}")
        return checkpoint  # type: ignore[no-any-return]

    def resume(
        self,
        filename: str,
        resume_optimizer: bool = True,
        resume_param_scheduler: bool = True,
        map_location: str | torch.device | Any = "default",
    ) -> None:
        """Resume from a file: weights, counters, seed, hub, optimizers, schedulers.

        The file takes precedence over a config that was changed since: schedules keep their saved windows and values.
        """
        place = default_device() if map_location == "default" else map_location
        checkpoint = self.load_checkpoint(filename, map_location=place)
        if "meta" not in checkpoint or "epoch" not in checkpoint["meta"]:
            raise ResumeError(f"{filename} holds weights only: use load_from without resume")
        self._take_counters(checkpoint["meta"])
        self._take_seed(checkpoint["meta"].get("seed"))
        self._compare_dataset(checkpoint["meta"].get("dataset_meta"))
        if "message_hub" in checkpoint:
            self.message_hub.load_state_dict(_with_histories(checkpoint["message_hub"]))
        if "optimizer" in checkpoint and resume_optimizer:
            self.optim_wrapper = self.build_optim_wrapper(self.optim_wrapper)  # type: ignore[attr-defined]
            self.optim_wrapper.load_state_dict(self._own_part(checkpoint["optimizer"]))
        if "param_schedulers" in checkpoint and resume_param_scheduler:
            self._take_schedulers(checkpoint["param_schedulers"])
        if resume_optimizer and "optimizer" in checkpoint:
            self._take_rest(filename, checkpoint["meta"].get(exact.KEY) or {})
        self._has_loaded = True
        self.logger.info(f"resumed epoch: {self.epoch}, iter: {self.iter}")

    def restore_generators(self) -> None:
        """Restore the generators that the resumed file holds; once, right before the next step."""
        state, self._generators = self._generators, None
        if state is not None:
            Snapshot.of(state).restore()

    def gather_shares(self) -> None:
        """Collect what only each process knows, for the next save; all processes have to call this."""
        if self.world_size > 1:
            self._shares = gather_object(exact.share_of(self))

    def _take_rest(self, path: str, saved: Mapping[str, Any]) -> None:
        """Load what only files of this runner hold; see :mod:`~etude_openmm.mmengine.live.exact`."""
        self.engine.history_state = saved.get("ledger")
        note = self._note_about(path, saved)
        self._take_share(saved)
        self.validates_first = note is None and self._is_owed(path, saved)
        self._go_on_with_scalars(path, (note or saved).get("scalars"))
        if note is None:
            return
        self.message_hub.load_state_dict(_with_histories(note["message_hub"]))
        if note["param_schedulers"] is not None:
            self._take_schedulers(note["param_schedulers"])
        exact.take_groups(self.optim_wrapper, note["groups"])
        exact.take_hooks(self, note["hooks"])
        self.train_loop.validated = True
        if len(note["generators"]) == self.world_size:
            self._generators = note["generators"][self.rank]

    def _take_share(self, saved: Mapping[str, Any]) -> None:
        shares = saved.get("shares") or ()
        if len(shares) == self.world_size:
            self._generators = shares[self.rank]["generators"]
            exact.take(self, shares[self.rank])
        elif shares:
            self.logger.warning(
                f"the checkpoint holds the random states of {len(shares)} processes, there are {self.world_size}: "
                "the run continues with other random numbers"
            )
            self._rescale_position(shares[0].get("data"), len(shares))

    def _rescale_position(self, data: Mapping[str, Any] | None, before: int) -> None:
        """Continue after the samples that ``before`` processes have seen: their samplers cut one order into shares."""
        passes, loop = getattr(self.train_loop, "passes", None), self.train_loop
        if passes is None or not data:
            return
        number, done = int(data["number"]), loop._iter - int(data["first"])
        batches, rest = divmod(done * before, self.world_size)
        if not exact.has_one_order(loop.dataloader):
            batches, rest = 0, done
        passes.resume_at(number, loop._iter - batches)
        if rest and loop._epoch <= number:  # else that pass is over
            self.logger.warning(
                f"{before} processes have seen {done} batches each of this pass over the data, which cannot be shared "
                f"out to {self.world_size}: the pass continues after batch {batches}, and some samples are seen twice"
            )

    def _take_counters(self, meta: Mapping[str, Any]) -> None:
        loop = self.train_loop
        loop._epoch, loop._iter = int(meta["epoch"]), int(meta["iter"])
        self.engine.hooks.rewind()

    def _take_seed(self, saved: int | None) -> None:
        current = self._randomness_cfg.get("seed")
        if saved is None or saved == current:
            return
        if current is not None:
            self.logger.warning(
                f"the checkpoint was made with seed {saved}, the config says {current}: {saved} is used"
            )
        drawn = self.seed
        self._randomness_cfg.update(seed=saved)
        self.set_randomness(**self._randomness_cfg)  # type: ignore[attr-defined]
        if current is None:  # the samplers have the seed that this start has drawn
            _reseed(self.train_dataloader, drawn, saved)

    def _compare_dataset(self, saved: Any) -> None:
        current = getattr(getattr(self.train_dataloader, "dataset", None), "metainfo", None)
        if not _same(saved, current):
            self.logger.warning("The dataset metainfo from the resumed checkpoint is different from the current one")

    def _take_schedulers(self, states: Any) -> None:
        if self.param_schedulers is None:
            self.logger.warning("the config has no schedulers, so skip resuming parameter schedulers")
            return
        self.param_schedulers = self.build_param_scheduler(self.param_schedulers)  # type: ignore[attr-defined]
        for schedulers, saved in _matching(self.param_schedulers, states):
            # By position, as in MMEngine: a scheduler of another class at the same place gets foreign attributes.
            for scheduler, state in zip(schedulers, saved, strict=False):
                scheduler.load_state_dict(state)

    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: dict[str, Any] | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: dict[str, Any] | None = None,
        by_epoch: bool = True,
        backend_args: dict[str, Any] | None = None,
    ) -> None:
        """Write everything a resume needs to ``out_dir/filename``. Only the first process writes."""
        self.later.flush()
        if not isinstance(meta, dict | None):
            raise TypeError(f"meta should be a dict or None, but got {type(meta)}")
        if file_client_args is not None:
            warnings.warn(OUTDATED, DeprecationWarning, stacklevel=2)
        # All processes gather weights that are shared out.
        if not is_main_process() and not sharded.is_sharded(self.model):
            return
        weights = self._weights()
        optimizer = on_cpu(self._optimizer_state()) if save_optimizer else None
        if not is_main_process():
            return
        checkpoint: dict[str, Any] = {
            "meta": self._meta(dict(meta or {}), by_epoch),
            "state_dict": weights_to_cpu(weights),
            "message_hub": self.message_hub.state_dict(),
        }
        if save_optimizer:
            checkpoint["optimizer"] = optimizer
            shares, self._shares = self._shares or [exact.share_of(self)], None
            checkpoint["meta"][exact.KEY] = {
                "id": uuid.uuid4().hex,  # tells one save from any other
                "shares": shares,
                "owes_validation": self.owes_validation or _is_ahead(checkpoint["meta"], self),
                "scalars": self._before[1] if self._cut and self._before else self._scalars(),
                "cut": self._cut,
                "ledger": state_of_ledger(self.engine),
            }
        if save_param_scheduler and self.param_schedulers is None:
            self.logger.warning("there are no schedulers, so skip saving parameter schedulers")
        elif save_param_scheduler:
            checkpoint["param_schedulers"] = scheduler_states(self.param_schedulers)
        self.call_hook("before_save_checkpoint", checkpoint=checkpoint)  # type: ignore[attr-defined]
        path = os.path.join(out_dir, filename)
        self.later.write(partial(files.write, path), files.plain(checkpoint))
        if save_optimizer:
            counters = int(checkpoint["meta"]["epoch"]), int(checkpoint["meta"]["iter"])
            newest = path, checkpoint["meta"][exact.KEY]["id"], counters
            self.later.then(partial(setattr, self, "_newest", newest))

    def _weights(self) -> Any:
        if sharded.is_sharded(self.model):
            return sharded.weights_of(self.model)
        return get_state_dict(self.model.module) if is_wrapper(self.model) else self.model.state_dict()

    def _optimizer_state(self) -> dict[str, Any]:
        if not isinstance(self.optim_wrapper, OptimWrapper):
            raise TypeError(f"the optim wrapper is not built yet: {self.optim_wrapper!r}")
        state: dict[str, Any] = self.optim_wrapper.state_dict()
        if sharded.is_sharded(self.model):
            state.update(sharded.optimizer_state(self.model, self.optim_wrapper.optimizer))
        return state

    def _own_part(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the optimizer's state for this process; all of it unless the model is shared out."""
        if not sharded.is_sharded(self.model):
            return state
        shared = {key: state[key] for key in ("state", "param_groups")}
        return {**state, **sharded.own_optimizer_state(self.model, self.optim_wrapper.optimizer, shared)}

    def _point_to(self, filename: str) -> None:
        """Make ``filename`` in ``work_dir`` what an automatic resume finds."""
        if is_main_process():
            files.write_text(os.path.join(self.work_dir, "last_checkpoint"), os.path.join(self.work_dir, filename))

    def _meta(self, meta: dict[str, Any], by_epoch: bool) -> dict[str, Any]:
        # A save comes before the counter of what was just finished moves on.
        meta.setdefault("epoch", self.epoch + int(by_epoch))
        meta.setdefault("iter", self.iter + int(not by_epoch))
        meta.update(
            cfg=pretty_public(self.cfg),
            seed=self.seed,
            experiment_name=self.experiment_name,
            time=time.strftime("%Y%m%d_%H%M%S", time.localtime()),
            mmengine_version=self.message_hub.get_info("mmengine_version") or VERSION,
        )
        dataset: Any = getattr(self.train_dataloader, "dataset", None)
        if hasattr(dataset, "metainfo"):
            meta.update(dataset_meta=dataset.metainfo)
        return meta

    def dump_config(self) -> None:
        """Write the resolved config to ``work_dir``, under its own name or the time of the start."""
        if is_main_process():
            name = os.path.basename(self.cfg.filename) if self.cfg.filename else f"{self.timestamp}.py"
            dump_public(self.cfg, os.path.join(self.work_dir, name))


def _is_ahead(meta: Mapping[str, Any], runner: Any) -> bool:
    """Return whether a save comes before the counters have moved on, and so before the validation that may follow."""
    return bool(meta["iter"] > runner.iter or meta["epoch"] > runner.epoch)


def _reseed(dataloader: Any, drawn: int | None, saved: int) -> None:
    """Give samplers that were made with a random seed the one that the run began with."""
    inner = getattr(getattr(dataloader, "batch_sampler", None), "sampler", None)
    for sampler in (getattr(dataloader, "sampler", None), inner):
        if drawn is not None and getattr(sampler, "seed", None) == drawn:
            sampler.seed = saved  # type: ignore[union-attr]


def _matching(schedulers: Any, states: Any) -> list[tuple[Any, Any]]:
    if isinstance(schedulers, dict):
        return [(one, states.get(name, [])) for name, one in schedulers.items()]
    return [(schedulers, states)]


def _with_histories(hub: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved hub with its histories as objects again, whichever program wrote them."""
    return {**hub, "log_scalars": {key: _history(value) for key, value in hub.get("log_scalars", {}).items()}}


def _history(value: Any) -> Any:
    if not isinstance(value, Mapping) or "_log_history" not in value:
        return value
    return HistoryBuffer(value["_log_history"], value["_count_history"], int(value.get("_max_length", 1000000)))


def _same(one: Any, other: Any) -> bool:
    """Return whether two metainfos say the same; arrays, and tuples that became lists, are compared by content."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor | np.ndarray) or isinstance(other, torch.Tensor | np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return bool(one == other)
