"""Locks the run folder, finds and restores the checkpoint to resume from, and sets up signals and time limits."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from etude.building.options import Options
from etude.checkpoint import plan_changes
from etude.checkpoint.attempts import Attempts
from etude.checkpoint.distributed import Follower, Leader
from etude.checkpoint.find import FOLDER, find
from etude.checkpoint.formats.folders import is_of_parts
from etude.checkpoint.load import Loaded
from etude.checkpoint.shapes import COUNTERS
from etude.checkpoint.state import INTERRUPTED, Generators, Unfit, generators_for, needed, restore
from etude.checkpoint.storage import chaos
from etude.checkpoint.storage.lock import Lock
from etude.checkpoint.storage.owner import Claim, hold
from etude.checkpoint.storage.places import local_path
from etude.checkpoint.storage.remote import RemoteError
from etude.checkpoint.store import Store
from etude.checkpoint.warm_start import describe, init_from
from etude.checkpoint.write import DIVERGED
from etude.config.shapes import whole
from etude.config.tree import Tree
from etude.core.hook import Hook
from etude.core.run import Run
from etude.data.seeds import seed_rank
from etude.dist import group
from etude.dist.jobs import reports
from etude.dist.peers import Peers
from etude.errors import ConfigError, ResumeError, SaveError, UserError, printable, with_place
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.schedule import Schedule
from etude.hooks.signals import Signals, Stops
from etude.plan import NOWHERE, Plan
from etude.session.faults import Faults
from etude.session.interrupted import finish_step
from etude.session.presence import Presence
from etude.session.saver import FAILED, Saver
from etude.session.watchdog import Watchdog
from etude.units import counted

#: Flags of other systems that mean the same.
_RESUMING = ("auto_resume", "resume_from")
_RECORDS = ("metrics.jsonl", "timing.jsonl", "ledger.bin")
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


class Recovery:
    """Opened before anything is written to the run's folder, closed last.

    .. code-block:: text

        guard      lock · planned faults
        guard_driven  guard · attempts, for a run that drives itself
        open       guard · store · what to resume from (verified, in memory) · signals
        restore    the state into the run; generators right before the first step
        close      the last save · signals and lock back
    """

    def __init__(
        self,
        run: Run,
        options: Options,
        *,
        say: Callable[[str], Any],
        began: float | None = None,
        tree: Tree | None = None,
        plan: Plan | None = None,
        renew: Callable[[], None] | None = None,
    ) -> None:
        self.run, self.options, self.say, self.tree, self._renew = run, options, say, tree, renew
        #: What the run was asked for; ``run.plan`` is that of a config alone.
        self.plan = run.plan if plan is None else plan
        self.signals = Signals(grace=options.grace)
        # The clock of peers counts from their common start.
        began = 0.0 if run.peers is not None else began or time.monotonic()
        limit = self.plan.train.max_seconds if self.plan is not None else None
        self.stops = Stops(self.signals, max_seconds=limit, began=began, clock=run.clock)
        self._watchdog = Watchdog(run, say=self.say)
        self._lock: Lock | None = None
        self._place_lock: Lock | Claim | None = None
        self._presence: Presence | None = None
        self._attempts: Attempts | None = None
        self._faults: Faults | None = None
        self._loaded: Loaded | None = None
        self._optimizer_changed = False
        self._batch_sizes: tuple[int, int] | None = None

    def open(self) -> None:
        """Refuse a folder that is in use, find the checkpoint to resume from, and listen for signals."""
        if self.run.peers is None:
            self.guard()
        else:
            group.first(self.guard)
            self._plan_faults()  # on every rank, which has faults of its own
        if self.run.folder is not None:
            self._open_store(self.run.folder)
        self.signals.install()
        self.run.hooks.add(self.stops)
        self._watchdog.start()

    def guard(self) -> None:
        """Lock and planned faults alone."""
        if self.run.folder is not None and self.run.world.is_main:
            self._lock = Lock(self.run.folder)
            self._presence = Presence(
                self.run.folder, self._lock, stops=self.stops, say=self.say, renew=self._renew or (lambda: None)
            )
        if self.run.peers is None:
            self._plan_faults()

    def _plan_faults(self) -> None:
        if self.options.chaos:
            self._faults = Faults(chaos.parse(self.options.chaos, rank=self.run.world.rank, size=self.run.world.size))
            self._faults.listen()
            self.run.hooks.add(self._faults)

    def guard_driven(self) -> None:
        """Guard a run that drives itself: it has its own checkpoints and its own signal handling."""
        self.guard()
        own = next((hook for hook in self.run.hooks if isinstance(hook, Stops)), None)
        if own is not None:
            self.stops, self.signals = own, own.signals
            if self._presence is not None:
                self._presence.stops = own
            self.signals.grace = self.options.grace
            self.stops.on_start(self._begin_attempt)
            if group.is_there():
                group.join(self.run.world, timeout=reports.timeout())
                own.agree_with(Peers(self.run.world))
        self._watchdog.say = lambda line: print(f"etude: {line}", file=sys.stderr)
        self._watchdog.start()

    def _open_store(self, folder: Path) -> None:
        """Open the store. With several ranks, rank 0 looks for what to resume from, and all of them read that."""
        if self.run.peers is None:
            self._open_own_store(folder, Store)
            return
        if self.run.world.is_main:
            group.first(lambda: self._open_own_store(folder, Leader))
        else:
            self._loaded = self._make_store(folder, Follower)[0].resume()

    def _make_store(self, folder: Path, kind: type[Store]) -> tuple[Store, str]:
        hook = next((hook for hook in self.run.hooks if isinstance(hook, Checkpoint)), None)
        elsewhere = local_path(hook.folder) if hook is not None else ""
        if elsewhere and self.run.world.is_main:
            self._guard_place(elsewhere, folder)
        place = elsewhere or str(folder / FOLDER)
        store = kind(
            place,
            retention=(hook or Checkpoint(keep=None)).retention(self.run.steps_per_epoch),
            failures=hook.failures if hook else 3,
            trust_owner="owner" in self.options.allow_change,
            say=self.say,
        )
        store.owner = self._place_lock if isinstance(self._place_lock, Claim) else None
        if hook is not None:
            self.run.store = Saver(self.run, store, self.say)
            self.run.store.before_write = self._presence.require if self._presence is not None else None
        return store, place

    def _open_own_store(self, folder: Path, kind: type[Store]) -> str | None:
        """Open the store, and put what to resume from into ``_loaded``; return where that is."""
        store, place = self._make_store(folder, kind)
        if self.options.restart:
            store.set_aside([entry.name for entry in store.entries()], "aside")
        elif self.options.resume is not None:
            self._loaded = self._find(store, self.options.resume)
        elif reached := max([_recorded_steps(folder), *(entry.step for entry in store.entries())]):
            held = folder if place.startswith(str(folder)) or not store.entries() else place
            raise ConfigError(
                f"{printable(str(held))} holds a run at step {reached}",
                hint="--resume continues it, --restart starts at step 0"
                if self.run.plan is not None
                else "resume=True continues it, another folder starts at step 0",
            )
        if self._loaded is None:
            _set_records_aside(folder)
        return self._loaded.path if self._loaded is not None else None

    def _guard_place(self, place: str, folder: Path) -> None:
        """Lock the place of the checkpoints, unless the lock of the run's folder covers it: two runs must not share
        it."""
        if "://" in place:
            try:
                self._place_lock = hold(place, say=self.say)
            except RemoteError as error:
                at = self.tree.place("checkpoint", "folder") if self.tree is not None else NOWHERE
                raise with_place(ConfigError(f"checkpoint.folder: {error}"), at) from error
            return
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            if not os.path.samefile(place, folder):
                self._place_lock = Lock(place)
        except OSError as error:
            raise ConfigError(f"checkpoint.folder: {printable(place)} cannot be written: {error.strerror}") from error

    def _find(self, store: Store, path: str) -> Loaded | None:
        if not path:
            loaded = store.resume(need=needed(self.run))
            if loaded is None:
                self.say(f"no checkpoint yet, starting at step 0{_mention_weights(store)}")
            return loaded
        path = local_path(path)
        found = find(path, beside=store.given).rstrip("/")
        text = found if "://" in found else os.path.abspath(found)
        if os.path.isfile(text) or is_of_parts(text):
            raise ResumeError(
                f"{printable(path)} is not an Étude checkpoint and cannot be resumed; to start from its weights write "
                f"`init_from: {printable(os.path.relpath(text))}`"
            )
        whole, _, name = text.rpartition("/")
        inside = whole in (store.folder, store.given.rstrip("/"))
        other = store if inside else type(store)(whole, write=False, say=self.say)
        is_remote_run = "://" in path and found != path.rstrip("/")
        if is_remote_run or os.path.isdir(os.path.join(path, FOLDER)) or os.path.basename(path.rstrip("/")) == FOLDER:
            return other.resume(need=needed(self.run))
        loaded = other.load(name, need=needed(self.run))
        self._look_at_tag(name, loaded)
        if inside:
            store.rewind(loaded.manifest.step)
        return loaded

    def _look_at_tag(self, name: str, loaded: Loaded) -> None:
        """Refuse weights that are not finite, and warn about a checkpoint from inside a failed step."""
        if name.startswith(DIVERGED):
            raise ResumeError(f"{printable(name)}: its weights are not finite: there is nothing to resume from")
        if loaded.manifest.tag == FAILED:
            self.say(
                f"{printable(name)} was saved inside the failed step: that step runs again, with random numbers "
                "and statistics that are ahead of an undisturbed run's"
            )

    def restore(self) -> None:
        """Restore the state that was found, if the plan is the same or its changes are allowed."""
        loaded, self._loaded = self._loaded, None
        self._check_allowed(loaded)
        if loaded is None:
            self._start_warm()
        else:
            self._take_over_newest(loaded)
        self._begin_attempt()

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
                older = self._older(name)
                if older is None:
                    raise first from None
                self.say(f"skipped {printable(name)}: {error}")
                loaded = older

    def _older(self, name: str) -> Loaded | None:
        """Return the checkpoint before the one of this name, or None where there is none or the user named one."""
        store = self.run.store.store if isinstance(self.run.store, Saver) else None
        if store is None or self.options.resume != "" or self.run.peers is not None:
            return None
        try:
            store.passed.add(name)
            return store.resume(need=needed(self.run))
        except ResumeError:
            return None

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

    def watch_folder(self, *, lasting: bool) -> None:
        """Look for the run's folder at every record from now on; the run is recorded in it.

        The folder of a run that is not ``lasting`` is its own to remove.
        """
        if not lasting:
            self._presence = None
        if self._presence is not None:
            self._presence.begin()
            self.run.events.writers.append(self._presence)
            self._watchdog.look = self._presence.look

    def _begin_attempt(self) -> None:
        """Refuse to die at the same step once more; from here on it is known that a life was begun."""
        if self.run.folder is None or not self.run.world.is_main:
            return
        asked = self.options.resume is not None or any(self.options.extras.get(flag) for flag in _RESUMING)
        goes_on = asked or self.run.step > 0
        attempts = Attempts(self.run.folder, say=self.say)
        attempts.begin(self.run.step, again=not goes_on or "attempts" in self.options.allow_change)
        self._attempts, self.stops.note = attempts, attempts.note

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

    @property
    def refused(self) -> bool:
        """Return whether the folder is another process's."""
        return self._lock is None

    def close(self, error: BaseException | None = None, *, discard: Callable[[], None] | None = None) -> None:
        """Wait for the last save, then let go. A save that failed last is an error (exit 6).

        ``discard`` is called while nobody else can enter the folder.
        """
        try:
            if error is None:
                self._require_presence()
            if self.run.store is not None:
                self.run.store.close()
                if error is None:
                    self.run.store.store.require_newest()
        except BaseException as failed:
            error = error or failed
            raise
        finally:
            if self._faults is not None:
                self._faults.rest()
                if error is None and self.run.stopping is None:
                    for fault in self._faults.missed(self.run):
                        warnings.warn(f"--chaos {fault} never came: the run has {self.run.done} steps", stacklevel=1)
            self._watchdog.stop()
            self._end_attempt(error)
            self.signals.restore()
            if discard is not None:
                discard()
            for lock in (self._place_lock, self._lock):
                if lock is not None:
                    lock.release()

    def lost_folder(self, error: Exception) -> SaveError | None:
        """Return what a missing file is really about: the whole folder is gone."""
        presence = self._presence
        if presence is None or not isinstance(error.__cause__ or error, FileNotFoundError):
            return None
        presence.look()
        return SaveError(presence.lost) if presence.lost else None

    def _require_presence(self) -> None:
        """Raise an error if the run's folder was lost and not made anew."""
        presence = self._presence
        if presence is None:
            return
        if self.run.store is not None:
            self.run.store.store.wait()
        presence.look()
        # A run that was at its end could not be stopped for it, and other ranks know of a signal only.
        if presence.lost and (presence.is_gone() or self.run.exit_code != SaveError.exit_code or self.run.peers):
            raise SaveError(presence.lost)

    def _end_attempt(self, error: BaseException | None) -> None:
        """Forget the attempt if it ended well, or with a mistake that is reported at once, which is no failure of
        the run."""
        if self._attempts is None:
            return
        if isinstance(error, Exception) and not isinstance(error, UserError):
            self._attempts.failed(self.run.step, error)
        else:
            self._attempts.clear()


def _set_records_aside(folder: Path) -> None:
    """Start at step 0 with empty records: lines of an attempt without a checkpoint belong to nothing."""
    for name in _RECORDS:
        if (folder / name).exists() and (folder / name).stat().st_size:
            os.replace(folder / name, folder / f"{name}.{time.strftime('%Y%m%d-%H%M%S')}")


def _recorded_steps(folder: Path | None) -> int:
    """Return how far the previous attempt came, according to its records."""
    try:
        lines = (folder / _RECORDS[0]).read_bytes()[-4096:].splitlines() if folder is not None else []
        # The first of the last 4 KB may be the end of a line.
        return max((whole(json.loads(line)["step"]) for line in lines[1:] or lines), default=0)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return 0


def _mention_weights(store: Store) -> str:
    """Return a hint if the store has weights only, which cannot be resumed."""
    alone = [name for name in sorted(store.disk.names(store.folder)) if name.startswith("weights-")]
    return f"; {printable(alone[-1])} has weights only: init_from starts with them" if alone else ""


def _reached_steps(folder: Path | None) -> int:
    """Return how far the previous attempt came: the records lag behind the last step, its own note does not."""
    if folder is None:
        return 0
    return max(_recorded_steps(folder), Attempts(folder, say=print).reached())


def _new_settings(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the new plan's settings of each parameter group: rates, decays, momenta; not which parameters."""
    return {
        name: [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        for name, optimizer in run.optimizers.items()
    }


def _apply_settings(run: Run, settings: dict[str, list[dict[str, Any]]]) -> None:
    for name, optimizer in run.optimizers.items():
        for settled, own in zip(optimizer.param_groups, settings[name], strict=True):
            settled.update(own)


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
