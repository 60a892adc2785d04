"""Checkpoint: save the run every so often, keep the last and the best, and go back to one of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from etude.checkpoint.encode import encode
from etude.checkpoint.load import Loaded
from etude.checkpoint.retention import Retention, is_better
from etude.checkpoint.store import STEP, Store
from etude.checkpoint.write import Outcome
from etude.core import cut
from etude.core.hook import Periodic
from etude.core.state import collect, needed
from etude.core.update import settle
from etude.dist import shards
from etude.errors import ConfigError, Diverged, EtudeError, printable, suggest
from etude.metrics.direction import lower_is_better
from etude.units import counted, parse

if TYPE_CHECKING:
    from etude.core.run import Run


#: Seconds that the start of an evaluation waits for a save in flight, to have a copy of the state in hand.
_PATIENCE = 2.0
#: Bytes of a batch, or of one of the outputs, that are copied with the state before an evaluation inside a step.
_MOST = 1 << 28
#: What a checkpoint is called that was saved inside a step that failed.
FAILED = "failed"
#: Parts that hold tensors in earnest.
_LARGE = ("model", "optimizer", "hook.Ema")


class Checkpoint(Periodic):
    """Save every so often; keep the last ``keep``, the ``best_k`` best by the metric ``best``, one each ``forever``.

    ``save_last`` saves once more at the end. ``weights_only`` saves weights beside the full checkpoints of the run.
    ``failures`` saves in a row may fail before the run stops. With ``debug`` an exception in a step saves the state
    and the offending batch aside. ``folder`` keeps checkpoints elsewhere than in the run's own folder: a path, or a URL
    that fsspec knows (``s3://bucket/run``).
    """

    priority = 110

    def __init__(
        self,
        keep: int | None = 3,
        best: str = "",
        mode: str = "",
        best_k: int = 1,
        forever: str | int | None = None,
        save_last: bool = True,
        weights_only: bool = False,
        failures: int = 3,
        debug: bool = False,
        folder: str = "",
    ) -> None:
        self.keep, self.best, self.best_k = keep, best, best_k
        self.mode = mode or ("min" if lower_is_better(best) else "max")
        self.forever = parse(forever) if forever is not None else None
        self.at_end, self.weights_only, self.failures, self.debug = save_last, weights_only, failures, debug
        self.folder = folder
        self.best_value: float | None = None
        self.best_step = self._ranked_at = -1
        self._top: list[float] = []
        self._evaluated_at = -1
        self.retention(None)

    def attach(self, run: Run) -> None:
        """Find a misspelt metric before training, not after the first evaluation."""
        if not self.best:
            return
        if "val" not in run.data:
            raise ConfigError(f"checkpoint.best: {self.best!r} needs an evaluation, and there is no data.val")
        known = {"loss", *getattr(run.evaluation, "metrics", {})}
        own = all(type(m).__module__.startswith("etude.") for m in getattr(run.evaluation, "metrics", {}).values())
        if self.best not in known and own and not self.best.startswith("loss/"):
            raise ConfigError(f"checkpoint.best: no metric {self.best!r}", hint=suggest(self.best, known))

    def retention(self, steps_per_epoch: int | None) -> Retention:
        """The rule in steps; ``forever`` may be written in epochs."""
        known = self.forever is not None and (steps_per_epoch is not None or self.forever.unit == "step")
        forever = self.forever.steps(steps_per_epoch) if self.forever is not None and known else 0
        return Retention(
            last=self.keep, best=self.best_k if self.best else 0, metric=self.best, mode=self.mode, forever=forever
        )

    def act(self, run: Run) -> None:
        if run.store is not None:
            run.store.save(run, metrics=self.fresh_metrics(run), weights_only=self.weights_only)

    def after_eval(self, run: Run) -> None:
        self._evaluated_at = run.done
        value = run.metrics.get(self.best) if self.best else None
        if self.best and value is None:
            hint = suggest(self.best, run.metrics)
            warnings.warn(f"checkpoint.best: the evaluation gave no {self.best!r}; {hint}", stacklevel=2)
        if value is not None and is_better(value, self.best_value, self.mode):
            self.best_value, self.best_step = value, run.done
        if value is not None and is_better(value, self._least(), self.mode):
            self._top = sorted([*self._top, value], reverse=self.mode == "max")[: self.best_k]
            self._ranked_at = run.done

    def _least(self) -> float | None:
        """The score that a newcomer among the ``best_k`` has to beat; None while there is room."""
        return self._top[-1] if len(self._top) >= self.best_k else None

    def has_new_best(self, run: Run) -> bool:
        """Whether the evaluation of this very step was among the ``best_k`` best so far."""
        return self._ranked_at == run.done and self._evaluated_at == run.done

    def fresh_metrics(self, run: Run) -> dict[str, float]:
        """What was measured on these very weights; older results say nothing about them."""
        return dict(run.metrics) if self._evaluated_at == run.done else {}

    def state_dict(self) -> dict[str, Any]:
        own = {"best_value": self.best_value, "best_step": self.best_step, "evaluated_at": self._evaluated_at}
        return super().state_dict() | own | {"top": list(self._top), "ranked_at": self._ranked_at}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.best_value, self.best_step = state["best_value"], int(state["best_step"])
        self._evaluated_at = int(state["evaluated_at"])
        alone = [] if self.best_value is None else [self.best_value]
        self._top, self._ranked_at = list(state.get("top", alone)), int(state.get("ranked_at", self.best_step))

    def after_train(self, run: Run) -> None:
        """After a signal the steps since the last checkpoint are saved, also when the end as such is not; and all of
        the state where else weights alone are, for what was stopped is to go on."""
        if not run.exit_code or run.error is not None or run.done == 0 or run.store is None:
            return
        if self.weights_only:
            run.store.save(run)
        elif run.done != self._acted_at:
            self._act(run)


class Saver:
    """The store as a run sees it: takes the run's state, and gives it back."""

    def __init__(self, store: Store, say: Callable[[str], Any]) -> None:
        self.store, self.say = store, say
        #: Steps and epochs done at the last save, and what was saved then: (with metrics, weights only, tag).
        self._place = (-1, -1)
        self._kinds: set[tuple[bool, bool, str]] = set()
        self._held_at = self._left_at = -1
        self._unsaved = ""

    def prepare(self, run: Run) -> None:
        """Have the memory for snapshots ready before the first save; the optimizer has its state after a step.

        A state that could not be saved is refused now, not when hours of training are to be.
        """
        state: dict[str, Any] = {}
        for name, part in run.parts().items():
            with suppress(Exception):  # one that is not ready yet is asked again when it is saved
                state[name] = part.state_dict()
        if run.peers is not None:
            state = shards.whole(state)
        if not all(hook.weights_only for hook in run.hooks if isinstance(hook, Checkpoint)):
            for name, value in state.items():
                encode(name, value)
        self.store.prepare({name: value for name, value in state.items() if name.startswith(_LARGE)})

    def save(
        self,
        run: Run,
        *,
        metrics: dict[str, float] | None = None,
        weights_only: bool = False,
        tag: str = "",
        **extra: Any,
    ) -> None:
        """Save unless this very state is saved already. ``extra`` are further parts (the batch that failed)."""
        kind = (bool(metrics), weights_only, tag)
        whole = not (metrics or weights_only or tag)
        if (whole and self._is_saved(run)) or (kind in self._kinds and self._is_here(run)):
            return
        if run.error is None:
            settle(run)
        if run.hooks.before_save:
            run.hooks.before_save(run)
        self._store(run, metrics=metrics, weights_only=weights_only, tag=tag, **extra)
        self._kinds = {kind} | (self._kinds if self._is_here(run) else set())
        self._place, self._held_at = (run.done, run.epochs_done), -1

    def _is_here(self, run: Run) -> bool:
        return self._place == (run.done, run.epochs_done)

    def _is_saved(self, run: Run) -> bool:
        """Whether there is a checkpoint of this very moment to resume from."""
        return self._is_here(run) and any(not (weights or tag) for _, weights, tag in self._kinds)

    def _store(
        self,
        run: Run,
        *,
        metrics: dict[str, float] | None = None,
        weights_only: bool = False,
        tag: str = "",
        hold: bool = False,
        **extra: Any,
    ) -> None:
        counters = run.parts()["counters"].state_dict()
        self.store.save(
            {**collect(run), **extra},
            step=run.done,
            epoch=int(counters["epoch"]),
            metrics=metrics,
            weights_only=weights_only,
            tag=tag,
            watch=() if tag else watched(run),
            world=run.world.size,
            hold=hold,
        )

    def hold(self, run: Run) -> None:
        """At the end of an epoch's last step: have a copy of the state, in case the end of the epoch goes wrong."""
        if not self._is_saved(run) and self.store.is_free(_PATIENCE):
            self._store(run, hold=True)
            self._held_at = run.done

    def hold_for_evaluation(self, run: Run) -> None:
        """Before an evaluation: have a copy of the state, in case it does not come back.

        In the middle of a step the copy says which hooks have acted; at the end of an epoch there is one already.
        """
        inside = cut.within_step(run)
        if run.epochs_done > run.epoch or (run.acting is None if inside else self._is_saved(run)):
            return
        if not self.store.is_free(_PATIENCE):
            return
        extra: dict[str, Any] = {}
        if inside and run.acting is not None:
            extra = {cut.PART: cut.before(run, run.acting, most=_MOST)}
        with run.acting.undone() if run.acting is not None else nullcontext():
            self._store(run, hold=True, **extra)
        self._held_at = run.done

    def save_what_is_left(self, run: Run, error: BaseException | None) -> None:
        """After an error: the copy that is held; else the state as it is, where a hook raised between two steps or no
        batch was to be had.

        Nothing is pruned then: what was saved before stays as it was.
        """
        self.store.pruning = False
        if run.peers is not None:  # a rank that fails is alone: only what all have put together before can be written
            if self._held_at == run.done:
                self.commit()
            return
        site, held = getattr(error, "etude_site", None), self._held_at == run.done
        self.commit()
        if error is None or run.done in (0, self._left_at) or self._is_saved(run):
            return
        if site is None:
            parts = cut.left_between(run, error)
        elif isinstance(error, EtudeError) or (held and site.actor is run.acting):
            return  # an evaluation begins again
        else:
            parts = cut.left_by(run, site.point, site.actor)
        if isinstance(parts, str):
            self._unsaved = parts
            return
        self._left_at = run.done
        self._store(run, **parts)

    def went_on_from(self, run: Run, loaded: Loaded) -> None:
        """The run was resumed: this very state is saved, and a hook that raises at once has nothing new to leave."""
        self._left_at = run.done
        if run.cut is None:
            self._place, self._kinds = (run.done, run.epochs_done), {(bool(loaded.manifest.metrics), False, "")}

    def holds(self, run: Run) -> bool:
        """Whether the state of this step is in hand or saved, so that nothing is lost by ending here."""
        saved = self._place[0] == run.done and any(not (weights or tag) for _, weights, tag in self._kinds)
        return self._held_at == run.done or (saved and not cut.within_step(run))

    def commit(self) -> None:
        """Write the state that is held."""
        self.store.commit()
        self._held_at = -1

    def poll(self) -> None:
        """Report saves that failed; stop for weights that are not finite."""
        for outcome in self.store.poll():
            self._check(outcome)

    def _check(self, outcome: Outcome) -> None:
        if outcome.unsound is not None:
            raise Diverged(
                f"weight {printable(outcome.unsound)} is not finite at step {outcome.step}; saved apart as "
                f"{outcome.path}; last good checkpoint: {self.newest() or 'none'}"
            )

    def newest(self) -> str | None:
        """The newest checkpoint, with the one that is being written; of another file system its URL."""
        self.store.wait()
        newest = self.store.newest()
        return self.store.disk.join(self.store.given, newest.rpartition("/")[2]) if newest else None

    def lost(self, run: Run) -> str:
        """What a resumed run will have to do again after an error, and why; empty when it is nothing."""
        newest = self.newest()
        match = STEP.fullmatch(newest.rpartition("/")[2]) if newest else None
        steps = run.done - (int(match[1]) if match else 0)
        why = f": {self._unsaved}" if self._unsaved else ""
        return f"{counted(steps, 'step')} {'is' if steps == 1 else 'are'} to be repeated{why}" if steps > 0 else ""

    def rollback(self, run: Run) -> None:
        """Weights, optimizers and the hooks' states from the newest checkpoint; counters, data, generators go on."""
        at = f"the loss is not finite at step {run.step + 1}"
        self.store.wait()
        loaded = self.store.resume(need=["model"])
        if loaded is None:
            raise Diverged(f"{at}, and there is no checkpoint to go back to")
        state = shards.scattered(run, loaded.state)
        for name, part in run.parts().items():
            if name in state and name.startswith(("model", "optimizer", "hook.")):
                part.load_state_dict(state[name])
        self.say(f"{at}: went back to the weights and hooks of step {loaded.manifest.step}, past this batch")

    def resume(self, run: Run) -> Loaded | None:
        return self.store.resume(need=needed(run))

    def close(self) -> None:
        """Wait for the last save; a failure of that one is an error, for there is no later one to make up for it."""
        self.store.wait()
        self.store.failures = 1
        self.poll()


def watched(run: Run) -> Collection[str]:
    """The weights that must be finite: parameters, not buffers, which may well hold an infinite mask."""
    return [name for name, _ in run.model.named_parameters()]
