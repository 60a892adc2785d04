"""Tracks the position of a run, saves it in checkpoints, and resumes from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from etude.checkpoint.formats.background import BackgroundWriter
from etude.core.run import Run, numbered
from etude.data.resume import Snapshot, own_states, restore_own
from etude.data.torch_loader import passes, remainder
from etude.dialects.properties import reads
from etude.errors import SaveError
from etude.errors.own_code import is_own
from etude.ledger.writer import state_of_ledger
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.runner import crash_checkpoint, exact_resume


class Position:
    """The position of the loop: the current stage, the turn of the workflow, and saves whose stage is not over."""

    def __init__(self) -> None:
        self.stage = ""
        self.entry: tuple[int, int] = (0, 0)
        self.resume_at: tuple[int, ...] | None = None
        self.unsettled: list[tuple[str, dict[str, Any]]] = []
        #: The newest checkpoint to resume from, and its iteration.
        self.saved: tuple[str, int] = ("", 0)
        #: What the next exact state says otherwise, and the one whose last stage is being finished: crash_checkpoint.
        self.parts: dict[str, Any] = {}
        self.finishing: dict[str, Any] | None = None


class Restored:
    """The exact state of a resumed checkpoint, until it has been used."""

    def __init__(self, state: dict[str, Any], note: dict[str, Any] | None, averages: dict[str, Any]) -> None:
        self.state, self.note, self.averages = state, note, averages
        if note is not None:
            state["rng"] = note["rng"]

    @property
    def lasting(self) -> set[str]:
        """Return the names of the hooks whose loader has workers already."""
        return set((self.note or self.state).get("lasting", ()))

    @property
    def hook_states(self) -> dict[str, Any]:
        return {**self.state["states"], **(self.note["states"] if self.note is not None else {})}


class Resuming:
    """Saves and restores what a checkpoint has beyond mmcv's layout (see ``exact_resume``)."""

    engine: Run
    logger: logging.Logger
    meta: dict[str, Any] | None
    work_dir: str | None
    mode: str | None
    data_loader: Any
    log_buffer: Any
    #: The hook that saves right now.
    saver: Hook | None
    _hooks: list[Hook]
    _flow: list[Any]
    _turns: list[tuple[int, int]]
    _loaders: list[Any]
    _world_size: int
    _rank: int
    _position: Position
    _restored: Restored | None
    #: Set while another rank than the first goes through the motions of a save.
    _own_part_only: bool
    #: What is written while training goes on.
    later: BackgroundWriter

    def _entries(self) -> list[tuple[int, int]]:
        """Return the (entry, repetition) pairs of one round, from where a checkpoint had come in its round."""
        start, self._position.resume_at = self._position.resume_at, None
        return self._turns if start is None else [turn for turn in self._turns if turn >= start]

    def _write_checkpoint(
        self, out_dir: str, filename: str, save_optimizer: bool, meta: dict[str, Any] | None, create_symlink: bool
    ) -> None:
        raise AttributeError(f"{type(self).__name__} must define how a checkpoint is written")

    def _exact_state(self) -> dict[str, Any] | None:
        """Return where the run is, for a checkpoint; None while a subclass drives the loop in its own way."""
        if self._position.finishing is not None:
            return crash_checkpoint.within(self, self._position.finishing)  # type: ignore[arg-type]
        stage = self._stage()
        if not stage:
            return None
        usual = {
            "version": exact_resume.VERSION,
            "id": exact_resume.new_id(),
            "stage": stage,
            "epoch": self.engine.epoch + int(stage == "after_train_epoch"),
            "iter": self.engine.step + int(stage == "after_train_iter"),
            "flow": [list(entry) for entry in self._flow],
            "turn": self._next_turn(),
            "saver": next((name for name, hook in self._named_hooks() if hook is self.saver), None),
            "states": self._hook_states(),
            "rng": exact_resume.rng_state(),
            "passes": self._pass_states(),
            "loaders": [own_states(loader) for loader in self._loaders],
            "workers": [passes.worker_states(loader) for loader in self._loaders],
            "lasting": self._lasting(),
            "world": self._world_size,
            "ledger": state_of_ledger(self.engine),
        }
        return usual | self._position.parts

    def _named_hooks(self) -> list[tuple[str, Any]]:
        """Return the hooks with names that are unique in this run: ``EMAHook``, ``EMAHook#2``."""
        return list(zip(numbered(type(hook).__name__ for hook in self._hooks), self._hooks, strict=True))

    def _stage(self) -> str:
        """Return the stage that is being called; empty while a subclass drives the loop in its own way."""
        over = self._position.stage == "after_train_iter" and self.engine.stage == "after_epoch"
        return "after_train_epoch" if over else self._position.stage

    def _hook_states(self, *, later: bool = False) -> dict[str, Any]:
        """Return the states of hooks; with ``later``, without those whose state belongs to the weights in the file."""
        return {
            name: hook.state_dict()
            for name, hook in self._named_hooks()
            if callable(getattr(hook, "state_dict", None))
            and callable(getattr(hook, "load_state_dict", None))
            and not (later and getattr(hook, "goes_with_weights", False))
        }

    def _next_turn(self) -> list[int]:
        """Return the turn of the workflow that a resumed run has to begin with."""
        entry, count = self._position.entry
        return [entry, count + 1]

    def _pass_states(self) -> list[Any]:
        return []

    def _save_stopped(self) -> None:
        """Save a checkpoint when the run is asked to stop, so that nothing is lost."""
        if self.work_dir is None or not self.engine.exit_code:
            return
        self._position.stage, self._own_part_only = "stopped", self._rank != 0
        self._write_checkpoint(self.work_dir, f"stopped_iter_{self.engine.step}.pth", True, None, True)
        self._position.stage, self._own_part_only = "", False
        self._settle()
        if self._rank == 0:
            self.logger.info("%s at iteration %d, saved", self.engine.stopping, self.engine.step)

    def rescue(self, hook: Hook, generators: Snapshot) -> None:
        """Save what was trained after ``hook`` failed in its stage, unless an earlier hook of the stage did.

        A resumed run calls ``hook`` and those after it again, with the generators as they were before it. A runner that
        a script has made leaves what mmcv's would: nothing.
        """
        if (
            self.engine.plan is None
            or self.work_dir is None
            or self._rank != 0
            or not self._stage()
            or self._position.unsettled
        ):
            return
        generators.restore()
        before = self._hooks[: self._hooks.index(hook)]
        self.saver = before[-1] if before else None
        name = f"stopped_iter_{self.engine.step + int(self._stage() == 'after_train_iter')}.pth"
        try:
            self._write_checkpoint(self.work_dir, name, True, None, True)
        except SaveError as error:
            self.logger.error("what was trained could not be saved: %s", error)
        else:
            self.logger.error("%s failed; what was trained is saved as %s", type(hook).__name__, name)

    def save_own_part(self, out_dir: str, **kwargs: Any) -> None:
        """Save the state of this rank, while rank 0 saves the checkpoint."""
        if is_own(type(self).save_checkpoint.__module__):
            self._own_part_only = True
            try:
                self.save_checkpoint(out_dir, **kwargs)
            finally:
                self._own_part_only = False

    def save_checkpoint(self, out_dir: str, *args: Any, **kwargs: Any) -> None:
        raise AttributeError(f"{type(self).__name__} must define save_checkpoint")

    def _settle_own_part(self) -> None:
        waiting, self._position.unsettled = self._position.unsettled, []
        for path, state in waiting:
            if state:
                own = {key: state[key] for key in ("passes", "loaders", "workers")}
                own |= {"position": _position(state), "rng": exact_resume.rng_state()}
                exact_resume.write_own(path, self._rank, own)

    def _settle(self) -> None:
        """Note what has changed since a save whose stage is over, so that a resume need not do it again."""
        if self._rank != 0:
            self._settle_own_part()
            return
        waiting, self._position.unsettled = self._position.unsettled, []
        best = {k: v for k, v in (self.meta or {}).get("hook_msgs", {}).items() if k.startswith("best_")}
        for path, state in waiting:
            note = {"id": state["id"], "rng": exact_resume.rng_state(), "best": best}
            note |= {"states": self._hook_states(later=True), "lasting": self._lasting()}
            self.later.then(partial(exact_resume.write_note, path, exact_resume.as_bytes(note)))

    def _restore(self, path: str, checkpoint: Mapping[str, Any], *, wanted: bool, moved: bool = False) -> None:
        """Take what the checkpoint knows beyond mmcv's layout; it is put to use when the run starts."""
        state = checkpoint.get(exact_resume.KEY)
        self._position.saved = (path, self.engine.step)
        if not isinstance(state, dict):
            return
        self.engine.history_state = state.get("ledger")
        elsewhere = state.get("world") != self._world_size
        if elsewhere and not (wanted and self._share_out(state)):
            self._begin_epoch_again(state)
            return
        if not wanted or (moved and not elsewhere):
            return
        note = exact_resume.read_note(path, state["id"])
        self.engine.epoch = int(state["epoch"])
        self.engine.step = self.engine.step if moved else int(state["iter"])
        self.engine.stage, self._position.saved = "", (path, self.engine.step)
        averages = {k: v for k, v in checkpoint.get("state_dict", {}).items() if k.startswith("ema_")}
        self._restored = Restored(state, note, averages)
        if elsewhere:
            state["rng"] = None
        elif self._rank != 0:
            self._take_own_part(path, state)
        if note is not None and note["best"]:
            self.meta = self.meta if self.meta is not None else {}
            self.meta.setdefault("hook_msgs", {}).update(note["best"])

    def _share_out(self, state: dict[str, Any]) -> bool:
        """Share the samples that are left of a pass among the current number of processes, which is another one.

        Return False if these samples are unknown, or if no pass was begun. Random numbers are this process's own.
        """
        orders = [remainder.left(one) for one in state["passes"]]
        known = [order for order in orders if order is not None]
        if not orders or len(known) < len(orders):
            return False
        state["passes"] = [{**one, "left": order} for one, order in zip(state["passes"], known, strict=True)]
        state.update(workers=[], loaders=[], lasting=())
        self.logger.info(
            "%d processes began this pass over the data; the %d samples that are left of it are shared among %d",
            state["world"], len(known[0]), self._world_size,
        )  # fmt: skip
        return True

    def _begin_epoch_again(self, state: Mapping[str, Any]) -> None:
        """Start the epoch again: what other processes have left of it is unknown, as their samplers are none of
        torch's.
        """
        self.engine.epoch = int(state["epoch"])
        if state["passes"]:
            self.logger.warning(
                "epoch %d begins again: it was saved by %d processes, this run has %d, which shuffle otherwise",
                self.engine.epoch + 1, state["world"], self._world_size,
            )  # fmt: skip

    def _take_own_part(self, path: str, state: dict[str, Any]) -> None:
        """Use this rank's own generators: the file has those of the first rank. Without them, start new ones."""
        own = exact_resume.read_own(path, self._rank, _position(state))
        if own is not None:
            state.update({key: own[key] for key in ("rng", "passes", "loaders", "workers") if key in own})
            return
        state["rng"] = None
        state["workers"] = []
        state["passes"] = [one | {"rng": None, "first_rng": None} for one in state["passes"]]

    #: What the resumed checkpoint says beyond mmcv's layout, until the loop has begun.
    restored: Restored | None = reads("_restored")

    def _begin_exactly(self) -> None:
        """Restore hooks and the place in the workflow at the start of the loop, and finish an incomplete stage."""
        restored = self._restored
        if restored is None:
            return
        state = restored.state
        if [list(entry) for entry in self._flow] == state["flow"]:
            self._position.resume_at = tuple(state["turn"])
        for loader, saved in zip(self._loaders, state.get("workers", ()), strict=False):
            passes.set_worker_states(loader, saved)
        named = dict(self._named_hooks())
        for name in restored.lasting & named.keys():
            passes.take_no_seed(named[name].dataloader)
        for name, hook_state in restored.hook_states.items():
            if name in named:
                named[name].load_state_dict(hook_state)
        if restored.note is not None and state["saver"] in named:
            for hook in self._hooks[self._hooks.index(named[state["saver"]]) + 1 :]:
                if hasattr(hook, "catch_up"):
                    hook.catch_up(state["stage"])
        if restored.note is None and "cut" in state:
            passes.set_rng_state(state["rng"])
            crash_checkpoint.finish(self, state)  # type: ignore[arg-type]
            state["rng"] = exact_resume.rng_state()
        elif restored.note is None and state["saver"] in named:
            passes.set_rng_state(state["rng"])
            self._finish_stage(state["stage"], self._hooks.index(named[state["saver"]]))
            state["rng"] = exact_resume.rng_state()

    def _put_generators_back(self, restored: Restored) -> None:
        """Restore the generators of the process and of the loaders to what the checkpoint says."""
        passes.set_rng_state(restored.state["rng"])
        for loader, states in zip(self._loaders, restored.state.get("loaders", ()), strict=False):
            restore_own(loader, states)

    def _finish_stage(self, stage: str, saver: int) -> None:
        """Call the hooks that come after the one that saved: the run had died before they were done."""
        self.logger.info("%s was not finished when the run ended; the hooks after the save are called again", stage)
        self.mode, self.data_loader = "train", self._train_loader()
        self.log_buffer.clear()
        by_epoch = stage == "after_train_epoch"
        again = [hook for hook in self._hooks[saver + 1 :] if by_epoch or hasattr(hook, "key_indicator")]
        with crash_checkpoint.counted_back(self, stage):  # type: ignore[arg-type]
            for hook in again:
                getattr(hook, stage)(self)

    def _lasting(self) -> list[str]:
        """Return the names of the hooks whose loader has persistent workers that have been started."""
        return [name for name, hook in self._named_hooks() if passes.has_seed(getattr(hook, "dataloader", None))]

    def _train_loader(self) -> Any:
        return next((data for (mode, _), data in zip(self._flow, self._loaders, strict=True) if mode == "train"), None)


def _position(state: Mapping[str, Any]) -> list[Any]:
    """Return where in the run a state was taken: what the parts of one checkpoint have in common."""
    return [state["epoch"], state["iter"], state["stage"]]
