"""Saves the state of a run to its store, and restores it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from etude.checkpoint.encode import encode
from etude.checkpoint.load import Loaded
from etude.checkpoint.state import INTERRUPTED, collect
from etude.checkpoint.store import STEP, Store
from etude.checkpoint.write import Outcome
from etude.core.run import Run
from etude.core.update import read_losses
from etude.dist.layout import shards
from etude.errors import Diverged, EtudeError, printable
from etude.hooks.checkpoint import Checkpoint
from etude.session.recovery.interrupted import Watch, position_before_batch
from etude.units import counted

#: Seconds that the start of an evaluation waits for a save in flight, to have a copy of the state in hand.
_PATIENCE = 2.0
#: Seconds to wait for the other ranks' share of a save after an error: one of them may be gone.
_PATIENCE_FOR_RANKS = 3.0
#: Bytes of a batch, or of one of the outputs, that are copied with the state before an evaluation inside a step.
_MOST = 1 << 28
#: What a checkpoint is called that was saved inside a step that failed.
FAILED = "failed"
#: Parts with most of the tensors.
_LARGE = ("model", "optimizer", "hook.Ema")


class Saver:
    """Saves the state of one run, holds a copy where the run may have to stop, and rolls back to a checkpoint."""

    def __init__(self, run: Run, store: Store, say: Callable[[str], Any]) -> None:
        self.store, self.say, self.watch = store, say, Watch(run)
        #: Steps and epochs done at the last save, and what was saved then: (with metrics, weights only, tag).
        self._place = (-1, -1)
        self._kinds: set[tuple[bool, bool, str]] = set()
        self._held_at = self._left_at = -1
        self._unsaved = ""
        #: Called before anything is written: the run's folder may be gone.
        self.before_write: Callable[[], None] | None = None

    def prepare(self, run: Run) -> None:
        """Allocate the memory for snapshots before the first save; the optimizer has its state after a step.

        A state that could not be saved is refused now, not when hours of training are to be.
        """
        state: dict[str, Any] = {}
        for name, part in run.parts().items():
            with suppress(Exception):  # one that is not ready yet is asked again when it is saved
                state[name] = part.state_dict()
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
        if run.error is None:  # a bad loss that only the device has seen ends the run before the save
            read_losses(run)
        if run.hooks.before_save:
            run.hooks.before_save(run)
        self._store(run, metrics=metrics, weights_only=weights_only, tag=tag, **extra)
        self._kinds = {kind} | (self._kinds if self._is_here(run) else set())
        self._place, self._held_at = (run.done, run.epochs_done), -1

    def save_failed(self, run: Run) -> None:
        """Save the state inside a step that failed, with its batch, next to the other checkpoints."""
        self.save(run, tag=FAILED, batch=run.batch, **position_before_batch(run))

    def _is_here(self, run: Run) -> bool:
        return self._place == (run.done, run.epochs_done)

    def _is_saved(self, run: Run) -> bool:
        """Return whether there is a checkpoint of this very moment to resume from."""
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
        if self.before_write is not None and not hold:
            self.before_write()
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
            # The files of records reach the disk first, and training does not wait for it.
            first=run.events.sync,
        )

    def hold(self, run: Run) -> None:
        """Copy the state after an epoch's last step, in case the end of the epoch fails."""
        if not self._is_saved(run) and self.store.is_free(_PATIENCE):
            self._store(run, hold=True)
            self._held_at = run.done

    def snapshot_before_evaluation(self, run: Run) -> None:
        """Copy the state before an evaluation, in case the evaluation fails.

        In the middle of a step the copy says which hooks have acted; at the end of an epoch there is one already.
        """
        inside = run.stage == "after_step"
        if run.stage == "after_epoch" or (self.watch.acting is None if inside else self._is_saved(run)):
            return
        if self.store.is_free(_PATIENCE):
            self._store(run, hold=True, **self.watch.parts_while_acting(most=_MOST))
            self._held_at = run.done

    def save_emergency(self, run: Run, error: BaseException | None) -> None:
        """Save after an error: the copy that is held; else the current state, if a hook raised between two steps or no
        batch could be loaded.

        Nothing is pruned then: what was saved before stays as it was.
        """
        self.store.pruning = False
        if run.peers is not None:  # a rank that fails is alone: only what all have copied before can be written
            self.store.patience_for_ranks = _PATIENCE_FOR_RANKS
            if self._held_at == run.done:
                self.commit()
            return
        site, held = getattr(error, "etude_site", None), self._held_at == run.done
        self.commit()
        if error is None or run.done in (0, self._left_at) or self._is_saved(run):
            return
        if site is not None and (isinstance(error, EtudeError) or (held and site.actor is self.watch.acting)):
            return  # an evaluation begins again
        parts = self.watch.parts_after(error)
        if isinstance(parts, str):
            self._unsaved = parts
            return
        self._left_at = run.done
        self._store(run, **parts)

    def resumed_from(self, run: Run, loaded: Loaded) -> None:
        """Record that this state is saved already, so that a hook that raises at once has nothing new to save."""
        self._left_at = run.done
        if INTERRUPTED not in loaded.state:
            self._place, self._kinds = (run.done, run.epochs_done), {(bool(loaded.manifest.metrics), False, "")}
            self.store.prune()  # a run may have ended while it pruned

    def holds(self, run: Run) -> bool:
        """Return whether the state of this step is in hand or saved, so that nothing is lost by ending here."""
        saved = self._place[0] == run.done and any(not (weights or tag) for _, weights, tag in self._kinds)
        return self._held_at == run.done or (saved and run.stage != "after_step")

    def commit(self) -> None:
        """Write the state that is held."""
        if self.before_write is not None:
            self.before_write()
        self.store.commit()
        self._held_at = -1

    def poll(self) -> None:
        """Report saves that failed; stop for weights that are not finite."""
        for outcome in self.store.poll():
            self._check(outcome)

    @property
    def news(self) -> Collection[Outcome]:
        """Saves that have ended and were not reported yet."""
        return self.store.news

    def _check(self, outcome: Outcome) -> None:
        if outcome.unsound is not None:
            raise Diverged(
                f"weight {printable(outcome.unsound)} is not finite at step {outcome.step}; saved apart as "
                f"{outcome.path}; last good checkpoint: {self.newest() or 'none'}"
            )

    def newest(self) -> str | None:
        """Return the newest checkpoint, including the one that is being written; on another file system its URL."""
        self.store.wait()
        newest = self.store.newest()
        return self.store.disk.join(self.store.given, newest.rpartition("/")[2]) if newest else None

    def lost(self, run: Run) -> str:
        """Return what a resumed run will have to do again after an error, and why; empty when it is nothing."""
        newest = self.newest()
        match = STEP.fullmatch(newest.rpartition("/")[2]) if newest else None
        steps = run.done - (int(match[1]) if match else 0)
        why = f": {self._unsaved}" if self._unsaved else ""
        return f"{counted(steps, 'step')} {'is' if steps == 1 else 'are'} to be repeated{why}" if steps > 0 else ""

    def rollback(self, run: Run) -> None:
        """Restore weights, optimizers and hook states from the newest checkpoint; counters, data and generators
        continue."""
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

    def close(self) -> None:
        """Wait for the last save; a failure of that one is an error, for there is no later one to make up for it."""
        self.store.wait()
        self.store.failures = 1
        self.poll()


def watched(run: Run) -> Collection[str]:
    """Return the weights that must be finite: parameters, not buffers, which may hold an infinite mask."""
    return [name for name, _ in run.model.named_parameters()]
