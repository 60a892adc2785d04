"""Restores the state of a checkpoint into a run whose plan may have changed, or starts from other weights."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from etude.building.options import Options
from etude.checkpoint import plan_changes
from etude.checkpoint.attempts import Attempts
from etude.checkpoint.load import Loaded
from etude.checkpoint.shapes import COUNTERS
from etude.checkpoint.state import INTERRUPTED, Generators, Unfit, generators_for, ledger_for, restore
from etude.checkpoint.storage.remote import RemoteError
from etude.checkpoint.warm_start import describe, init_from
from etude.config.tree import Tree
from etude.core.hook import Hook
from etude.core.run import Run
from etude.data.seeds import seed_rank
from etude.errors import ConfigError, ResumeError, printable, with_place
from etude.hooks.schedule import Schedule
from etude.plan import NOWHERE, Plan
from etude.session.recovery.interrupted import finish_step
from etude.session.recovery.stores import Stores, recorded_steps
from etude.units import counted

_LENGTHS = ("train.epochs", "train.steps")


class AtStart(Hook):
    """Calls a function right before the first step, after everything else at ``before_train``."""

    priority = sys.maxsize

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def before_train(self, run: Run) -> None:
        if self._call is not None:
            call, self._call = self._call, None
            call()


class Resume:
    """Puts what was found into the run; the generators follow right before the first step."""

    def __init__(
        self,
        run: Run,
        options: Options,
        stores: Stores,
        *,
        say: Callable[[str], Any],
        plan: Plan | None,
        tree: Tree | None,
    ) -> None:
        self.run, self.options, self.stores, self.say = run, options, stores, say
        #: What the run was asked for; ``run.plan`` is that of a config alone.
        self.plan, self.tree = plan, tree
        self._optimizer_changed = False
        self._batch_sizes: tuple[int, int] | None = None

    def restore(self) -> None:
        """Restore the state that was found, if the plan is the same or its changes are allowed."""
        loaded, self.stores.found = self.stores.found, None
        self._check_allowed(loaded)
        if loaded is None:
            self._start_warm()
        else:
            self._take_over_newest(loaded)

    def _take_over_newest(self, loaded: Loaded) -> None:
        """Take over a checkpoint; if some part cannot load its state, one before it, where the run chose it itself."""
        first: Unfit | None = None
        while True:
            try:
                self._take_over(loaded)
                return
            except Unfit as error:
                name = os.path.basename(loaded.path)
                first = first or error
                older = self.stores.older(name)
                if older is None:
                    raise first from None
                self.say(f"skipped {printable(name)}: {error}")
                loaded = older

    def _check_allowed(self, loaded: Loaded | None) -> None:
        """Refuse a misspelt name before anything is compared; it would allow nothing."""
        if self.run.plan is None:
            return
        parts = [*self.run.parts(), *(loaded.state if loaded is not None else ())]
        before = (loaded.state.get("plan") or {}) if loaded is not None else {}
        known = [word for side in (plan_changes.facts(self.run.plan), before) for word in plan_changes.words_of(side)]
        plan_changes.require_known(self.options.allow_change, [*known, *parts])

    def _take_over(self, loaded: Loaded) -> None:
        state, run = loaded.state, self.run
        if missing := [name for name in COUNTERS if name not in state["counters"]]:
            raise Unfit(f"the stored state does not fit counters: it has no {missing[0]}")
        self._compare_plans(state, os.path.basename(loaded.path))
        if any(name in ("data", "all") for name in self.options.allow_change):
            for loader in run.data.values():
                loader.allow_change = True  # type: ignore[attr-defined]
        kept = _new_settings(run) if self._optimizer_changed else None
        reached = _reached_steps(run.folder)
        if self._batch_sizes is not None:
            _rescale(state, *self._batch_sizes)
        _settle_length(run, state["counters"])
        self._require_length(state["counters"]["step"])
        restore(run, state, say=self.say, allow=self.options.allow_change)
        run.history_state = ledger_for(run, state)
        if kept is not None:
            _apply_settings(run, kept)
        if run.hooks.after_load:
            run.hooks.after_load(run)
        run.hooks.add(AtStart(lambda: self._start_from(state)))
        if run.store is not None:
            run.store.resumed_from(run, loaded)
        lost = reached - run.step
        repeated = f", {counted(lost, 'step')} {'is' if lost == 1 else 'are'} repeated" if lost > 0 else ""
        path = run.store.store.disk.url(loaded.path) if run.store is not None else loaded.path
        self.say(f"resumed from step {run.step} ({path}){repeated}")
        if run.peers is not None and run.plan is not None and run.plan.parallel.compression == "powersgd":
            self.say("PowerSGD starts without the errors of earlier steps: the run will not end in the same bits")
        # After the last step, but inside its epoch, the end of the epoch is left to do.
        if run.total_steps is not None and run.step + (not run.step_in_epoch) > run.total_steps:
            self.say(f"the plan ends after {counted(run.total_steps, 'step')}; nothing is left to do")
        elif run.stopping is not None:
            self.say(f"the run ended there ({run.stopping}); nothing is left to do")

    def _require_length(self, step: int) -> None:
        """Refuse a plan that ends before the checkpoint: a forgotten override would end the run as if it were done."""
        total, allow = self.run.total_steps, self.options.allow_change
        accepted = any(plan_changes.Change(key, None, None).allowed(allow) for key in _LENGTHS)
        if total is not None and step > total and not accepted:
            raise ConfigError(
                f"the checkpoint is at step {step}, and this plan ends after {counted(total, 'step')}",
                hint="give the overrides of its first start again; --allow-change train.epochs accepts the end",
            )

    def _start_from(self, state: Mapping[str, Any]) -> None:
        """Restore the generators right before the first step, and finish the step that was interrupted."""
        self._restore_generators(state)
        if INTERRUPTED in state:
            finish_step(self.run, state[INTERRUPTED])

    def _restore_generators(self, state: Mapping[str, Any]) -> None:
        """Restore each rank's own generators; a rank that the checkpoint does not have starts its own stream."""
        own = generators_for(self.run, state)
        if own is not None:
            Generators().load_state_dict(own)
        else:
            seed = self.plan.train.seed if self.plan is not None else 0
            seed_rank(seed, self.run.place.stream, self.run.step)

    def _start_warm(self) -> None:
        given = dict(self.plan.init_from) if self.plan is not None else {}
        if given:
            try:
                match = init_from(self.run.model, **{"trust": self.options.trust} | given)
            except RemoteError as error:
                raise self._with_place(ConfigError(str(error))) from error
            except (ConfigError, ResumeError) as error:
                raise self._with_place(error) from error
            self.say(f"weights from {printable(str(given['path']))}")
            for line in describe(match).splitlines():
                self.say(line)

    def _with_place(self, error: ConfigError | ResumeError) -> ConfigError | ResumeError:
        """Return a mistake in ``init_from`` with the line of the config that contains it."""
        places = self.run.plan.places if self.run.plan is not None else {}
        word = re.match(r"init_from: (\w+)", str(error))
        at = places.get(("init_from", word[1])) if word else None
        at = at or places.get(("init_from", "path")) or places.get(("init_from",)) or NOWHERE
        if isinstance(error, ConfigError):
            return with_place(error, at)
        return type(error)(f"{at}: {error}") if at.file else error

    def _compare_plans(self, state: dict[str, Any], name: str) -> None:
        before = state.get("plan") or {}
        after = plan_changes.facts(self.run.plan) if self.run.plan is not None and before else {}
        found = plan_changes.compare(before, after) if after else []
        plan_changes.require_allowed(found, self.options.allow_change, since=name, tree=self.tree)
        for change in found:
            self.say(f"changed since {name}: {change}")
        if any(change.key in _LENGTHS for change in found):
            self._say_what_a_length_changes()
        self._optimizer_changed = any(change.key.startswith("optim.") for change in found)
        sizes = [change for change in found if change.key == "data.train.batch_size"]
        self._batch_sizes = (int(sizes[0].before), int(sizes[0].after)) if sizes else None

    def _say_what_a_length_changes(self) -> None:
        """Report curves that reach to the end of the run: with a new length they have other values from here on."""
        plan = self.run.plan
        open_ended = [one.target for one in plan.schedules if any(p.until is None for p in one.phases)] if plan else []
        if open_ended:
            self.say(f"the run has a new length: {', '.join(open_ended)} continues as in a run of this length")


def _reached_steps(folder: Path | None) -> int:
    """Return how far the previous attempt came: the records are older than the last step, its own note is not."""
    if folder is None:
        return 0
    return max(recorded_steps(folder), Attempts(folder, say=print).reached())


def _new_settings(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the new plan's settings of each parameter group: rates, decays, momenta; not which parameters."""
    return {
        name: [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        for name, optimizer in run.optimizers.items()
    }


def _apply_settings(run: Run, settings: dict[str, list[dict[str, Any]]]) -> None:
    for name, optimizer in run.optimizers.items():
        for loaded, own in zip(optimizer.param_groups, settings[name], strict=True):
            loaded.update(own)


def _rescale(state: dict[str, Any], before: int, after: int) -> None:
    """Keep the position inside the epoch in samples after a new batch size, rounded down to a whole batch."""
    counters, position = dict(state["counters"]), dict(state["data.train"])
    counters["step_in_epoch"] = counters["step_in_epoch"] * before // after
    position["batch"] = position["batch"] * before // after
    state["counters"], state["data.train"] = counters, position


def _settle_length(run: Run, counters: dict[str, Any]) -> None:
    """Set where a run and its curves end from what is left of the epochs: steps of another size were counted too."""
    if run.max_epochs is None or run.steps_per_epoch is None:
        return
    left = (run.max_epochs - counters["epoch"]) * run.steps_per_epoch - counters["step_in_epoch"]
    total = counters["step"] + left
    if left <= 0 or run.total_steps == total:
        return
    run.total_steps = total
    for hook in run.hooks:
        if isinstance(hook, Schedule):
            hook.attach(run)
