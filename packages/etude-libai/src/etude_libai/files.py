"""Reads and writes LiBai's checkpoints: one folder each with one file per item, and ``last_checkpoint`` with a name.

.. code-block:: text

    output/
      last_checkpoint          model_0000009
      model_0000009/           model  optimizer  lr_scheduler  trainer
      model_best/  model_final/

A folder gets its name when all of it is on the disk. Entries are read as data: nothing in them is executed.
"""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from etude.checkpoint.formats import foreign, torch_file
from etude.checkpoint.formats.background import BackgroundWriter
from etude.checkpoint.formats.folders import damage
from etude.checkpoint.storage import chaos, disk
from etude.errors import ResumeError, SaveError
from etude_libai.lazy.extra import is_list_config

LAST = "last_checkpoint"
#: The name that is never pointed to: a resume starts from the newest state, not from the best one.
BEST = "model_best"
_NUMBERED = re.compile(r"\w*?_(\d{7,})(\.pth)?")


class Resuming:
    """Resumes from the newest checkpoint that is whole."""

    save_dir: str
    logger: logging.Logger

    def resume_or_load(self: Any, path: str, *, resume: bool = True) -> dict[str, Any]:
        """Load all of the last checkpoint with ``resume`` and if there is one; else the weights at ``path``."""
        if resume and self.has_checkpoint():
            loaded: dict[str, Any] = self.load(self.newest_whole())
        else:
            loaded = self.load(path, checkpointables=[])
        return loaded

    def newest_whole(self: Any) -> str:
        """Return the last checkpoint; if it is damaged, warn and return the newest whole one."""
        return newest_whole(self.get_checkpoint_file(), self.logger)


class Checkpointer(Resuming):
    """Saves and loads a model together with other things that have ``state_dict`` and ``load_state_dict``."""

    #: The end of a checkpoint's name.
    suffix = ""

    def __init__(
        self, model: torch.nn.Module, save_dir: str = "", *, save_to_disk: bool = True, **checkpointables: Any
    ) -> None:
        self.model = unwrapped(model)
        self.checkpointables: dict[str, Any] = dict(checkpointables)
        self.logger = logging.getLogger("libai.utils.checkpoint")
        self.save_dir, self.save_to_disk = save_dir, save_to_disk
        self.path_manager: Any = None
        self.later = BackgroundWriter()

    # -- saving --------------------------------------------------------------------------------------------------

    def save(self, name: str, **kwargs: Any) -> None:
        """Save all items in ``save_dir/name``, completely or not at all, then write the name to ``last_checkpoint``."""
        self.later.flush()
        items: dict[str, Any] = {"model": self.model.state_dict()}
        items |= {key: part.state_dict() for key, part in self.checkpointables.items()}
        items |= {key: value for key, value in kwargs.items() if key != "iteration"}
        if any(map(is_split, self.model.parameters())):
            from etude_libai.live.split import files

            items = files.whole_state(items)
        target = os.path.join(self.save_dir, name)
        self.logger.info(f"Saving checkpoint to {target}")
        if _is_main():
            self.later.write(partial(save_folder, target), plain(items))
            if name != BEST:
                self.later.then(partial(self.tag_last_checkpoint, name))

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        """Write the name of the checkpoint that a resume starts from."""
        write_text(os.path.join(self.save_dir, LAST), last_filename_basename)

    def forget(self, path: str) -> None:
        """Remove a checkpoint that is not kept any more."""
        disk.remove_tree(path)

    # -- finding -------------------------------------------------------------------------------------------------

    def has_checkpoint(self) -> bool:
        return os.path.exists(os.path.join(self.save_dir, LAST))

    def get_checkpoint_file(self) -> str:
        """Return the path of the last checkpoint; empty when there is none."""
        name = last_name(self.save_dir)
        return os.path.join(self.save_dir, name) if name else ""

    # -- loading -------------------------------------------------------------------------------------------------

    def load(self, path: str, checkpointables: Iterable[str] | None = None) -> dict[str, Any]:
        """Load the model and all (or the named) checkpointables; return the rest, and ``iter`` from the name."""
        if not path:
            self.logger.info("No checkpoint found. Training model from scratch")
            return {}
        self.logger.info(f"Loading checkpoint from {path}")
        assert os.path.isdir(path), f"Checkpoint {path} not found!"
        found = {entry: os.path.join(path, entry) for entry in sorted(os.listdir(path)) if not entry.startswith(".")}
        if "model" not in found:
            raise ResumeError(f"{path} has no entry 'model'")
        load_model(self.model, read_item(found.pop("model")), self.logger)
        wanted = list(self.checkpointables if checkpointables is None else checkpointables)
        for key in wanted:
            if key in found:
                self.logger.info(f"Loading {key} from {path}")
                self.checkpointables[key].load_state_dict(read_item(found.pop(key)))
        rest = {key: read_item(entry) for key, entry in found.items() if key not in self.checkpointables}
        return {**rest, "iter": iteration_of(path)}


class PeriodicCheckpointer:
    """Saves ``{prefix}_{iteration:07d}`` every ``period`` iterations, and ``{prefix}_final`` at the last.

    With ``max_to_keep`` the oldest of the periodic ones are removed; the final and the best do not count.
    """

    def __init__(
        self,
        checkpointer: Any,
        period: int,
        max_iter: int | None = None,
        max_to_keep: int | None = None,
        file_prefix: str = "model",
    ) -> None:
        self.checkpointer, self.period, self.max_iter = checkpointer, int(period), max_iter
        if max_to_keep is not None:
            assert max_to_keep > 0
        self.max_to_keep, self.file_prefix = max_to_keep, file_prefix
        self.recent_checkpoints: list[str] = []
        self.path_manager = None
        self._patience = torch_file.Patience()

    def step(self, iteration: int, **kwargs: Any) -> None:
        """Save if a checkpoint is due. Call it after every iteration."""
        iteration = int(iteration)
        extra = {"iteration": iteration, **kwargs}
        if self.period > 0 and (iteration + 1) % self.period == 0:
            self._save_periodically(f"{self.file_prefix}_{iteration:07d}", extra)
        self.step_final(iteration, **kwargs)

    def _save_periodically(self, name: str, extra: dict[str, Any]) -> None:
        later = getattr(self.checkpointer, "later", None) or BackgroundWriter()
        later.flush()
        try:
            with later.deferring(self._forgive, only_if=self._may_defer()):
                self.checkpointer.save(name, **extra)
        except SaveError as error:
            self._forgive(error)
            return
        later.then(self._patience.renew)
        if self.max_to_keep is not None:
            later.then(self._forget_oldest)

    def _forgive(self, error: SaveError) -> None:
        self._patience.forgive(error, logging.getLogger("libai.utils.checkpoint").error)

    def _may_defer(self) -> bool:
        """Return whether training may continue while a save is written. Not here: a script may read it next."""
        return False

    def step_final(self, iteration: int, **kwargs: Any) -> None:
        """Save the final checkpoint if this is the last iteration."""
        if self.max_iter is not None and iteration >= self.max_iter - 1:
            self.checkpointer.save(f"{self.file_prefix}_final", iteration=iteration, **kwargs)

    def _forget_oldest(self) -> None:
        newest = self.checkpointer.get_checkpoint_file()
        if newest not in self.recent_checkpoints:
            self.recent_checkpoints.append(newest)
        while len(self.recent_checkpoints) > (self.max_to_keep or 0):
            oldest = self.recent_checkpoints.pop(0)
            stem = os.path.splitext(os.path.basename(oldest))[0]
            if oldest and stem != f"{self.file_prefix}_final" and _is_main():
                getattr(self.checkpointer, "forget", disk.remove_tree)(oldest)

    def save(self, name: str, **kwargs: Any) -> None:
        """Save under another name, independent of the period."""
        self.checkpointer.save(name, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the checkpoints that ``max_to_keep`` counts, so that a resumed run removes them in turn."""
        return {"recent": [os.path.basename(path) for path in self.recent_checkpoints]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        folder = getattr(self.checkpointer, "save_dir", "")
        paths = [os.path.join(folder, name) for name in state["recent"]]
        newest = self.checkpointer.get_checkpoint_file()  # written before it could count itself
        if re.match(rf"{re.escape(self.file_prefix)}_\d{{7}}", os.path.basename(newest)):
            paths.append(newest)
        self.recent_checkpoints = [path for path in dict.fromkeys(paths) if os.path.exists(path)]


# -- files -------------------------------------------------------------------------------------------------------------


def save_folder(target: str, items: Mapping[str, Any]) -> None:
    """Write one file per item of plain data, in a folder that gets its name last and replaces one of that name."""
    parent, name = os.path.split(os.path.abspath(target))
    unfinished, replaced = (os.path.join(parent, f".{name}.{word}-{os.getpid()}") for word in ("tmp", "old"))
    disk.remove_tree(unfinished)
    try:
        with chaos.saving(target):
            disk.make_folder(unfinished)
            for key, value in items.items():
                torch_file.save_file(os.path.join(unfinished, key), value, mode=0o666)
            disk.sync_folder(unfinished)
            if os.path.exists(target):
                disk.remove_tree(replaced)
                # A folder cannot be renamed to the name of one that is not empty.
                disk.rename(target, replaced)
            disk.rename(unfinished, target)
            disk.sync_folder(parent)
        _sweep(parent, name)
    finally:
        disk.remove_tree(unfinished)
        disk.remove_tree(replaced)


def _sweep(parent: str, name: str) -> None:
    """Remove unfinished saves of this name that killed processes left behind."""
    for left in disk.names(parent):
        if left.startswith((f".{name}.tmp-", f".{name}.old-")):
            disk.remove_tree(os.path.join(parent, left))


def save_file(path: str, value: Any) -> None:
    """Write ``value`` with torch, completely or not at all."""
    torch_file.save_file(path, plain(value), mode=0o666)


def last_name(folder: str) -> str:
    """Return the name in ``last_checkpoint``; empty if there is no such file."""
    try:
        with open(os.path.join(folder, LAST), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_text(path: str, text: str) -> None:
    disk.write_atomically(path, lambda file: file.write(text.encode("utf-8")))


def read_item(path: str) -> Any:
    """Return one entry of a checkpoint, as data."""
    if os.path.isdir(path):
        raise ResumeError(
            f"{path} is a folder that OneFlow's flow.save wrote; save it again from OneFlow as numpy arrays and load "
            "those with torch"
        )
    return foreign.read(path)


def plain(value: Any) -> Any:
    """Return state as plain data: values of OmegaConf and numpy become those of Python."""
    if isinstance(value, torch.Tensor) or value is None or type(value) in (str, bool, int, float, bytes):
        return value
    if isinstance(value, Mapping):
        kind: type[dict[Any, Any]] = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind((key, plain(value[key])) for key in value)
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, list) or is_list_config(value):
        return [plain(item) for item in value]
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def iteration_of(path: str) -> int:
    """Return the number behind the last ``_`` of a checkpoint's name; 0 where there is none."""
    word = os.path.basename(os.path.normpath(path)).rpartition("_")[2]
    return int(word) if word.isdigit() else 0


def newest_whole(last: str, logger: logging.Logger, need: Collection[str] = ("model",)) -> str:
    """Return ``last`` or, with a warning, the newest whole checkpoint beside it if ``last`` is damaged."""
    for path in (last, *_earlier(last)):
        wrong = damage(path, need)
        if not wrong:
            if path != last:
                logger.warning(f"resuming from {path} instead of {last}")
            return path
        logger.warning(f"the checkpoint {path} cannot be used ({wrong}), looking for an earlier one")
    folder = os.path.dirname(last)
    raise ResumeError(f"{folder}: none of the checkpoints can be used; without --resume the run starts anew")


def _earlier(last: str) -> list[str]:
    """Return the other periodic checkpoints of the folder, newest first."""
    folder = os.path.dirname(last)
    found = []
    for name in os.listdir(folder or "."):
        number = _NUMBERED.fullmatch(name)
        if number is not None and name != os.path.basename(last):
            found.append((int(number[1]), os.path.join(folder, name)))
    return [path for _, path in sorted(found, reverse=True)]


def is_split(tensor: Any) -> bool:
    """Return whether a tensor is split over processes."""
    return hasattr(tensor, "device_mesh")


# -- models ------------------------------------------------------------------------------------------------------------


def unwrapped(model: Any) -> Any:
    """Return the model itself, without the wrapper of several processes or of the compiler."""
    while isinstance(model, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
        model = model.module
    return getattr(model, "_orig_mod", model)


class IncompatibleKeys(NamedTuple):
    """The keys that did not fit when a model was loaded."""

    missing_keys: list[str]
    unexpected_keys: list[str]
    incorrect_shapes: list[tuple[str, tuple[int, ...], tuple[int, ...]]]


def load_model(model: torch.nn.Module, state: Mapping[str, Any], logger: logging.Logger) -> IncompatibleKeys:
    """Load all weights that fit, and warn about others. A common prefix ``module.`` is removed."""
    incoming = dict(_stripped(state))
    own = model.state_dict()
    wrong_shapes = []
    for key in [key for key in incoming if isinstance(own.get(key), torch.Tensor)]:
        value = incoming[key] = torch.as_tensor(incoming[key])
        # A lazy parameter has no shape yet.
        if not torch.nn.parameter.is_lazy(own[key]) and own[key].shape != value.shape:
            wrong_shapes.append((key, tuple(value.shape), tuple(own[key].shape)))
            del incoming[key]
        elif is_split(own[key]):
            from etude_libai.live.split import files

            incoming[key] = files.like(value, own[key])
    result = model.load_state_dict(incoming, strict=False)
    skipped = {key for key, _, _ in wrong_shapes}
    missing = [key for key in result.missing_keys if key not in skipped and not _is_alias(model, key, incoming)]
    for key, there, here in wrong_shapes:
        logger.warning(
            f"Skip loading parameter '{key}' to the model due to incompatible shapes: {there} in the checkpoint but "
            f"{here} in the model! You might want to double check if this is expected."
        )
    if missing:
        logger.warning(get_missing_parameters_message(missing))
    if result.unexpected_keys:
        logger.warning(get_unexpected_parameters_message(result.unexpected_keys))
    return IncompatibleKeys(missing, list(result.unexpected_keys), wrong_shapes)


def _stripped(state: Mapping[str, Any]) -> Mapping[str, Any]:
    keys = [key for key in state if key]
    if keys and all(key.startswith("module.") for key in keys):
        return {key.removeprefix("module."): value for key, value in state.items()}
    return state


def _is_alias(model: torch.nn.Module, key: str, loaded: Mapping[str, Any]) -> bool:
    """Return whether the same tensor was loaded under another name."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    own = tensors.get(key)
    return own is not None and any(other is own and name in loaded for name, other in tensors.items())


def _is_main() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def get_missing_parameters_message(keys: Iterable[str]) -> str:
    return "Some model parameters or buffers are not found in the checkpoint:\n" + "\n".join(_by_layer(keys))


def get_unexpected_parameters_message(keys: Iterable[str]) -> str:
    head = "The checkpoint state_dict contains keys that are not used by the model:\n"
    return head + "\n".join(f"  {line}" for line in _by_layer(keys))


def _by_layer(keys: Iterable[str]) -> list[str]:
    """Return a line per layer, such as ``fc.{bias, weight}``, sorted by name."""
    layers: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        layer, dot, name = key.rpartition(".")
        layers[layer if dot else name].extend([name] if dot else [])
    return [layer + _listed(sorted(names)) for layer, names in sorted(layers.items())]


def _listed(names: list[str]) -> str:
    return f".{{{', '.join(names)}}}" if len(names) > 1 else "".join(f".{name}" for name in names)
