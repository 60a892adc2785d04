"""Values of a lazy config as a native one in YAML can hold them: by name what is code, with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai import lower as lowering
from etude.dialects.libai.checks.structure import key_of_way
from etude.dialects.libai.lazy.extra import dict_config, omegaconf, without_tuples
from etude.dialects.libai.lazy.targets import locate
from etude.errors import ConfigError

_LOCATE = "etude.dialects.libai.lazy.targets.locate"


def resolved(tree: Tree) -> Tree:
    """The config with what ``${..lr}`` stands for, as far as it is known: the native form has other references."""
    config = dict_config(dict(tree.values))
    return replace(tree, values={key: _standing(config, (key,), value) for key, value in tree.values.items()})


def _standing(config: Any, way: Path, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _standing(config, (*way, key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_standing(config, (*way, index), item) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    package = omegaconf()
    try:
        found = package.OmegaConf.select(config, key_of_way(way))
    except package.errors.OmegaConfBaseException:
        return value
    return (
        without_tuples(package.OmegaConf.to_container(found, resolve=True))
        if package.OmegaConf.is_config(found)
        else found
    )


def plain(tree: Tree, way: Path) -> Any:
    """The values below ``way``, targets by their names; a function as an argument becomes a call that finds it."""
    return _named(tree, way, tree.get(*way))


def _named(tree: Tree, way: Path, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _named(tree, (*way, key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(tree, (*way, index), item) for index, item in enumerate(value)]
    if isinstance(value, str) and "${" in value:
        said = f"{dotted(way)} is {value!r}, which is known when training begins"
        raise ConfigError(said, at=str(tree.place(*way)), hint="write the value itself")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if callable(value) and getattr(value, "__module__", None) and "<" not in getattr(value, "__qualname__", "<"):
        name = lowering.target_name(value)
        if not _leads_to(name, value):
            raise _cannot(tree, way, value)
        return name if way[-1] == "_target_" else {"_target_": _LOCATE, "name": name}
    raise _cannot(tree, way, value)


def _leads_to(name: str, value: Any) -> bool:
    """Whether a name finds the object again; that of a class in the config itself does not."""
    try:
        return locate(name) is value
    except (ImportError, ValueError):
        return False


def _cannot(tree: Tree, way: Path, value: Any) -> ConfigError:
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    at, hint = str(tree.place(*way)), "move what is defined in the config itself to a module"
    return ConfigError(f"{dotted(way)}: {kind} cannot be written into YAML", at=at, hint=hint)
