"""Builds a run by the script of the config's project (``tools/train.py``), up to the point where it would train.

The script builds everything in its own order, with the config that Étude has read. It ends when it calls ``run`` of its
runner: Étude calls that later, so both give the same bits.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from etude.dialects import ownership
from etude.errors import UserError
from etude_openmm.mmcv1.live.runner.wiring import Held, Wired, held_back
from etude_openmm.mmcv1.projects import Project
from etude_openmm.shared import logging as loggers
from etude_openmm.shared.config.config_v1 import Config

#: What Étude does itself, when the script has built the run.
_LATER = ("resume_from", "load_from", "auto_resume")


def wire(project: Project, cfg: Any, config: str, extras: Mapping[str, Any], enter: Callable[[], None]) -> Wired:
    """Let the script build the run of ``cfg``, which it finds in the file ``config``, and return it.

    ``enter`` is called when the script reads the config, after it has imported its project.
    """
    script = _script(project)
    kept = {key: cfg.get(key) for key in _LATER if key in cfg}
    cfg.update(dict.fromkeys(kept))
    words = [script, config, *_arguments(ownership.text_of(script), cfg, extras)]
    with held_back(unwind=True) as runs, _given(config, cfg, enter), _running(words):
        try:
            runpy.run_path(script, run_name="__main__")
        except Held:
            pass
        except SystemExit as stop:
            if stop.code:
                raise UserError(
                    f"{script} ended with {stop.code!r} instead of training: {' '.join(words[1:])}"
                ) from None
    if not runs:
        raise UserError(f"{script} ended without training: no runner of mmcv was started")
    cfg.update(kept)
    return runs[-1]


def _script(project: Project) -> str:
    found = project.script
    if found is None:
        folder = ownership.original(project.package)
        raise UserError(
            f"{project.package}, whose config this is, has no tools/train.py beside or below {folder}; "
            "train it by your own script: etude exec SCRIPT CONFIG"
        )
    return found


def _arguments(text: str, cfg: Any, extras: Mapping[str, Any]) -> list[str]:
    """Return the arguments for the script whose source is ``text``: only flags that it has."""
    launcher = extras.get("launcher") or "none"
    if launcher == "none" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        launcher = "pytorch"
    validate = not extras.get("no_validate")
    seed = extras["seed"] if extras.get("seed") is not None else cfg.get("seed")
    wanted: list[tuple[str, Any]] = [
        ("--work-dir", cfg.get("work_dir")),
        ("--seed", seed),
        ("--diff-seed", bool(extras.get("diff_seed"))),
        ("--deterministic", bool(extras.get("deterministic") or cfg.get("deterministic"))),
        ("--validate", validate),
        ("--no-validate", not validate),
        ("--device", extras.get("device")),
        ("--launcher", launcher if launcher != "none" else None),
    ]
    words: list[str] = []
    for flag, value in wanted:
        has = next((one for one in (flag, flag.replace("-", "_").replace("__", "--", 1)) if _has(text, one)), None)
        if has is not None and value is not None and value is not False and value != "":
            words += [has] if value is True else [has, str(value)]
    return words


def _has(text: str, flag: str) -> bool:
    return re.search(rf"""["']{flag}["']""", text) is not None


@contextmanager
def _given(config: str, cfg: Any, enter: Callable[[], None]) -> Iterator[None]:
    """Let ``Config.fromfile`` return ``cfg`` for the file ``config``."""
    former, kept = Config.fromfile, vars(Config).get("fromfile")

    def fromfile(filename: Any, *args: Any, **kwargs: Any) -> Any:
        if os.path.abspath(os.fspath(filename)) != os.path.abspath(config):
            return former(filename, *args, **kwargs)
        enter()
        return cfg

    Config.fromfile = fromfile  # type: ignore[method-assign]
    try:
        yield
    finally:
        Config.fromfile = kept  # type: ignore[method-assign, assignment]


@contextmanager
def _running(words: list[str]) -> Iterator[None]:
    """Make this process look as a script sees it: its arguments, and its folder first on the path."""
    former, path = sys.argv, list(sys.path)
    sys.argv = words
    sys.path.insert(0, os.path.dirname(words[0]))
    try:
        yield
    finally:
        sys.argv = former
        sys.path[:] = [*path, *(entry for entry in sys.path[1:] if entry not in path)]


class OwnLog:
    """The log of a script, which has opened its file itself. With ``quiet``, the console gets errors only."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger

    def open(self, path: str) -> None:
        """Do nothing: the script has opened the file."""

    def note_end(self, error: Exception, text: str) -> None:
        """Write the error that ends the run, with its traceback, to the file; the command prints it to the console."""
        record = logging.LogRecord(
            self.logger.name, logging.ERROR, "", 0, text, None, (type(error), error, error.__traceback__)
        )
        for handler in self.logger.handlers:
            if isinstance(handler, logging.FileHandler):
                handler.handle(record)

    def close(self) -> None:
        """Close the file, and forget the logger: the next run of this process opens its own."""
        for handler in [one for one in self.logger.handlers if isinstance(one, logging.FileHandler)]:
            self.logger.removeHandler(handler)
            handler.close()
        loggers.logger_initialized.pop(self.logger.name, None)
        self.logger.handlers.clear()
