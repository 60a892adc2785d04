"""The base class of visualization backends, and the local one, which writes JSON lines and images."""

from __future__ import annotations

import functools
import importlib
import json
import os
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from etude.errors import MissingExtra, printable
from etude_openmm.shared.config.config_base import dump_public
from etude_openmm.shared.registries.root import VISBACKENDS

_JSON = json.JSONEncoder(default=str)


def force_init_env(old_func: Callable[..., Any]) -> Any:
    """Call ``_init_env()`` of the backend before the first call of a decorated method."""

    @functools.wraps(old_func)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(obj, "_init_env"):
            raise AttributeError(f"{type(obj)} does not have _init_env method.")
        if not getattr(obj, "_env_initialized", False):
            obj._init_env()
            obj._env_initialized = True
        return old_func(obj, *args, **kwargs)

    return wrapper


def needed(module: str, purpose: str, *, extra: str = "tracking") -> Any:
    """Import and return the optional package that a backend needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0], extra, purpose) from error


def number(value: Any) -> Any:
    """Return a tensor, array or numpy number as a Python number; anything else as it is."""
    return value.item() if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) else value


class BaseVisBackend(metaclass=ABCMeta):
    """The base class of backends. Configs, graphs, images and scalars that a subclass does not handle are ignored."""

    def __init__(self, save_dir: str) -> None:
        self._save_dir = save_dir
        self._env_initialized = False

    @property
    @abstractmethod
    def experiment(self) -> Any:
        """Return the tracker's own object, for your own calls."""

    @abstractmethod
    def _init_env(self) -> Any:
        """Open the tracker or the files; called before the first use."""

    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Record the config."""
        return

    def add_graph(self, model: torch.nn.Module, data_batch: Any, **kwargs: Any) -> None:
        """Record the model's graph."""
        return

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Record an image, H × W × 3 in RGB."""
        return

    def add_scalar(self, name: str, value: int | float, step: int = 0, **kwargs: Any) -> None:
        """Record a number."""
        return

    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        """Record several numbers of one step."""
        return

    def close(self) -> None:
        """Finish: nothing more is recorded."""
        return


@VISBACKENDS.register_module()
class LocalVisBackend(BaseVisBackend):
    """Writes files below ``save_dir``: scalars as JSON lines, the config, images as PNG."""

    def __init__(
        self,
        save_dir: str,
        img_save_dir: str = "vis_image",
        config_save_file: str = "config.py",
        scalar_save_file: str = "scalars.json",
    ) -> None:
        assert config_save_file.split(".")[-1] == "py"
        assert scalar_save_file.split(".")[-1] == "json"
        super().__init__(save_dir)
        self._img_save_dir, self._config_save_file = img_save_dir, config_save_file
        self._scalar_save_file = scalar_save_file

    def _init_env(self) -> None:
        os.makedirs(self._save_dir, exist_ok=True)
        self._img_save_dir = os.path.join(self._save_dir, self._img_save_dir)
        self._config_save_file = os.path.join(self._save_dir, self._config_save_file)
        self._scalar_save_file = os.path.join(self._save_dir, self._scalar_save_file)

    @property
    @force_init_env
    def experiment(self) -> LocalVisBackend:
        return self

    @force_init_env
    def add_config(self, config: Any, **kwargs: Any) -> None:
        dump_public(config, self._config_save_file)

    @force_init_env
    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        assert image.dtype == np.uint8, f"an image has values of uint8, but got {image.dtype}"
        path = below(self._img_save_dir, f"{name}_{step}.png")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        needed("PIL.Image", "writing images", extra="image").fromarray(image).save(path)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._dump({name: number(value), "step": step}, self._scalar_save_file)

    @force_init_env
    def add_scalars(
        self, scalar_dict: dict[str, Any], step: int = 0, file_path: str | None = None, **kwargs: Any
    ) -> None:
        assert isinstance(scalar_dict, dict)
        row = {name: number(value) for name, value in scalar_dict.items()}
        row.setdefault("step", step)
        if file_path is not None:
            assert file_path.split(".")[-1] == "json"
            beside = below(self._save_dir, file_path)
            assert beside != self._scalar_save_file, "``file_path`` and ``scalar_save_file`` have the same name"
            self._dump(row, beside)
        self._dump(row, self._scalar_save_file)

    @force_init_env
    def written(self) -> tuple[str, int]:
        """Return the path of the scalars file and its size in bytes."""
        path = self._scalar_save_file
        return path, os.path.getsize(path) if os.path.exists(path) else 0

    @force_init_env
    def go_on_from(self, earlier: str, size: int) -> None:
        """Begin with the first ``size`` bytes of the ``earlier`` file of a resumed run.

        If that is this backend's own file, it is truncated to them.
        """
        own, so_far = self.written()
        if not os.path.isfile(earlier):
            return
        if so_far and os.path.samefile(earlier, own):
            os.truncate(own, min(size, so_far))
        elif not so_far:
            with open(earlier, "rb") as source, open(own, "wb") as target:
                target.write(source.read(size))

    def _dump(self, value_dict: dict[str, Any], file_path: str, file_format: str = "json") -> None:
        line = _JSON.encode(value_dict) + "\n"
        with open(file_path, "ab", buffering=0) as file:  # one write a line, so that a kill leaves no half of one
            file.write(line.encode())


@functools.lru_cache(maxsize=64)
def below(folder: str, name: str) -> str:
    """Return the path of ``name`` in ``folder``. Raises ``ValueError`` for a name that leads out of it."""
    path = os.path.join(folder, name)
    inside = os.path.commonpath([os.path.abspath(path), os.path.abspath(folder)]) == os.path.abspath(folder)
    if not inside or "\0" in name:
        raise ValueError(f"{printable(name)!r} leads out of {folder}")
    return path
