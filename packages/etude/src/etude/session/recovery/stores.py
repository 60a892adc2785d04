"""Opens the store of a run, and finds the checkpoint to resume from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etude.building.options import Options
from etude.checkpoint.find import FOLDER, find
from etude.checkpoint.formats.folders import is_of_parts
from etude.checkpoint.load import Loaded
from etude.checkpoint.ranks.distributed import Follower, Leader
from etude.checkpoint.state import needed
from etude.checkpoint.storage.places import local_path
from etude.checkpoint.store import Store
from etude.checkpoint.write import DIVERGED
from etude.config.shapes import whole
from etude.core.run import Run
from etude.dist import group
from etude.errors import ConfigError, ResumeError, printable
from etude.hooks.checkpoint import Checkpoint
from etude.session.recovery.locks import Locks
from etude.session.recovery.saver import FAILED, Saver

_RECORDS = ("metrics.jsonl", "timing.jsonl", "ledger.bin")


class Stores:
    """Opens ``run.store``. With several ranks, rank 0 looks for what to resume from, and all of them read that."""

    def __init__(self, run: Run, options: Options, locks: Locks, *, say: Callable[[str], Any]) -> None:
        self.run, self.options, self.locks, self.say = run, options, locks, say
        #: The state to resume from, verified and in memory.
        self.found: Loaded | None = None

    def open(self, folder: Path) -> None:
        """Open the store in the run's folder, or where the hook for checkpoints says."""
        if self.run.peers is None:
            self._open_own_store(folder, Store)
            return
        if self.run.world.is_main:
            group.first(lambda: self._open_own_store(folder, Leader))
        else:
            self.found = self._make_store(folder, Follower)[0].resume()

    def _make_store(self, folder: Path, kind: type[Store]) -> tuple[Store, str]:
        hook = next((hook for hook in self.run.hooks if isinstance(hook, Checkpoint)), None)
        elsewhere = local_path(hook.folder) if hook is not None else ""
        if elsewhere and self.run.world.is_main:
            self.locks.take_place(elsewhere, folder)
        place = elsewhere or str(folder / FOLDER)
        store = kind(
            place,
            retention=(hook or Checkpoint(keep=None)).retention(self.run.steps_per_epoch),
            failures=hook.failures if hook else 3,
            trust_owner="owner" in self.options.allow_change,
            say=self.say,
        )
        store.owner = self.locks.claim
        if hook is not None:
            self.run.store = Saver(self.run, store, self.say)
            presence = self.locks.presence
            self.run.store.before_write = presence.require if presence is not None else None
        return store, place

    def _open_own_store(self, folder: Path, kind: type[Store]) -> str | None:
        """Open the store, and put what to resume from into ``found``; return where that is."""
        store, place = self._make_store(folder, kind)
        if self.options.restart:
            store.set_aside([entry.name for entry in store.entries()], "aside")
        elif self.options.resume is not None:
            self.found = self._find(store, self.options.resume)
        elif reached := max([recorded_steps(folder), *(entry.step for entry in store.entries())]):
            held = folder if place.startswith(str(folder)) or not store.entries() else place
            raise ConfigError(
                f"{printable(str(held))} holds a run at step {reached}",
                hint="--resume continues it, --restart starts at step 0"
                if self.run.plan is not None
                else "resume=True continues it, another folder starts at step 0",
            )
        if self.found is None:
            _set_records_aside(folder)
        return self.found.path if self.found is not None else None

    def _find(self, store: Store, path: str) -> Loaded | None:
        if not path:
            loaded = store.resume(need=needed(self.run))
            if loaded is None:
                self.say(f"no checkpoint yet, starting at step 0{_mention_weights(store)}")
            return loaded
        path = local_path(path)
        found = find(path, within=store.given).rstrip("/")
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

    def older(self, name: str) -> Loaded | None:
        """Return the checkpoint before the one of this name, or None where there is none or the user named one."""
        store = self.run.store.store if isinstance(self.run.store, Saver) else None
        if store is None or self.options.resume != "" or self.run.peers is not None:
            return None
        try:
            store.passed.add(name)
            return store.resume(need=needed(self.run))
        except ResumeError:
            return None

    def close(self, error: BaseException | None) -> None:
        """Wait for the last save. One that failed last is an error (exit 6)."""
        if self.run.store is not None:
            self.run.store.close()
            if error is None:
                self.run.store.store.require_newest()


def _set_records_aside(folder: Path) -> None:
    """Start at step 0 with empty records: lines of an attempt without a checkpoint belong to nothing."""
    for name in _RECORDS:
        if (folder / name).exists() and (folder / name).stat().st_size:
            os.replace(folder / name, folder / f"{name}.{time.strftime('%Y%m%d-%H%M%S')}")


def recorded_steps(folder: Path | None) -> int:
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
