"""Reads and writes MMEngine's checkpoint files: written whole or not at all, read without running code from them.

.. code-block:: text

    meta               epoch, iter, cfg (text), seed, experiment_name, time, mmengine_version, dataset_meta
    state_dict         the model on the CPU; averaged weights when EMA is on
    message_hub        log_scalars, runtime_info, resumed_keys
    optimizer          torch's state, with base_param_settings and loss_scaler; by name with several optimizers
    param_schedulers   a list of states; by name with several optimizers
    ema_state_dict     steps and the training weights under ``module.``
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np
import torch

from etude.checkpoint.formats import foreign
from etude.checkpoint.formats.torch_file import save_file
from etude.checkpoint.storage import chaos
from etude.checkpoint.storage.disk import write_atomically
from etude.errors import ResumeError, SaveError
from etude_openmm.mmengine.live.logging.history_buffer import HistoryBuffer

_NUMBERS = (bool, int, float, complex, str, bytes)
_PLAIN = (torch.Tensor, torch.dtype, torch.device, torch.Size)
#: What every file holds, the hub too: its arrays are tensors, so that torch reads the file with ``weights_only=True``.
_AS_TENSORS = ("meta.dataset_meta.", "dataset_meta.")


def read(path: str) -> dict[str, Any]:
    """Return the content of a checkpoint of MMEngine, mmcv or Étude; a bare state becomes ``{"state_dict": …}``."""
    content = foreign.read(path)
    if not isinstance(content, Mapping):
        raise ResumeError(f"{path} holds no checkpoint")
    return dict(content)


def plain(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``checkpoint`` in types that any program can read. What has none is found now, not when a resume fails.

    Numpy's numbers, histories and configs become Python's and torch's. An array that a hook put there stays one, as its
    reader expects. An info of the hub that has no plain form is left out with a warning; anywhere else it is an error
    that names the key.
    """
    made = dict(checkpoint)
    hub = made.get("message_hub")
    if isinstance(hub, Mapping):
        made["message_hub"] = {**hub, "runtime_info": _infos(hub.get("runtime_info", {}))}
    return {key: _plain(value, str(key)) for key, value in made.items()}


def _infos(infos: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for key, value in infos.items():
        try:
            kept[key] = _plain(value, key)
        except SaveError as error:
            warnings.warn(f"message_hub info {error}; it is not saved", stacklevel=4)
    return kept


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or type(value) in _NUMBERS or isinstance(value, _PLAIN):
        return value
    if isinstance(value, _NUMBERS):
        kind: Any = next(kind for kind in _NUMBERS if isinstance(value, kind))
        return kind(value)
    if isinstance(value, np.ndarray):
        return _plain_array(value, where)
    if isinstance(value, HistoryBuffer):
        return {key: _plain(_as_tensor(item), f"{where}.{key}") for key, item in value.__getstate__().items()}
    if isinstance(value, Mapping):
        return _plain_mapping(value, where)
    if isinstance(value, list | tuple | set | frozenset | deque):
        items = [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else set(items) if isinstance(value, set | frozenset) else items
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, type | FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    raise SaveError(f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which has no plain form")


def _plain_array(value: np.ndarray, where: str) -> Any:
    if value.dtype.kind not in "biufc":
        return _plain(value.tolist(), where)
    return _as_tensor(value) if where.startswith(_AS_TENSORS) else np.array(value)


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _plain_mapping(value: Mapping[Any, Any], where: str) -> Mapping[Any, Any]:
    items = {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Counter):
        return Counter(items)
    if not isinstance(value, OrderedDict):
        return items
    ordered = OrderedDict(items)
    if hasattr(value, "_metadata"):
        ordered._metadata = value._metadata  # type: ignore[attr-defined]
    return ordered


def write(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Write ``checkpoint`` beside ``path`` and put it in its place when it is safely on the disk."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with chaos.saving(path):
        save_file(path, dict(checkpoint), mode=0o666)


def write_text(path: str, text: str) -> None:
    """Write a small text file; it is replaced as a whole."""
    write_atomically(path, lambda file: file.write(text.encode()))


def remove(path: str) -> None:
    """Remove a file, or a folder with everything in it, if there is one."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.remove(path)


def note_path(path: str) -> str:
    """Return the file that notes what happened after the checkpoint at ``path`` was saved."""
    folder, name = os.path.split(path)
    return os.path.join(folder, ".etude", f"{name}.note")


def newest_first(folder: str) -> list[str]:
    """Return what an automatic resume may start from: ``last_checkpoint``'s file, then the others by their number."""
    try:
        with open(os.path.join(folder, "last_checkpoint"), encoding="utf-8") as file:
            latest = file.read().strip()
    except FileNotFoundError:
        return []
    beside = os.path.join(folder, os.path.basename(latest))
    if not os.path.exists(latest) and os.path.exists(beside):  # the folder was moved
        latest = beside
    numbered = re.compile(r"(?!best_|.*-[0-9a-f]{8}\.pth).*?(\d+)\.pth")  # neither best files nor published ones
    found = [(int(match[1]), name) for name in os.listdir(folder) if (match := numbered.fullmatch(name))]
    others = [os.path.join(folder, name) for _, name in sorted(found, reverse=True)]
    return [latest, *(path for path in others if os.path.realpath(path) != os.path.realpath(latest))]


def sweep(folder: str) -> list[str]:
    """Remove unfinished files of dead writers from ``folder``; return the names that the files were meant to have."""
    swept = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        unfinished = re.fullmatch(r"\.(.+)\.tmp-(\d+)-\d+", name)
        if unfinished and not _alive(int(unfinished[2])):
            remove(os.path.join(folder, name))
            swept.append(unfinished[1])
    return swept


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    return True
