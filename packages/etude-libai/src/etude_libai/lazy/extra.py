"""Imports OmegaConf (the extra ``libai``) and fvcore (``detectron2``) when they are first used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from etude.errors import MissingExtra
from etude_libai.lazy.reading.light import Node, light, plain


def omegaconf() -> ModuleType:
    """Return the package. Raises an error that says what to install if it is missing."""
    try:
        import omegaconf as package
    except ModuleNotFoundError as error:
        raise MissingExtra("omegaconf", "libai", "a lazy config (LiBai, detectron2)") from error
    return package


def fvcore(module: str, use: str) -> Any:
    """Return a module of fvcore, which comes with the extra ``detectron2``. ``use`` says in the error what needs it."""
    try:
        return importlib.import_module(f"fvcore.{module}")
    except ImportError as error:
        raise MissingExtra("fvcore", "detectron2", use) from error


def dict_config(content: Any) -> Any:
    """Return a ``DictConfig`` whose values may be any objects. Tuples become lists, as in LiBai and detectron2."""
    if light.get():
        return Node(content)
    return omegaconf().DictConfig(content=without_tuples(content), flags={"allow_objects": True})


def container(config: Any) -> Any:
    """Return a config as dicts and lists, with unresolved interpolations."""
    return plain(config) if light.get() else omegaconf().OmegaConf.to_container(config, resolve=False)


def without_tuples(value: Any) -> Any:
    """Return plain containers with lists in place of tuples, for which newer OmegaConf has a separate class."""
    if type(value) in (list, tuple):
        return [without_tuples(item) for item in value]
    return {key: without_tuples(item) for key, item in value.items()} if type(value) is dict else value


def is_dict_config(value: Any) -> bool:
    return isinstance(value, omegaconf().DictConfig)


def is_list_config(value: Any) -> bool:
    """Return whether ``value`` is one of OmegaConf's sequences."""
    return type(value).__name__ in ("ListConfig", "TupleConfig")
