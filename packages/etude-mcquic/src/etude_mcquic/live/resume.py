"""Finds the checkpoint that a McQuic run resumes from, and compares its config with the current one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from etude.checkpoint.plan_changes import Change, require_allowed, require_known
from etude.config.tree import Tree, dotted
from etude.errors import ConfigError, ResumeError
from etude_mcquic.files import Saver, latest_of
from etude_mcquic.live.trainer import Trainer

#: The files that a run can resume from.
CHECKPOINTS = ("last.ckpt", "saved.ckpt", "best.ckpt")
#: Keys that may change: they affect no weight, or a resume is about them.
HARMLESS = ("train.epoch", "train.valFreq", "train.valSet", "train.saveDir", "train.gpu.vRam", "train.gpu.wantsMore",
            "train.externalLib")  # fmt: skip
#: Keys whose numbers the optimizer and the scheduler hold; a change that is allowed replaces them.
RATES = ("train.optim", "train.schdr", "train.batchSize", "train.gpu.gpus")


def checkpoints(resume: str | None, root: Path) -> list[Path]:
    """Return the files to try, the best first: the one that was named, or those of the last run, newest first."""
    if resume:
        if not Path(resume).is_file():
            raise ConfigError(f"there is no checkpoint {resume}")
        return [Path(resume)]
    if resume is None:
        return []
    latest = latest_of(root)
    there = [latest / name for name in CHECKPOINTS if (latest / name).is_file()]
    if not there:
        print(f"no checkpoint in {latest} yet, starting at step 0", file=sys.stderr)
    return sorted(there, key=lambda path: (path.name != "best.ckpt", path.stat().st_mtime), reverse=True)


def take_up(trainer: Trainer, paths: list[Path], *, allow: Iterable[str] = (), trust: bool = False) -> None:
    """Resume from the first whole file. A damaged one is reported; the last one raises an error."""
    for position, path in enumerate(paths):
        try:
            content = Saver.load(path, trust=trust)
        except ResumeError as error:
            if position == len(paths) - 1:
                raise
            print(f"etude: warning: {error}; trying {paths[position + 1].name}", file=sys.stderr)
            continue
        changed = _tell_changes(content.get("config") or {}, trainer.config.serialize(), tuple(allow))
        trainer.restore(content, path, fresh_rates=any(_below(key, RATES) for key in changed))
        return


def _tell_changes(before: Mapping[str, Any], after: Mapping[str, Any], allow: tuple[str, ...]) -> list[str]:
    """Print the changed keys and return them. Raises an error for changes of the result that are not allowed."""
    old, new = _flat(before), _flat(after)
    require_known(allow, [*old, *new])
    keys = [key for key in dict.fromkeys([*new, *old]) if old.get(key) != new.get(key)] if old else []
    changes = [Change(key, old.get(key), new.get(key)) for key in keys]
    require_allowed([change for change in changes if not _below(change.key, HARMLESS)], allow)
    for change in changes:
        print(f"changed since the checkpoint: {change}", file=sys.stderr)
    return keys


def _below(key: str, sections: Iterable[str]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config by dotted key."""
    return {
        dotted(path): value
        for path, value in Tree(dict(config)).walk()
        if not isinstance(value, Mapping | list | tuple)
    }
