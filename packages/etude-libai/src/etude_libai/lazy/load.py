"""``LazyCall``, ``LazyConfig`` (load, override, save) and ``get_config``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from glob import glob
from typing import Any

from etude.fast_dataclass import is_dataclass
from etude_libai.lazy.extra import dict_config, omegaconf
from etude_libai.lazy.reading import light
from etude_libai.lazy.reading.errors import explain_reading_error, hinted, near
from etude_libai.lazy.reading.relative import (
    DETECTRON2,
    LIBAI,
    Flavour,
    config_imports,
    execute,
    fresh_package,
)
from etude_libai.lazy.reading.sketches import is_computed, sketched
from etude_libai.lazy.targets import name_of
from etude_libai.places import CONFIGS, ORIGINS, common_config
from etude_libai.schema import NAMESPACES

Keys = str | tuple[str, ...] | list[str] | None
_ABSENT = object()


class LazyCall:
    """Wraps a callable, its dotted name, or another lazy call that returns one."""

    def __init__(self, target: Any) -> None:
        if not callable(target) and not isinstance(target, str | Mapping):
            raise TypeError(f"target of LazyCall must be a callable or defines a callable! Got {target}")
        self._target = target

    def __call__(self, **kwargs: Any) -> Any:
        # OmegaConf would take these types for schemas, so their names are used.
        schema = isinstance(self._target, type) and (is_dataclass(self._target) or issubclass(self._target, dict))
        target = name_of(self._target) if schema else self._target
        return dict_config({**kwargs, "_target_": target})


class LazyConfig:
    """Loads and saves configs of LiBai; :class:`DetectronLazyConfig` those of detectron2."""

    flavour: Flavour = LIBAI

    @classmethod
    def load(cls, filename: str, keys: Keys = None) -> Any:
        """Load a config file: all its mappings, or the values under ``keys`` (of any type).

        Without ``keys`` a Python file gives the mappings and OmegaConf lists whose names do not begin with ``_``.
        """
        # Both originals do this: it only shortens the path.
        filename = os.fspath(filename).replace("/./", "/")
        extension = os.path.splitext(filename)[1]
        try:
            if extension not in (".py", ".yaml", ".yml"):
                raise ValueError(f"Config file {filename} has to be a python or yaml file.")
            content = cls._run(filename) if extension == ".py" else cls._read(filename)
        except Exception as error:
            explain_reading_error(error, filename)
            raise
        ORIGINS.read(filename)
        if isinstance(keys, str):
            return _dict_as_config(content[keys])
        if keys is not None:
            return tuple(_dict_as_config(content[key]) for key in keys)
        return _all_configs(content) if extension == ".py" else dict_config(content)

    @classmethod
    def load_rel(cls, filename: str, keys: Keys = None) -> Any:
        """Load a file relative to the caller's source file."""
        caller = sys._getframe(1).f_code.co_filename
        if caller == "<string>":
            raise ValueError("load_rel is unable to find the caller's file name")
        return cls.load(os.path.join(os.path.dirname(caller), filename), keys)

    @classmethod
    def _run(cls, filename: str) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__file__": filename, "__package__": fresh_package(cls.flavour, filename)}
        with config_imports(cls.flavour):
            execute(filename, namespace)
        return namespace

    @staticmethod
    def _read(filename: str) -> Any:
        from etude_libai.lazy import yaml_files  # checking a Python config needs no yaml

        return yaml_files.read(filename)

    @staticmethod
    def apply_overrides(cfg: Any, overrides: list[str]) -> Any:
        """Apply overrides like ``["train.seed=1", …]`` to ``cfg`` in order, and return ``cfg``."""
        if not overrides:
            return cfg
        from etude_libai.lazy.overrides import apply

        return apply(cfg, overrides)

    @classmethod
    def save(cls, cfg: Any, filename: str) -> None:
        """Write ``cfg`` as YAML with targets by name, see :mod:`etude_libai.lazy.yaml_files`."""
        from etude_libai.lazy import yaml_files

        yaml_files.save(cfg, filename, as_objects=cls.flavour is DETECTRON2)

    @staticmethod
    def to_py(cfg: Any, prefix: str = "cfg.") -> str:
        """Return ``cfg`` as Python statements, one per value, to read and compare."""
        from etude_libai.lazy import python_text

        return python_text.to_py(cfg, prefix)


class DetectronLazyConfig(LazyConfig):
    flavour = DETECTRON2


def _dict_as_config(value: Any) -> Any:
    return dict_config(value) if isinstance(value, dict) else value


def _all_configs(content: Mapping[str, Any]) -> Any:
    package: Any = light.Module if light.light.get() else omegaconf()
    kinds = dict | package.DictConfig | package.ListConfig
    if (reading := sketched.get()) is not None:
        reading.lost |= any(is_computed(content.get(name)) for name in NAMESPACES)
    kept = {name: value for name, value in content.items() if isinstance(value, kinds) and not name.startswith("_")}
    return dict_config(kept)


# -- looking things up -----------------------------------------------------------------------------------------------


def try_get_key(cfg: Any, *keys: str, default: Any = None) -> Any:
    """Return the value of the first dotted key that exists. None counts as a value, ``???`` does not."""
    select = omegaconf().OmegaConf.select
    for key in keys:
        value = select(cfg, key, default=_ABSENT)
        if value is not _ABSENT:
            return value
    return default


def get_config(config_path: str) -> Any:
    """Return one of the common configs: ``get_config("common/train.py").train``."""
    if path := common_config(config_path):
        return LazyConfig.load(path)
    models_and_data = _models_and_data()
    if config_path in models_and_data:
        return dict_config(models_and_data[config_path])
    files = [os.path.relpath(file, CONFIGS) for file in glob(f"{CONFIGS}/**/*.py", recursive=True)]
    known = [*files, *models_and_data]
    raise hinted(RuntimeError(f"{config_path} not available in LiBai configs!"), near(config_path, known))


@cache
def _models_and_data() -> dict[str, Any]:
    """Return LiBai's configs of models, datasets and the optimizer by path."""
    with open(os.path.join(CONFIGS, "common.json"), encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
    return read
