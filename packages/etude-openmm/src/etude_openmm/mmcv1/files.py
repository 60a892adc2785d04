"""Writes mmcv's checkpoints whole or not at all, and finds the newest one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from etude.checkpoint.formats import foreign
from etude.checkpoint.formats.torch_file import save_file
from etude.checkpoint.storage import chaos, disk
from etude.errors import ResumeError
from etude_openmm.shared.config.dict_base import AttributeDict

LATEST = "latest.pth"


def write(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Put ``checkpoint`` at ``path``; when that fails, what was there before is untouched."""
    with chaos.saving(path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        save_file(path, checkpoint, mode=0o666)


def plain(value: Any) -> Any:
    """Return ``value`` with configs inside as plain dicts, and numpy's numbers as Python's.

    The file then names no class of Étude, so that mmcv can read it, and none of numpy, so that ``torch.load`` can.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, AttributeDict):
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return {key: plain(item) for key, item in value.items()} if type(value) is dict else value


def link_latest(folder: str, name: str) -> None:
    """Make ``latest.pth`` a relative link to ``name``, replacing the old one in one move."""
    temporary = os.path.join(folder, f".{LATEST}.tmp-{os.getpid()}")
    disk.remove(temporary)
    os.symlink(name, temporary)
    disk.rename(temporary, os.path.join(folder, LATEST))


def candidates(folder: str) -> Iterator[str]:
    """Yield checkpoints to resume from, best first: what ``latest.pth`` names, then by their trailing number."""
    latest = os.path.join(folder, LATEST)
    first = os.path.realpath(latest) if os.path.exists(latest) else None
    if first is not None:
        yield first
    numbered = []
    for name in disk.names(folder):
        match = re.fullmatch(r"(?!best_).*_(\d+)\.pth", name)
        if match and os.path.realpath(os.path.join(folder, name)) != first:
            numbered.append((int(match[1]), os.path.join(folder, name)))
    for _, path in sorted(numbered, reverse=True):
        yield path


def newest(folder: str, *, say: Callable[[str], Any]) -> str | None:
    """Return the newest checkpoint that can be read, or None; report each one that cannot be read."""
    refused = []
    for path in candidates(folder):
        try:
            found = foreign.read(path)
            if "state_dict" not in found or "epoch" not in found.get("meta", {}):
                raise ResumeError(f"{path}: not a checkpoint of a run")
            return path
        except ResumeError as error:
            refused.append(str(error))
            say(f"skipped {error}")
    if refused:
        raise ResumeError("no checkpoint can be used: " + "; ".join(refused))
    return None
