"""OmegaConf, imported when a lazy config is first touched: it comes with the extra ``libai``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from etude.dialects.libai.lazy.reading.light import Node, light, plain
from etude.errors import MissingExtra


def omegaconf() -> ModuleType:
    """Return the package, or raise an error that says what to install."""
    try:
        import omegaconf as package
    except ModuleNotFoundError as error:
        raise MissingExtra("omegaconf", "libai", "a lazy config (LiBai, detectron2)") from error
    return package


def dict_config(content: Any) -> Any:
    """Return a ``DictConfig`` with any object in its leaves; tuples become lists, as in the original lazy configs."""
    if light.get():
        return Node(content)
    return omegaconf().DictConfig(content=without_tuples(content), flags={"allow_objects": True})


def container(config: Any) -> Any:
    """Return a config as dicts and lists, with interpolations as they are written."""
    return plain(config) if light.get() else omegaconf().OmegaConf.to_container(config, resolve=False)


def without_tuples(value: Any) -> Any:
    """Plain containers with lists for tuples: newer versions of OmegaConf have a kind of their own for those."""
    if type(value) in (list, tuple):
        return [without_tuples(item) for item in value]
    return {key: without_tuples(item) for key, item in value.items()} if type(value) is dict else value


def is_dict_config(value: Any) -> bool:
    return isinstance(value, omegaconf().DictConfig)


def is_list_config(value: Any) -> bool:
    """Return whether ``value`` is one of OmegaConf's sequences."""
    return type(value).__name__ in ("ListConfig", "TupleConfig")
