"""Reads and writes fvcore's checkpoints: a ``.pth`` file each, and ``last_checkpoint`` with the name of the newest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch

from etude.checkpoint.formats import foreign, torch_file
from etude.checkpoint.formats.background import BackgroundWriter
from etude.checkpoint.storage import chaos
from etude.errors import UserError
from etude_libai import files
from etude_libai.files import PeriodicCheckpointer
from etude_libai.lazy.extra import fvcore
from etude_libai.lazy.yacs_places import about
from etude_libai.live import topology

_fvcore = fvcore("common.checkpoint", "a checkpoint of detectron2")
__all__ = ["Checkpointer", "DetectionCheckpointer", "PeriodicCheckpointer"]


class Checkpointer(files.Resuming, _fvcore.Checkpointer):  # type: ignore[name-defined,misc]
    """Writes files completely or not at all, reads them as data only, and resumes from the newest whole one."""

    suffix = ".pth"

    def __init__(
        self, model: torch.nn.Module, save_dir: str = "", *, save_to_disk: bool = True, **checkpointables: Any
    ) -> None:
        super().__init__(files.unwrapped(model), save_dir, save_to_disk=save_to_disk, **checkpointables)
        self.path_manager = path_manager()
        self.later = BackgroundWriter()

    def save(self, name: str, **kwargs: Any) -> None:
        if not self.save_dir or not self.save_to_disk:
            return
        self.later.flush()
        data: dict[str, Any] = {"model": self.model.state_dict()}
        data |= {key: part.state_dict() for key, part in self.checkpointables.items()}
        data |= kwargs
        basename = f"{name}{self.suffix}"
        path = os.path.join(self.save_dir, basename)
        self.logger.info(f"Saving checkpoint to {path}")
        if _is_local(path):
            os.makedirs(self.save_dir, exist_ok=True)
            self.later.write(partial(_write, path), files.plain(data))
        else:
            with self.path_manager.open(path, "wb") as file:
                torch.save(files.plain(data), file)
        self.later.then(partial(self.tag_last_checkpoint, basename))

    def tag_last_checkpoint(self, last_filename_basename: str) -> None:
        if _is_local(self.save_dir):
            files.write_text(os.path.join(self.save_dir, files.LAST), last_filename_basename)
        else:
            super().tag_last_checkpoint(last_filename_basename)

    def newest_whole(self) -> str:
        last: str = self.get_checkpoint_file()
        return super().newest_whole() if _is_local(last) else last

    def load(self, path: str, checkpointables: Iterable[str] | None = None) -> dict[str, Any]:
        if path and not os.path.isfile(path):
            with about("MODEL.WEIGHTS (of a lazy config: train.init_checkpoint)"):
                path = self.path_manager.get_local_path(path)
                assert os.path.isfile(path), f"Checkpoint {path} not found!"
        loaded: dict[str, Any] = super().load(path, checkpointables)
        return loaded

    def _load_file(self, path: str) -> dict[str, Any]:
        """Return the file as data. A file of bare weights is treated as a checkpoint of a model."""
        content = foreign.read(path)
        return content if "model" in content else {"model": content}


def _write(path: str, data: Any) -> None:
    with chaos.saving(path):
        torch_file.save_file(path, data, mode=0o666)


@cache
def path_manager() -> Any:
    """Return detectron2's manager if detectron2 is installed, else one of iopath's that downloads URLs."""
    try:
        from detectron2.utils.file_io import PathManager  # the original's, which knows detectron2://
    except ImportError:
        from iopath.common import file_io  # comes with fvcore

        manager = file_io.PathManager()
        manager.register_handler(file_io.HTTPURLHandler())
        manager.register_handler(file_io.OneDrivePathHandler())
        return manager
    return PathManager


def _is_local(path: str) -> bool:
    """Return whether a path is local. The path manager handles others."""
    return "://" not in path


class DetectionCheckpointer(Checkpointer):
    """Writes on the first process only. ``path?matching_heuristics=True`` loads weights by the ends of their names."""

    _query: dict[str, list[str]] | None = None

    def __init__(
        self, model: torch.nn.Module, save_dir: str = "", *, save_to_disk: bool | None = None, **checkpointables: Any
    ) -> None:
        writes = topology.is_main_process() if save_to_disk is None else save_to_disk
        super().__init__(model, save_dir, save_to_disk=writes, **checkpointables)

    def load(self, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if path and not os.path.isfile(path):
            parsed = urlparse(path)
            self._query = parse_qs(parsed.query)
            path = parsed._replace(query="").geturl()
        try:
            return super().load(path, *args, **kwargs)
        finally:
            self._query = None

    def _load_file(self, path: str) -> dict[str, Any]:
        loaded = super()._load_file(path)
        query = dict(self._query or {})
        if query.pop("matching_heuristics", None) == ["True"]:
            loaded["matching_heuristics"] = True
        if query:
            raise ValueError(f"Unsupported query remaining: {query}, original filename: {path}")
        return loaded

    def _load_model(self, checkpoint: dict[str, Any]) -> Any:
        if checkpoint.get("matching_heuristics", False):
            self._convert_ndarray_to_tensor(checkpoint["model"])
            checkpoint["model"] = _matched(self.model.state_dict(), checkpoint["model"])
        return super()._load_model(checkpoint)


def _matched(model_state: dict[str, Any], loaded: dict[str, Any]) -> dict[str, Any]:
    """Return loaded weights under the names of the model, matched by detectron2's rules."""
    try:
        from detectron2.checkpoint.c2_model_loading import align_and_update_state_dicts
    except ImportError as error:
        raise UserError(
            "matching_heuristics=True needs detectron2 itself: install it, or rename the weights"
        ) from error
    found: dict[str, Any] = align_and_update_state_dicts(model_state, loaded, c2_conversion=False)
    return found
