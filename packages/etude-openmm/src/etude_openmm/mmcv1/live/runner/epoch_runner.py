"""EpochBasedRunner: training by epochs, as mmcv does with ``runner = dict(type='EpochBasedRunner', max_epochs=…)``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from etude.core import loop
from etude.core.run import Run
from etude.data.torch_loader import passes, remainder
from etude_openmm.mmcv1.live.checks import explain_data_error, require
from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner, stored_gpu_count
from etude_openmm.mmcv1.live.runner.registration import RUNNERS


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner):
    """Trains and validates whole epochs in turn, as the workflow says, until ``max_epochs`` are trained."""

    _pass: passes.LoaderPass | None = None
    _batches: Any = None

    def run(self, data_loaders: list[Any], workflow: Any, max_epochs: int | None = None, **kwargs: Any) -> None:
        """Run the workflow, such as ``[('train', 1), ('val', 1)]``, with one loader for each entry."""
        check_flow(data_loaders, workflow)
        self._require_end("max_epochs", max_epochs)
        assert self._max_epochs is not None
        # As in mmcv, the first train entry counts here, and train() counts again with its own loader.
        for (mode, _), data in zip(workflow, data_loaders, strict=True):
            if mode == "train":
                self._max_iters = self._max_epochs * len(data)
                break
        self._announce(workflow, self._max_epochs)
        with self._driving(data_loaders, workflow, kwargs) as engine:
            loop.fit(engine)

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        """Train for one epoch."""
        assert self._max_epochs is not None
        self.mode, self.data_loader, self._step_kwargs = "train", data_loader, kwargs
        self._max_iters = self._max_epochs * len(data_loader)
        self._sync_hooks()
        before = self.epoch
        loop.train_epoch(self.engine, self._training_batches(data_loader))
        self._position.stage = ""
        if self._position.unsettled:
            self._settle()
        if self.epoch == before:
            self._save_stopped()

    @torch.no_grad()
    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Call ``val_step`` for one epoch. The counters stay. The model stays in eval mode until training continues."""
        self.mode, self.data_loader = "val", data_loader
        # As in mmcv, arguments of run() reach train_step but not val_step.
        self._sync_hooks()
        loop.evaluate(self.engine, self._counted(data_loader), _ValSteps(self))
        self.model.eval()

    def _loop(self, engine: Run) -> None:
        self._begin_exactly()
        assert self._max_epochs is not None
        if self._restored is not None and not self._restored.state["passes"]:
            self._put_generators_back(self._restored)
        if self.epoch < self._max_epochs:
            self._check_trains()
        with self.later.running(self.logger.error):
            while self.epoch < self._max_epochs and not engine.stopping:
                self._round(engine, self._max_epochs)

    def _round(self, engine: Run, max_epochs: int) -> None:
        for entry, count in self._entries():
            mode, data = self._flow[entry][0], self._loaders[entry]
            method = self._method(mode)
            # As in mmcv, the other entries of the last round still run.
            if mode == "train" and self.epoch >= max_epochs:
                continue
            self._position.entry = (entry, count)
            method(data, **self._kwargs)
            if engine.stopping:
                return

    def _training_batches(self, data_loader: Any) -> Iterator[Any]:
        where, engine = self._position, self.engine
        batches, current = self._open_pass(data_loader)
        current.begin()
        where.stage = "after_train_iter"  # also if a resumed epoch has no batch left
        drawing = True
        try:
            for batch in batches:
                drawing = False
                self.data_batch, self._inner_iter = batch, current.taken
                current.taken += 1
                yield batch
                del self.data_batch
                if where.unsettled:
                    self._settle()
                if engine.stopping:
                    break
                drawing = True
        except Exception as error:
            if drawing:
                explain_data_error(error, f"epoch {self.epoch + 1}, batch {current.taken + 1}")
            raise

    def _open_pass(self, data_loader: Any) -> tuple[Any, passes.LoaderPass]:
        """Return an iterator over the batches: all of them, or those after the position of the resumed checkpoint."""
        restored, self._restored = self._restored, None
        if restored is not None and restored.state["passes"]:
            saved = restored.state["passes"][0]
            shared = remainder.to_share(saved) if remainder.can_begin(data_loader) else None
            if shared is None:
                self._batches, self._pass = passes.replay(data_loader, saved)
            else:
                self._batches, self._pass = remainder.begin(data_loader, shared, self._rank, self._world_size)
                self._count_from(saved, len(data_loader))
            self._put_generators_back(restored)
            return self._batches, self._pass
        self._pass = passes.LoaderPass(data_loader, at_once=True)
        self._batches = passes.begin(data_loader)
        return self._batches, self._pass

    def _count_from(self, saved: Mapping[str, Any], batches: int) -> None:
        """Set the iteration to what the current number of processes would have counted.

        A counter that does not match its epoch and batch was set by other code, and stays as it is.
        """
        before = self.engine.epoch * int(saved["order"]["batches"]) + int(saved["taken"])
        if self._pass is not None and before == int(saved["iter"]):
            self.engine.step = self.engine.epoch * batches + self._pass.taken

    def _open_passes(self) -> list[Any]:
        return [self._batches]

    def _counted(self, data_loader: Any) -> Iterator[Any]:
        for number, batch in enumerate(passes.begin(data_loader)):
            self.data_batch, self._inner_iter = batch, number
            yield batch
            del self.data_batch

    def _pass_states(self) -> list[Any]:
        if self._stage() == "after_train_epoch" or self._pass is None:
            return []
        made = {"order": remainder.facts(self._pass.loader, self._world_size), "iter": self.engine.done}
        return [{**self._pass.state(), **made}]

    def _next_turn(self) -> list[int]:
        return super()._next_turn() if self._stage() == "after_train_epoch" else list(self._position.entry)

    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str = "epoch_{}.pth",
        save_optimizer: bool = True,
        meta: dict[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> None:
        """Write ``out_dir/filename_tmpl``, with ``{}`` replaced by the epoch, and point ``latest.pth`` to it."""
        self._write_checkpoint(out_dir, filename_tmpl.format(self.epoch + 1), save_optimizer, meta, create_symlink)

    def resume(self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default") -> None:
        """Load weights, counters, meta and optimizer of a checkpoint. One that Étude wrote is resumed exactly."""
        found = self._load_for_resume(checkpoint, map_location)
        meta: dict[str, Any] = dict(found["meta"])
        self._epoch, self._iter = meta["epoch"], meta["iter"]
        before = stored_gpu_count(meta["config"]) if isinstance(meta.get("config"), str) else None
        moved = bool(before) and before != self.world_size
        if before and moved:
            # As in mmcv: more processes need fewer iterations for an epoch.
            self._iter = int(self._iter * before / self.world_size)
            self.logger.info("the iteration number is changed due to change of GPU number")
        # As in mmcv (its issue 1875), the stored meta replaces that of the new run.
        self.meta = meta
        self._load_optimizer(found, resume_optimizer)
        self._restore(checkpoint, found, wanted=resume_optimizer, moved=moved)
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The deprecated name of ``EpochBasedRunner``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("Runner was deprecated, please use EpochBasedRunner instead", DeprecationWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class _ValSteps:
    """An evaluation for Étude's loop that calls ``val_step``."""

    def __init__(self, runner: EpochBasedRunner) -> None:
        self.runner = runner

    def begin(self) -> None: ...

    def step(self, engine: Run, batch: Any) -> Any:
        self.runner.run_iter(batch, train_mode=False)
        return self.runner.outputs

    def end(self) -> dict[str, float]:
        return {}


def check_flow(data_loaders: Any, workflow: Any) -> None:
    """Check that ``data_loaders`` and ``workflow``, of (mode, count) tuples, are lists of equal length."""
    require(isinstance(data_loaders, list), f"data_loaders must be a list, got {type(data_loaders).__name__}")
    tuples = isinstance(workflow, list) and all(isinstance(entry, tuple) for entry in workflow)
    require(tuples, f"workflow must be a list of tuples such as [('train', 1)], got {workflow!r}")
    require(
        len(data_loaders) == len(workflow),
        f"the workflow has {len(workflow)} entries, but there are {len(data_loaders)} data loaders",
    )
