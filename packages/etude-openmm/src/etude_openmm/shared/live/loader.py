"""Loads checkpoints from a file, an address, or a user-defined scheme. Nothing in a file is executed."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from typing import Any

import torch

from etude.checkpoint.formats import background, foreign
from etude.checkpoint.storage import disk
from etude.errors import OutOfScope, UserError

Load = Callable[..., Any]


class NotDownloaded(UserError, OSError):
    """An address that does not answer."""


class Loader:
    """Loaders by prefix. Prefixes are regular expressions, tried in reverse alphabetical order, the empty one last."""

    _schemes: dict[str, Load] = {}

    @classmethod
    def register_scheme(cls, prefixes: Any, loader: Load | None = None, force: bool = False) -> Any:
        """Let ``loader(filename, map_location)`` read what starts with one of ``prefixes``; also as a decorator."""
        if loader is not None:
            cls._register(prefixes, loader, force)
            return None

        def decorate(function: Load) -> Load:
            cls._register(prefixes, function, force)
            return function

        return decorate

    @classmethod
    def _register(cls, prefixes: Any, loader: Load, force: bool) -> None:
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes:
            if prefix in cls._schemes and not force:
                raise KeyError(f"{prefix} is already registered as a loader backend, add `force=True` to override it")
            cls._schemes[prefix] = loader
        cls._schemes = dict(sorted(cls._schemes.items(), key=lambda item: item[0], reverse=True))

    @classmethod
    def _get_checkpoint_loader(cls, path: str) -> Load:
        return next(load for prefix, load in cls._schemes.items() if re.match(prefix, path))

    @classmethod
    def load_checkpoint(cls, filename: str, map_location: Any = None, logger: Any = None) -> Any:
        """Log where ``filename`` is loaded from, and return the checkpoint as it stands in the file."""
        load = cls._get_checkpoint_loader(filename)
        cls._announce(getattr(load, "__name__", "loader").removeprefix("load_from_"), filename, logger)
        return load(filename, map_location)

    @classmethod
    def _announce(cls, source: str, filename: str, logger: Any) -> None: ...


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Return a file on this machine, read as data."""
    background.wait()
    path = os.path.expanduser(filename)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} can not be found.")
    return _moved(foreign.read(path), map_location)


def load_from_http(filename: str, map_location: Any = None, model_dir: str | None = None, progress: bool = True) -> Any:
    """Return a file behind an address; kept in torch's cache."""
    folder = model_dir or os.path.join(torch.hub.get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    cached = os.path.join(folder, os.path.basename(filename.partition("?")[0]))
    if not os.path.exists(cached):
        try:
            torch.hub.download_url_to_file(filename, cached, progress=progress)
        except OSError as error:
            raise NotDownloaded(
                f"{filename} cannot be downloaded ({error}); fetch the file where there is a network and put it at "
                f"{cached}, or give the path of a local file instead of the address"
            ) from error
    return load_from_local(cached, map_location)


def _from_zoo(name: str, schemes: str) -> Load:
    def load(filename: str, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        assert re.match(schemes, filename), f"Expected filename startswith `{schemes}`, but get {filename}"
        scheme, _, model = filename.partition("://")
        folder = os.path.join(torch.hub.get_dir(), "checkpoints")
        stem = model.replace("/", "_")
        # Files of torchvision have a hash behind their name: resnet18-f37072fd.pth
        for pattern in (f"{stem}.pth", f"{stem}-*.pth"):
            found = sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
            if found:
                return load_from_local(found[-1], map_location)
        raise OutOfScope(
            f"{filename}: Étude downloads nothing from the model zoo behind {scheme}://; "
            f"put the file at {os.path.join(folder, stem)}.pth, or give the path of a local file instead of the address"
        )

    load.__name__, load.__doc__ = name, "Read a model of a zoo from torch's cache, or say where to put its file."
    return load


load_from_torchvision = _from_zoo("load_from_torchvision", "modelzoo://|torchvision://")
load_from_openmmlab = _from_zoo("load_from_openmmlab", "open-mmlab://|openmmlab://")
load_from_mmcls = _from_zoo("load_from_mmcls", "mmcls://")
load_from_pavi = _from_zoo("load_from_pavi", "pavi://")
load_from_ceph = _from_zoo("load_from_ceph", r"(\S+\:)?s3://|(\S+\:)?petrel://")


def register_all(loader: type[Loader]) -> None:
    """Register the schemes that both systems know."""
    loader.register_scheme("", load_from_local)
    loader.register_scheme(("http://", "https://"), load_from_http)
    loader.register_scheme(("modelzoo://", "torchvision://"), load_from_torchvision)
    loader.register_scheme(("open-mmlab://", "openmmlab://"), load_from_openmmlab)
    loader.register_scheme("mmcls://", load_from_mmcls)
    loader.register_scheme("pavi://", load_from_pavi)
    loader.register_scheme((r"(\S+\:)?s3://", r"(\S+\:)?petrel://"), load_from_ceph)


def save_atomically(checkpoint: Any, filename: str) -> None:
    """Write ``checkpoint`` with torch's format; the file is whole or not there, and readable as the umask says."""
    path = os.path.abspath(os.path.expanduser(filename))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    disk.write_atomically(path, lambda file: torch.save(checkpoint, file), mode=0o666)


def _moved(value: Any, map_location: Any) -> Any:
    """Return ``value`` with tensors on the device ``map_location``. Other forms of it need nothing: files are read
    to the CPU.
    """
    if not isinstance(map_location, str | torch.device) or torch.device(map_location).type == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.to(map_location)
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _moved(item, map_location)
        return value
    if isinstance(value, list):
        return [_moved(item, map_location) for item in value]
    return value


def state_of(checkpoint: Any, filename: str) -> Any:
    """Return the state dict inside a checkpoint, or the checkpoint itself when it is one."""
    if not isinstance(checkpoint, dict):
        raise RuntimeError(f"No state_dict found in checkpoint file {filename}")
    return checkpoint.get("state_dict", checkpoint)


def revised(state_dict: Any, revise_keys: Any) -> Any:
    """Return the state dict with every (pattern, replacement) applied in turn to its keys."""
    metadata = getattr(state_dict, "_metadata", None)
    for pattern, replacement in revise_keys:
        state_dict = type(state_dict)((re.sub(pattern, replacement, key), item) for key, item in state_dict.items())
    if metadata is not None:
        state_dict._metadata = metadata
    return state_dict


def below(prefix: str, state_dict: Any, filename: str) -> dict[str, Any]:
    """Return the part of a state dict below ``prefix``, the prefix cut off."""
    prefix = prefix if prefix.endswith(".") else f"{prefix}."
    found = {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}
    if not found:
        tops = sorted({key.partition(".")[0] for key in state_dict})
        raise AssertionError(f"{prefix} is not in the pretrained model {filename}; it has: {', '.join(tops)}")
    return found
