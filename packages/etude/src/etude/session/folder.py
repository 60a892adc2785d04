"""Creates a run's folder and records the plan, config and environment. It is made only after everything else was built.

.. code-block:: text

    runs/<name>/<time>/
      plan.yaml  config/  env.json      what was asked for; where it ran (never secrets)
      code.diff  code.json              changes of the code since its last commit; the imported files of the project
      status.json                       running, finished …; best values; where the time went
      log.txt    metrics.jsonl          what happened, for people and for programs
      timing.jsonl                      what the clock said
      lives.jsonl                       what each process that trained it has spent, without the last one
      checkpoints/                      see etude.checkpoint
"""

from __future__ import annotations

import difflib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import etude
from etude.config import run_files
from etude.config.files import replace_text
from etude.config.secrets import hide_diff, hide_text
from etude.errors import ConfigError, printable
from etude.errors.own_code import own_folders
from etude.fast_dataclass import record

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.plan import Plan

#: The first line of such a plan. No config begins like this, so that nobody takes one for the other.
HEADER = "# A run of etude.Trainer, in the words of a config. It names objects that only the script can make."
_UNSAFE = re.compile(r"[^\w.+-]+")
_MOST_CHANGES = 1 << 20
_LARGEST_FILE, _MOST_FILES = 256 << 10, 200
#: Changed lines of a file that a resume shows.
_FIRST_LINES = 6
_RESERVED = {"con", "prn", "aux", "nul", ".", ".."}


def safe_name(name: str) -> str:
    """Return ``name`` as one path component that stays below its parent, whatever it contains."""
    cleaned = _UNSAFE.sub("-", name).strip("-. ")[:100]
    if not cleaned or cleaned.lower() in _RESERVED:
        raise ConfigError(f"{printable(name)!r} cannot be the name of a run", hint="use letters, digits, - and _")
    return cleaned


def new_folder(root: str | Path, name: str) -> Path:
    """Return a path that does not exist yet: ``root/name/20261115-204250``."""
    parent = Path(root) / safe_name(name)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    candidate = parent / stamp
    count = 1
    while candidate.exists():
        count += 1
        candidate = parent / f"{stamp}-{count}"
    return candidate


def newest_folder(root: str | Path, name: str) -> Path | None:
    """Return the run that ``--resume`` continues: the newest one of this name that has a checkpoint, else the
    newest."""
    parent = Path(root) / safe_name(name)
    if not parent.is_dir():
        return None
    runs = sorted(path for path in parent.iterdir() if (path / "plan.yaml").exists())
    saved = [path for path in runs if any((path / "checkpoints").glob("step-*"))]
    return next(reversed(saved or runs), None)


def choose_folder(plan: Plan, options: Options) -> Path:
    """Return the folder of this run: the one asked for, that of the checkpoint or the newest when resuming, or a new
    one.
    """
    if options.folder is not None:
        return options.folder
    if options.resume:
        here = Path(options.resume).absolute()
        # A checkpoint lies two levels below the folder of its run.
        owner = next((place for place in (here, *list(here.parents)[:2]) if (place / "plan.yaml").exists()), None)
        if owner is not None:
            return owner
    if options.resume is not None:
        newest = newest_folder(plan.folder, plan.name)
        if newest is not None:
            return newest
    return new_folder(plan.folder, plan.name)


def make(
    folder: Path,
    *,
    plan_text: str,
    files: dict[str, str],
    anew: bool = False,
    private: bool = True,
    data: dict[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    tuples: Sequence[Sequence[str | int]] = (),
    learnt: Mapping[str, Any] | None = None,
) -> None:
    """Create the folder and record plan, config and environment. Without ``anew``, a folder keeps its first records.

    ``private``: readable by the owner alone, whatever the umask says. ``data``: fingerprints of the datasets by split.
    ``flags``: what the command line decides and the config does not say. ``tuples``: which lists of
    the plan were tuples. ``learnt``: what predictions need of the training data.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        if anew or not (folder / "plan.yaml").exists():
            (folder / "config").mkdir(exist_ok=True)
            for index, (path, text) in enumerate(files.items()):
                replace_text(folder / "config" / f"{index:02}-{safe_name(Path(path).name)}", text)
            # Relative, so that a project that is moved as a whole still finds what its config imports.
            config = os.path.relpath(next(iter(files)), folder) if files else None
            facts = {**environment(), "config": config, "data": data or {}, "flags": dict(flags or {})}
            facts |= {"tuples": tuples} if tuples else {}
            (folder / "env.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
            sources = imported_files(code_roots(files))
            _write_or_remove(folder / "code.diff", code_changes())
            _write_or_remove(folder / "code.json", json.dumps(sources, indent=1) + "\n" if sources else "")
            _write_or_remove(folder / run_files.LEARNT, json.dumps(learnt, ensure_ascii=False) + "\n" if learnt else "")
            # Near the end: a folder with a plan counts as recorded.
            replace_text(folder / "plan.yaml", plan_text)
            (folder / "trackers.json").unlink(missing_ok=True)  # a restarted run is a new run for trackers
    except OSError as error:
        raise ConfigError(
            f"the run's folder {folder} cannot be written: {error.strerror or error}", hint="choose another --folder"
        ) from error


def config_of(folder: Path) -> Path:
    """Return the config that a run was started with, if it still exists; else the plan in the run's folder."""
    try:
        there = Path(os.path.normpath(folder / run_files.environment(folder)["config"]))
        return there if there.is_file() else folder / "plan.yaml"
    except (OSError, ValueError, KeyError):
        return folder / "plan.yaml"


def environment() -> dict[str, Any]:
    """Return versions, machine and git state, for a bug report. No environment variables."""
    import torch

    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "etude": etude.__version__,
        "git": _git_state(),
    }


def learnt_from(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what other data has to share with the training data: columns, classes, scales."""
    shared = getattr(getattr(data.get("train"), "dataset", None), "shared", None)
    return shared if isinstance(shared, dict) else {}


def fingerprints(data: dict[str, Any]) -> dict[str, str]:
    """Return the fingerprint of each split's dataset, if it has one."""
    from etude.data.fingerprint import fingerprint_of

    found = {}
    for split, loader in data.items():
        try:
            mark = fingerprint_of(loader if hasattr(loader, "fingerprint") else getattr(loader, "dataset", loader))
        except Exception:  # a user-defined dataset that cannot tell is no reason not to train
            continue
        if mark:
            found[split] = mark
    return found


def _git_state() -> dict[str, str] | None:
    try:
        return {"commit": _git("rev-parse", "HEAD").strip(), "changed": _git("diff", "--stat", "HEAD").strip()}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, timeout=10, check=True)
    return done.stdout.decode("utf-8", "replace")


def _write_or_remove(path: Path, text: str) -> None:
    if text:
        # In a folder of another system's layout, which others may read, too.
        replace_text(path, text, mode=0o600)
    else:
        path.unlink(missing_ok=True)


# -- code --------------------------------------------------------------------------------------------------------------


@record
class Changed:
    """A file of the project that is another one than when the run began: how many lines came and went, and the first
    of them."""

    file: str
    added: int
    removed: int
    first: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file} (+{self.added} −{self.removed} lines)"


def changed_code(folder: Path, roots: Iterable[Path]) -> list[Changed]:
    """Return which of the imported files differ from those that the run recorded when it began."""
    before = run_files.code(folder)
    now = imported_files(roots) if before else {}
    found = []
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            lines = list(difflib.unified_diff(before[name].splitlines(), now[name].splitlines(), lineterm="", n=0))[2:]
            changed = [line for line in lines if line[:1] in "+-"]
            added = sum(line.startswith("+") for line in changed)
            found.append(Changed(name, added, len(changed) - added, tuple(changed[:_FIRST_LINES])))
    return found


def code_changes() -> str:
    """Return the uncommitted changes of tracked files as a diff; lines that look like secrets are redacted."""
    try:
        # The user's git config may name a program that shows differences.
        text = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
    except (OSError, subprocess.SubprocessError):
        return ""
    cut = "\n(cut: the changes are longer)\n" if len(text) > _MOST_CHANGES else ""
    return hide_diff(text[:_MOST_CHANGES]) + cut if text else ""


def code_roots(files: Iterable[str]) -> list[Path]:
    """Return the folders whose code belongs to a run: that of its config, the first of ``files``, and the current."""
    return [*(Path(file).parent for file in list(files)[:1]), Path.cwd()]


def imported_files(roots: Iterable[Path]) -> dict[str, str]:
    """Return the texts of the imported Python files below ``roots`` by their path there, tracked by git or not.

    Installed packages and files that are large are left out; lines that look like secrets are redacted.
    """
    tops = list(dict.fromkeys(root.resolve() for root in roots))
    found: dict[str, str] = {}
    for path in sorted({Path(name).resolve() for name in _module_files()}):
        top = next((top for top in tops if path.is_relative_to(top)), None)
        if top is None or any(part.startswith(".") for part in path.relative_to(top).parts):
            continue
        try:
            if path.stat().st_size <= _LARGEST_FILE and len(found) < _MOST_FILES:
                text = path.read_text(encoding="utf-8")
                found[path.relative_to(top).as_posix()] = hide_text(text, python=True)
        except (OSError, UnicodeDecodeError):
            continue
    return found


def _module_files() -> list[str]:
    """Return the files of the modules that are not Python's, of Étude or installed."""
    others = (os.path.dirname(os.__file__), *own_folders())
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [
        file
        for file in files
        if isinstance(file, str)
        and file.endswith(".py")
        and "site-packages" not in file
        and not file.startswith(others)
    ]
