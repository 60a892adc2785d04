"""IterBasedRunner: training by iterations, as mmcv does with ``runner = dict(type='IterBasedRunner', max_iters=…)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from etude.core import loop
from etude.core.run import Run
from etude.data.torch_loader import passes, remainder
from etude.dialects.properties import reads
from etude_openmm.mmcv1.live.checks import explain_data_error
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner
from etude_openmm.mmcv1.live.runner.epoch_runner import check_flow
from etude_openmm.mmcv1.live.runner.registration import RUNNERS
from etude_openmm.mmcv1.live.utils.dist import get_dist_info

_TRAINING = itemgetter("training")


class IterLoader:
    """Repeats a loader without end, and counts its passes."""

    def __init__(self, dataloader: Any, *, begin: bool = True) -> None:
        self._dataloader = dataloader
        self._pass = passes.LoaderPass(dataloader)
        self.iter_loader = passes.begin(dataloader) if begin else iter(())
        self._epoch = 0

    #: The number of finished passes.
    epoch: int = reads("_epoch")

    def __next__(self) -> Any:
        current = self._pass
        try:
            if not current.taken:
                return current.draw(self.iter_loader)
            batch = next(self.iter_loader)
            current.taken += 1
            return batch
        except StopIteration:
            self._epoch += 1
            if hasattr(getattr(self._dataloader, "sampler", None), "set_epoch"):
                self._dataloader.sampler.set_epoch(self._epoch)
            self._pass = passes.LoaderPass(self._dataloader, at_once=True)
            self.iter_loader = passes.begin(self._dataloader)
            return self._pass.draw(self.iter_loader)
        except Exception as error:
            explain_data_error(error, f"pass {self._epoch + 1} over the data, batch {current.taken + 1}")
            raise

    def __iter__(self) -> IterLoader:
        return self

    def __len__(self) -> int:
        return len(self._dataloader)

    def state_dict(self) -> dict[str, Any]:
        order = remainder.facts(self._dataloader, get_dist_info()[1])
        return {"epoch": self._epoch, "order": order, **self._pass.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position. This changes the random generators of the process; the caller restores them."""
        self._epoch = int(state["epoch"])
        if self._epoch and hasattr(getattr(self._dataloader, "sampler", None), "set_epoch"):
            self._dataloader.sampler.set_epoch(self._epoch)
        shared = remainder.to_share(state) if remainder.can_begin(self._dataloader) else None
        if shared is None:
            self.iter_loader, self._pass = passes.replay(self._dataloader, state)
        else:
            self.iter_loader, self._pass = remainder.begin(self._dataloader, shared, *get_dist_info())


@RUNNERS.register_module()
class IterBasedRunner(BaseRunner):
    """Trains and validates single iterations in turn until ``max_iters``. Loaders start again when they are exhausted.

    Of the epoch stages only the generic ``before_epoch`` and ``after_epoch`` are called, once each.
    """

    unit = "iters"
    #: ``__dict__`` of every module of the model, and the value of ``training`` that ``model.train()`` gave it.
    _parts: Sequence[dict[str, Any]] = ()
    _modes: Sequence[bool] = ()

    def run(self, data_loaders: list[Any], workflow: Any, max_iters: int | None = None, **kwargs: Any) -> None:
        """Run the workflow, such as ``[('train', 1000), ('val', 50)]``, with one loader for each entry."""
        check_flow(data_loaders, workflow)
        self._require_end("max_iters", max_iters)
        self._announce(workflow, self._max_iters)
        with self._driving(data_loaders, workflow, kwargs) as engine:
            loop.fit(engine)

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for one iteration."""
        if list(map(_TRAINING, self._parts)) != self._modes:
            self._to_training_mode()
        engine, where = self.engine, self._position
        self.mode, self.data_loader, self._step_kwargs = "train", data_loader, kwargs
        # Before the batch is drawn, as in mmcv: the first batch of a new pass reports the old epoch.
        engine.epoch = data_loader.epoch
        self.data_batch = batch = next(data_loader)
        if self._hooks != self._adapted:
            self._sync_hooks()
        where.stage = "after_train_iter"
        loop.train_step(engine, batch)
        where.stage = ""
        del self.data_batch
        self._inner_iter += 1
        if where.unsettled:
            self._settle()
        if engine.stopping:
            self._save_stopped()

    def _to_training_mode(self) -> None:
        """Call ``model.train()`` and remember the modes. Comparing them is cheaper than calling it every step."""
        self.model.train()
        self._parts = [part.__dict__ for part in self.model.modules()]
        self._modes = list(map(_TRAINING, self._parts))

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Call ``val_step`` once."""
        self.model.eval()
        self.mode, self.data_loader = "val", data_loader
        self.data_batch = next(data_loader)
        if self._hooks != self._adapted:
            self._sync_hooks()
        self.engine.batch = self.data_batch
        self.engine.hooks.before_eval_step(self.engine)
        self.run_iter(self.data_batch, train_mode=False, **kwargs)
        self.engine.hooks.after_eval_step(self.engine)
        del self.data_batch
        self._inner_iter += 1

    def _val_outputs(self, data_batch: Any, kwargs: dict[str, Any]) -> Any:
        # Without the optimizer, which the epoch runner passes (mmcv's issue 1107).
        return self.model.val_step(data_batch, **kwargs)  # type: ignore[operator]

    def _loop(self, engine: Run) -> None:
        resumes = self._restored is not None and len(self._restored.state["passes"]) == len(self._loaders)
        self._iter_loaders = [IterLoader(data, begin=not resumes) for data in self._loaders]
        self.call_hook("before_epoch")
        self._begin_exactly()
        self._seek()
        assert self._max_iters is not None
        if self.iter < self._max_iters:
            self._check_trains()
        with self.later.running(self.logger.error):
            self._rounds(engine, self._max_iters)
            if not engine.stopping:
                self.call_hook("after_epoch")

    def _rounds(self, engine: Run, max_iters: int) -> None:
        turns, where, kwargs = self._entries(), self._position, self._kwargs
        methods: dict[int, Any] = {}
        while engine.step < max_iters and not engine.stopping:
            last = -1
            for turn in turns:
                entry, count = turn
                mode = self._flow[entry][0]
                if entry != last:
                    self._inner_iter, last = count, entry
                    if entry not in methods:
                        methods[entry] = self._method(mode)
                if mode == "train" and engine.step >= max_iters:
                    continue
                where.entry = turn
                methods[entry](self._iter_loaders[entry], **kwargs)
                if engine.stopping:
                    return
            turns = self._turns

    def _seek(self) -> None:
        restored, self._restored = self._restored, None
        if restored is None:
            return
        if len(restored.state["passes"]) == len(self._iter_loaders):
            for loader, state in zip(self._iter_loaders, restored.state["passes"], strict=True):
                loader.load_state_dict(state)
        self._put_generators_back(restored)

    def _open_passes(self) -> list[Any]:
        return [loader.iter_loader for loader in getattr(self, "_iter_loaders", ())]

    def _pass_states(self) -> list[Any]:
        return [loader.state_dict() for loader in self._iter_loaders]

    def _train_loader(self) -> Any:
        pairs = zip(self._flow, self._iter_loaders, strict=True)
        return next((data for (mode, _), data in pairs if mode == "train"), None)

    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str = "iter_{}.pth",
        meta: dict[str, Any] | None = None,
        save_optimizer: bool = True,
        create_symlink: bool = True,
    ) -> None:
        """Write ``out_dir/filename_tmpl``, with ``{}`` replaced by the iteration, and point ``latest.pth`` to it."""
        self._write_checkpoint(out_dir, filename_tmpl.format(self.iter + 1), save_optimizer, meta, create_symlink)

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default") -> None:
        """Load weights, counters and optimizer of a checkpoint. One that Étude wrote is resumed exactly.

        A file that mmcv wrote holds the index of the last iteration, so that one is repeated, with data from the start.
        """
        found = self._load_for_resume(checkpoint, map_location)
        self._epoch, self._iter = found["meta"]["epoch"], found["meta"]["iter"]
        # As in mmcv; the first entry of the workflow sets it to 0. The stored meta is not taken over here.
        self._inner_iter = found["meta"]["iter"]
        self._load_optimizer(found, resume_optimizer)
        self._restore(checkpoint, found, wanted=resume_optimizer)
        self.logger.info("resumed from epoch: %d, iter %d", self.epoch, self.iter)

    def register_training_hooks(  # type: ignore[override]
        self,
        lr_config: Any,
        optimizer_config: Any = None,
        checkpoint_config: Any = None,
        log_config: Any = None,
        momentum_config: Any = None,
        custom_hooks_config: Any = None,
    ) -> None:
        """Register hooks, with ``by_epoch=False`` as default of checkpoints, learning rate and loggers."""
        # As in mmcv, momentum_config is left out: its by_epoch=True never acts under this runner.
        for config in (checkpoint_config, lr_config, *((log_config or {}).get("hooks", ()))):
            if isinstance(config, dict):
                config.setdefault("by_epoch", False)
            elif config is not None and not isinstance(config, Hook):
                raise TypeError(f"a dict or a Hook is needed, got {type(config).__name__}")
        super().register_training_hooks(
            lr_config=lr_config,
            momentum_config=momentum_config,
            optimizer_config=optimizer_config,
            checkpoint_config=checkpoint_config,
            log_config=log_config,
            custom_hooks_config=custom_hooks_config,
        )
