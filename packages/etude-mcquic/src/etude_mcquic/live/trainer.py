"""McQuic's Trainer, run by Étude's training loop, which calls the six kinds of hooks in McQuic's order.

.. code-block:: text

    beforeRun
    for every epoch:  set_epoch · validate and save (every valFreq epochs) · epochStart
                      for every batch:  stepStart · update · step + 1 · stepFinish
                      epoch + 1 · scheduler.step() · log · epochFinish
    afterRun
"""

from __future__ import annotations

import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from etude.checkpoint.formats.torch_file import Patience
from etude.checkpoint.state import Generators, check_weights
from etude.core.hook import Call, Hook, HookTable, Site, origin_of
from etude.core.loop import epochs, fit
from etude.core.run import Counters, Part, Run
from etude.dialects.properties import reads
from etude.dist import group
from etude.dist.peers import Peers
from etude.dist.world import ALONE, World
from etude.errors import ResumeError, SaveError, Stopped
from etude.events.jsonl import Jsonl
from etude.events.record import Record
from etude.ledger.writer import state_of_ledger
from etude_mcquic.config import Config
from etude_mcquic.files import Restorable, Saver
from etude_mcquic.live.formats import EMATracker, prettyStep, totalParameters
from etude_mcquic.live.hooks import ChainHook, EpochFrequencyHook
from etude_mcquic.live.registry import is_ours
from etude_mcquic.live.validate import decibel_of

#: Scalars are written to TensorBoard every so many steps.
SCALARS_EVERY = 100
_POINTS = {"BeforeRun": "before_train", "AfterRun": "after_run", "StepStart": "before_step", "StepFinish": "after_step",
           "EpochStart": "before_epoch", "EpochFinish": "after_epoch"}  # fmt: skip


class Trainer(Restorable):
    """Trains with ``train(loader, sampler, **chains)`` up to ``config.Train.Epoch``; ``restoreStates(path)`` resumes.

    Hooks can use ``_model``, ``_optimizer``, ``_scheduler``, ``_step``, ``_epoch``, ``rank``, ``worldSize``, ``config``
    and ``saver``. ``validator(epoch, trainer)`` returns the results of a validation by name, including the target.
    """

    def __init__(
        self,
        config: Config,
        modelFn: Callable[[], nn.Module],
        optimFn: Callable[..., torch.optim.Optimizer],
        schdrFn: Callable[..., Any],
        saver: Saver,
        *,
        validator: Callable[[int, Any], tuple[dict[str, float], Any]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        trust: bool = False,
        world: World = ALONE,
    ) -> None:
        self.config, self.saver, self.validator, self.trust = config, saver, validator, trust
        self.transform = transform or (lambda images: images)
        self.rank, self.worldSize = world.rank, world.size
        self._peers = Peers(world) if world.is_many else None
        saver.debug("<%s> is located at rank `%d`", type(self).__name__, self.rank)
        model = self._logged("model", "Model", modelFn)
        saver.debug("[%s] Model size: %s", prettyStep(0), totalParameters(model))
        if self._peers is not None:
            self._peers.copy_from_main(model)
        optim, schdr = config.Train.Optim, config.Train.Schdr
        self.engine = Run(model, self._update, epochs, max_epochs=config.Train.Epoch)
        self.engine.runner = self
        self._optimizer = self._logged("optimizer", "Optimizer", lambda: optimFn(model.parameters(), **optim.Params))
        self._scheduler = self._logged("LR scheduler", "LR scheduler", lambda: schdrFn(self._optimizer, **schdr.Params))
        self.engine.optimizers = {"": self._optimizer}
        # McQuic's values before any validation: hooks read them.
        self.bestRate, self.bestDistortion = 1e10, -1.0
        self.keepLast, self.seed = False, 3407
        #: Writes results for ``etude runs``, ``show`` and ``report``.
        self.records: Jsonl | None = None
        #: Returns the reason and the exit code of a received signal, which ends a validation at once.
        self.asked_to_stop: Callable[[], tuple[str, int] | None] = lambda: None
        self._patience = Patience()
        self.formatter = decibel_of(config.Train.Target)
        self.diffTracker = EMATracker((), 0.99)
        self.results: dict[str, Any] = {}
        self._kwds: dict[str, Any] = {}
        self._restored: dict[str, Any] = {}
        saver.debug("[%s] <%s> created.", prettyStep(0), type(self).__name__)

    def _logged(self, what: str, done: str, make: Callable[[], Any]) -> Any:
        self.saver.debug("[%s] Creating %s...", prettyStep(0), what)
        made = make()
        self.saver.debug("[%s] %s created.", prettyStep(0), done)
        return made

    # -- attributes for hooks ------------------------------------------------------------------------------------

    _model: nn.Module = reads("engine.model")
    _step: int = reads("engine.done")
    _epoch: int = reads("engine.epochs_done")

    @property
    def PrettyStep(self) -> str:
        return prettyStep(self._step)

    # -- state ---------------------------------------------------------------------------------------------------

    def restorable(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_epoch", "_step", "_model", "_optimizer", "_scheduler")}

    def save(self, path: str | Path | None = None) -> None:
        """Save model, optimizer, scheduler and counters, and what an exact resume needs in addition."""
        loader = self._kwds.get("trainLoader")
        within = Counters(self.engine).state_dict()["step_in_epoch"] if hasattr(loader, "state_dict") else 0
        exact = {
            "best": [self.bestRate, self.bestDistortion],
            "results": dict(self.results),
            "rng": Generators().state_dict(),
            "ema": self.diffTracker.shadow,
            "hooks": {name: hook.state_dict() for name, hook in self._stateful().items()},
            "records": self.records.state_dict() if self.records is not None else {},
            "ledger": state_of_ledger(self.engine),
            "position": {
                "within": within,
                "data": loader.state_dict() if within else {},  # type: ignore[union-attr]
                "batch": getattr(loader, "batch_size", 0),
            },
        }
        self.saver.save(path, trainer=self, config=self.config.serialize(), etude=exact)

    def _save_or_forgive(self, *, best: bool) -> None:
        """Save after a validation. A failed save is only logged at first: a full disk may have room at the next one."""
        later = self.saver.later
        later.flush()
        try:
            with later.deferring(self._forgive, only_if=self._all_is_ours()):
                self.save()
        except SaveError as error:
            self._forgive(error)
            return
        later.then(self._patience.renew)
        if best and self.rank == 0:
            later.then(partial(_copy_atomically, Path(self.saver.SavePath), Path(self.saver.SaveDir) / "best.ckpt"))

    def _forgive(self, error: SaveError) -> None:
        self._patience.forgive(error, self.saver.logger.error)

    def _all_is_ours(self) -> bool:
        """Return whether trainer and hooks are all Étude's, so that no user code acts between two steps."""
        return all(map(is_ours, [self, *(getattr(call, "__self__", call) for call in self._calls())]))

    def restoreStates(self, path: str | Path) -> None:
        """Resume from a checkpoint, including optimizer, schedule and best result."""
        self.restore(self.saver.load(path, trust=self.trust), path)

    def restore(self, content: Mapping[str, Any], path: str | Path, *, fresh_rates: bool = False) -> None:
        """Resume from the content of a checkpoint. With ``fresh_rates`` the learning rates are those of the config."""
        state = content.get("trainer") or {}
        missing = [name for name in self.restorable() if name not in state]
        if missing:
            raise ResumeError(f"{path} has no {', '.join(missing)}")
        check_weights(self._model, state["_model"])
        rates = [{k: v for k, v in own.items() if k != "params"} for own in self._optimizer.param_groups]
        self._model.load_state_dict(state["_model"])
        self._optimizer.load_state_dict(state["_optimizer"])
        self.engine.step, self.engine.epoch, self.engine.stage = int(state["_step"]), int(state["_epoch"]), ""
        if fresh_rates:
            self._use_config_rates(rates)
        else:
            self._scheduler.load_state_dict(state["_scheduler"])
        exact = content.get("etude", {})
        self.bestRate, self.bestDistortion = exact.get("best", [1e10, -1.0])
        self.results = dict(exact.get("results", {}))
        if "ema" in exact:
            self.diffTracker.shadow.copy_(exact["ema"])
        self._restored = dict(exact)
        self.engine.history_state = exact.get("ledger")
        self.saver.forget_after(self._step)
        self.saver.info("[%s] Resume training at %s steps / %d epochs.", self.PrettyStep, self.PrettyStep, self._epoch)

    def _use_config_rates(self, rates: list[dict[str, Any]]) -> None:
        """Set the learning rates of the config, and step its scheduler to this epoch."""
        for own, wanted in zip(self._optimizer.param_groups, rates, strict=True):
            own.update(wanted)
        if not isinstance(self._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            # torch warns of scheduler steps before the first step of the optimizer.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(self._epoch):
                    self._scheduler.step()

    # -- training ------------------------------------------------------------------------------------------------

    def prepare(self, trainLoader: Iterable[Any], trainSampler: Any, **chains: ChainHook | None) -> Run:
        """Set the data and the hooks of the run. ``fit(run)`` then trains."""
        loader, self.trainSampler = trainLoader, trainSampler
        self._kwds = {"trainLoader": loader, "trainSampler": trainSampler}
        transform = self.transform if self._peers is None else self._seed_and_transform
        self.engine.data = {"train": _Images(loader, transform)}
        length = len(loader) if isinstance(loader, Sized) else None
        self.engine.steps_per_epoch = length
        self.engine.total_steps = None if length is None else length * self.config.Train.Epoch
        full = {name: self._with_own(name, chains.get(_key(name))) for name in _POINTS}
        for name, chain in full.items():
            self.saver.debug(f"<{name}Hook> is `{chain}`." if len(chain) else f"No <{name}Hook>.")
        self.engine.hooks = HookTable([Bridge(self, full)], steps_per_epoch=length)
        return self.engine

    def train(self, trainLoader: Iterable[Any], trainSampler: Any = None, *args: Any, **chains: Any) -> None:
        self.prepare(trainLoader, trainSampler, **chains)
        self.go()

    def go(self) -> None:
        """Train after :meth:`prepare`."""
        if self._step == 0:
            self.saver.info("[%s] Start training.", self.PrettyStep)
        self.saver.debug("[%s] Training loop started.", self.PrettyStep)
        self.engine.loop = epochs
        self._restore_position()
        with self.saver.later.running(self.saver.logger.error):
            fit(self.engine)

    def _restore_position(self) -> None:
        """Restore the position in the data, the hooks and the random generators of a resumed checkpoint."""
        exact, self._restored = self._restored, {}
        position = exact.get("position", {})
        if position.get("within"):
            self._enter_epoch(position)
        # Only the remaining epochs are computed: earlier ones may have had other lengths.
        if self.engine.steps_per_epoch is not None:
            begun = self.engine.step - self.engine.step_in_epoch
            self.engine.total_steps = (
                begun + (self.config.Train.Epoch - self.engine.epoch) * self.engine.steps_per_epoch
            )
        for name, hook in self._stateful().items():
            if name in exact.get("hooks", {}):
                hook.load_state_dict(exact["hooks"][name])
        if self.records is not None and exact.get("records"):
            self.records.load_state_dict(exact["records"])
        if "rng" in exact:
            Generators().load_state_dict(exact["rng"])

    def _enter_epoch(self, position: Mapping[str, Any]) -> None:
        """Continue after the samples that were seen. With another number of processes the batch size may differ."""
        loader, within = self._kwds["trainLoader"], position["within"]
        before, now = position.get("batch") or loader.batch_size, loader.batch_size
        within, again = divmod(within * before, now)
        if again:
            self.saver.warning("[%s] %d samples of this epoch are seen again: the batch was %d and is %d now",
                               self.PrettyStep, again, before, now)  # fmt: skip
        self.engine.step_in_epoch = within
        loader.load_state_dict({**position["data"], "batch": within})

    def _stateful(self) -> dict[str, Any]:
        """Return the user's hooks that have a state, by class name."""
        owners = [getattr(call, "__self__", None) for call in self._calls()]
        kept = [owner for owner in owners if owner is not self and isinstance(owner, Part)]
        return {type(owner).__name__: owner for owner in kept}

    def _calls(self) -> list[Callable[..., Any]]:
        """Return what the hooks of all kinds call."""
        chains = [hook.chains for hook in self.engine.hooks if isinstance(hook, Bridge)]
        return [call for chain in chains for items in chain.values() for call in items.hooks]

    def _with_own(self, name: str, users: ChainHook | None) -> ChainHook:
        own = {
            "StepFinish": self._stepFinishHook,
            # As in McQuic, before epoch 0, too, and never after the last one.
            "EpochStart": EpochFrequencyHook((self.config.Train.ValFreq, self.validate)),
            "EpochFinish": EpochFrequencyHook((1, self.log)),
        }
        return ChainHook(own.get(name), users)

    def _seed_and_transform(self, images: Any) -> Any:
        """Seed the generators for a step from seed, step and rank, so that a checkpoint needs only rank 0's state."""
        seed = int(np.random.SeedSequence([self.seed, self._step, self.rank]).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        return self.transform(images)

    def _update(self, run: Run, batch: Any) -> dict[str, Any]:
        """Run forward, backward and step, without clipping or accumulation, as McQuic does."""
        self._optimizer.zero_grad()
        outputs = self._model(batch)
        loss = outputs["rate"] + outputs["distortion"]
        if self._peers is None:
            loss.backward()
        else:
            (loss * self._kwds["trainLoader"].weight).backward()
            self._peers.average(self._model.parameters())
            self._peers.align(self._model)
        self._optimizer.step()
        run.loss = loss.detach()
        return outputs  # type: ignore[no-any-return]

    def _stepFinishHook(self, step: int, epoch: int, trainer: Any, *args: Any, distortion: Tensor, **kwds: Any) -> None:
        shown = self.diffTracker(self.formatter(distortion.detach()))
        if self._step % SCALARS_EVERY == 0:
            self.saver.add_scalar(f"Stat/{self.config.Train.Target}", shown, global_step=self._step)
            self.saver.add_scalar("Stat/Lr", self._scheduler.get_last_lr()[0], global_step=self._step)

    def log(self, epoch: int, step: int, *args: Any, images: Any = None, **outputs: Any) -> None:
        """Log images and statistics of the last batch of the epoch."""
        self.saver.add_scalar("Stat/Epoch", self._epoch, global_step=self._step)
        if outputs.get("logits") is not None:
            self.saver.add_histogram("Stat/LogDistance", _log_distance(outputs["logits"]), global_step=self._step)
        for tag, value in (("Raw", images), ("Post", outputs.get("postProcessed")), ("Res", outputs.get("restored"))):
            if value is not None:
                self.saver.add_images(f"Train/{tag}", _to_unit_range(value), global_step=self._step)
        if hasattr(self._model, "CodeUsage"):
            self.saver.add_scalar("Stat/CodeUsage", self._model.CodeUsage, global_step=self._step)
        shown = float(self.diffTracker.shadow)
        self._record("train", {self.config.Train.Target: shown, "lr": float(self._scheduler.get_last_lr()[0])})

    def validate(self, epoch: int, *args: Any, **kwds: Any) -> None:
        """Validate, save, and keep the best checkpoint by the target."""
        if self.validator is None:
            return
        target = self.config.Train.Target
        self.saver.debug("[%s] Start validation at epoch %4d.", self.PrettyStep, self._epoch)
        self._model.eval()
        picture = self._measure(epoch)
        for name in ("MsSSIM", "PSNR", "BPP"):
            if name in self.results:
                self.saver.add_scalar(f"Eval/{name}", self.results[name], global_step=self._step)
        if picture is not None:
            self.saver.add_images("Eval/Visualization", picture, global_step=self._step)
        better = self.results[target] > self.bestDistortion
        if better:
            self.bestDistortion, self.bestRate = self.results[target], self.results.get("BPP", -1.0)
        self._save_or_forgive(best=better)
        self._record("val", self.results)  # after the save, because a run that resumes from it validates again
        self.saver.info("[%s] %s: %.2f", self.PrettyStep, target, self.results[target])
        self._model.train()
        self.saver.debug("[%s] End validation at epoch %4d.", self.PrettyStep, self._epoch)

    def _record(self, split: str, values: Mapping[str, float]) -> None:
        if self.records is not None:
            self.records.write(Record(self._step, self._epoch, split, dict(values), time.time()))

    def _measure(self, epoch: int) -> Any:
        """Validate on rank 0, send the results to all ranks, and return an image on rank 0."""
        picture = None

        def measure() -> tuple[dict[str, float], tuple[str, int] | None]:
            nonlocal picture
            assert self.validator is not None
            try:
                results, picture = self.validator(epoch, self)
            except Stopped as stop:
                return {}, (str(stop), stop.exit_code)
            return results, None

        results, stopped = group.first(measure)
        if stopped is not None:
            self._model.train()
            if self.keepLast and self._step:
                self.save(Path(self.saver.SaveDir) / "last.ckpt")
            raise Stopped(*stopped)
        self.results = results
        return picture

    def leave_validation(self) -> None:
        """Stop inside a validation if a signal was received. The weights are saved before the run ends."""
        self.engine.batch = object()  # a new object shows a watchdog that the run makes progress
        asked = self.asked_to_stop()
        if asked is not None:
            raise Stopped(f"{asked[0]} in the validation after step {self._step}", asked[1])

    def summary(self) -> None:
        if self.bestDistortion < 0:
            self.saver.info("[%s] Total epoches: %d, total steps: %s, no validation was done.",
                            self.PrettyStep, self._epoch, self.PrettyStep)  # fmt: skip
            return
        self.saver.info(
            "[%s] Total epoches: %d, total steps: %s, best rate/distortion: %.4f / %.2fdB.",
            self.PrettyStep, self._epoch, self.PrettyStep, self.bestRate, self.bestDistortion,
        )  # fmt: skip


class MainTrainer(Trainer):
    """McQuic's name for the trainer of rank 0, which validates, logs and saves."""


class Bridge(Hook):
    """Calls McQuic's chains of hooks at Étude's points. They also contain the trainer's own work."""

    def __init__(self, trainer: Trainer, chains: Mapping[str, ChainHook]) -> None:
        self.trainer, self.chains = trainer, chains

    @property
    def name(self) -> str:
        return "McQuic"

    def calls(self) -> Mapping[str, Call]:
        own = {"AfterRun": self._after_run, "EpochStart": self._epoch_start, "EpochFinish": self._epoch_finish}
        called = [name for name in _POINTS if name in own or len(self.chains[name])]
        return {_POINTS[name]: own.get(name, partial(self._call, name)) for name in called}

    def _call(self, name: str, run: Run) -> None:
        """Call all hooks of a chain."""
        extra = self._extra(name, run)
        for hook in self.chains[name].hooks:
            try:
                hook(run.done, run.epochs_done, self.trainer, logger=self.trainer.saver, **extra)
            except Exception as error:
                _attach_site(error, hook, _POINTS[name], run.step)
                raise

    def _extra(self, name: str, run: Run) -> dict[str, Any]:
        both = self.trainer._kwds
        if name == "BeforeRun":
            return {"totalBatches": run.steps_per_epoch, "trainSampler": both["trainSampler"]}
        if name == "AfterRun":
            return {}
        if name == "StepFinish":
            return {"rate": run.outputs["rate"], "distortion": run.outputs["distortion"], **both}
        if name == "EpochFinish":
            named = ("restored", "postProcessed", "codes", "logits")
            outputs = {key: (run.outputs or {}).get(key) for key in named}
            return {"images": run.batch, **outputs, "trainSet": getattr(both["trainLoader"], "dataset", None), **both}
        return dict(both)

    def _epoch_start(self, run: Run) -> None:
        trainer = self.trainer
        set_epoch = getattr(trainer.trainSampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(run.epoch)
        trainer.saver.debug("[%s] Epoch %4d started.", trainer.PrettyStep, run.epoch + 1)
        self._call("EpochStart", run)

    def _epoch_finish(self, run: Run) -> None:
        trainer = self.trainer
        trainer.saver.debug("[%s] Epoch %4d finished.", trainer.PrettyStep, run.epochs_done)
        self._step_scheduler()
        trainer.saver.debug("[%s] Lr is set to %.2e.", trainer.PrettyStep, trainer._scheduler.get_last_lr()[0])
        self._call("EpochFinish", run)

    def _step_scheduler(self) -> None:
        """Step the scheduler. ReduceLROnPlateau gets the last result of the target, negated if its mode is ``min``."""
        trainer = self.trainer
        if isinstance(trainer._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            # McQuic gives it no result, so that this scheduler always fails there.
            result = trainer.results.get(trainer.config.Train.Target, 0.0)
            trainer._scheduler.step(-result if trainer._scheduler.mode == "min" else result)
        else:
            trainer._scheduler.step()

    def _after_run(self, run: Run) -> None:
        trainer = self.trainer
        trainer.saver.debug("[%s] Training loop finished.", trainer.PrettyStep)
        if trainer.keepLast:
            trainer.save(Path(trainer.saver.SaveDir) / "last.ckpt")
        self._call("AfterRun", run)
        trainer.summary()


class _Images:
    """Iterates over transformed batches."""

    def __init__(self, loader: Iterable[Any], transform: Callable[[Any], Any]) -> None:
        self.loader, self.transform = loader, transform

    def __iter__(self) -> Any:
        return map(self.transform, self.loader)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    task: Any = reads("loader.task")


def _attach_site(error: Exception, hook: Any, point: str, step: int) -> None:
    """Attach the place of the hook that raised ``error``, in place of the bridge that called it."""
    if getattr(error, "etude_site", None) is None:
        owner = type(getattr(hook, "__self__", None)) if hasattr(hook, "__self__") else hook
        name = getattr(owner, "__name__", type(owner).__name__)
        error.etude_site = Site(name, point, step, origin_of(owner))  # type: ignore[attr-defined]


def _key(name: str) -> str:
    return f"{name[0].lower()}{name[1:]}Hook"


def _log_distance(logits: Any) -> Tensor:
    first: Tensor = logits[0] if isinstance(logits, list | tuple) else logits
    return (-first.detach().float()).clamp(min=1e-12).log10()


def _to_unit_range(images: Tensor) -> Tensor:
    return ((images.detach().float() + 1) / 2).clamp(0, 1)


def _copy_atomically(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)
