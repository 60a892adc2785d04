"""Values of a lazy config as a native one in YAML can hold them: by name what is code, with references resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai.checks.structure import key_of_way
from etude.dialects.libai.lazy.extra import dict_config, omegaconf, without_tuples
from etude.dialects.libai.lazy.targets import locate, target_name
from etude.errors import Finding


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


def unwritable(tree: Tree, way: Path, value: Any) -> Finding | None:
    """Return why a class, a function or an object cannot be named in YAML; None where its name finds it again."""
    if callable(value) and getattr(value, "__module__", None) and "<" not in getattr(value, "__qualname__", "<"):
        try:
            if locate(target_name(value)) is value:
                return None
        except (ImportError, ValueError):
            pass  # a class of the config itself
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    hint = "move what is defined in the config itself to a module"
    return Finding(str(tree.place(*way)), f"{dotted(way)}: {kind} cannot be written into YAML", hint)
