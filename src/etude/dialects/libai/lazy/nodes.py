"""The config node of yacs and fvcore, as scripts of detectron2 use it: nested dicts by attribute that can be frozen."""

from __future__ import annotations

import ast
import copy
import os
from collections.abc import Mapping
from typing import IO, Any

import yaml

from etude.dialects.libai.lazy.yacs_places import telling

BASE_KEY = "_BASE_"
_VALID: tuple[type, ...] = (tuple, list, str, int, float, bool, type(None))
_HIDDEN = ("_frozen", "_new_allowed", "_deprecated", "_renamed")


class CfgNode(dict[str, Any]):
    """``cfg.SOLVER.BASE_LR``; a frozen one refuses changes, and merging refuses keys and types that are not there.

    Names that begin with ``COMPUTED_`` are set once. YAML files may name others that they build on under ``_BASE_``.
    """

    def __init__(
        self, init_dict: Mapping[str, Any] | None = None, key_list: list[str] | None = None, new_allowed: bool = False
    ) -> None:
        super().__init__()
        for name, value in zip(_HIDDEN, (False, new_allowed, set(), {}), strict=True):
            object.__setattr__(self, name, value)
        above = list(key_list or [])
        for key, value in (init_dict or {}).items():
            way = ".".join([*above, str(key)])
            self[key] = type(self)(value, key_list=[*above, key]) if _is_plain_dict(value) else _valid(value, way)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("COMPUTED_"):  # of any type, and in a frozen node, too
            if name in self and self[name] != value:
                raise KeyError(
                    f"Computed attributed '{name}' already exists with a different value! "
                    f"old={self[name]}, new={value}."
                )
            self[name] = value
            return
        if self.is_frozen():
            raise AttributeError(f"Attempted to set {name} to {value}, but CfgNode is immutable")
        self[name] = type(self)(value) if _is_foreign_node(value) else _valid(value, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    def __str__(self) -> str:
        lines = []
        for key, value in sorted(self.items()):
            text = f"\n{value}".replace("\n", "\n  ") if isinstance(value, CfgNode) else f" {value}"
            lines.append(f"{key}:{text}")
        return "\n".join(lines)

    # -- freezing --------------------------------------------------------------------------------------------------

    def is_frozen(self) -> bool:
        return bool(object.__getattribute__(self, "_frozen"))

    def freeze(self) -> None:
        self._set("_frozen", True)

    def defrost(self) -> None:
        self._set("_frozen", False)

    def is_new_allowed(self) -> bool:
        return bool(object.__getattribute__(self, "_new_allowed"))

    def set_new_allowed(self, is_new_allowed: bool) -> None:
        self._set("_new_allowed", is_new_allowed)

    def _set(self, name: str, value: bool) -> None:
        object.__setattr__(self, name, value)
        for child in self.values():
            if isinstance(child, CfgNode):
                child._set(name, value)

    def clone(self) -> CfgNode:
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> CfgNode:
        made = type(self)()
        for key, value in self.items():
            made[key] = copy.deepcopy(value, memo)
        for name in _HIDDEN:
            object.__setattr__(made, name, copy.copy(object.__getattribute__(self, name)))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        hidden = {name: object.__getattribute__(self, name) for name in _HIDDEN}
        return _rebuilt, (type(self), dict(self), hidden)

    # -- names of earlier times ------------------------------------------------------------------------------------

    def register_deprecated_key(self, key: str) -> None:
        """Merging passes over this key."""
        assert not self.key_is_deprecated(key), f"key {key} is already registered as a deprecated key"
        object.__getattribute__(self, "_deprecated").add(key)

    def register_renamed_key(self, old_name: str, new_name: str, message: str | None = None) -> None:
        """Merging this key is an error that names its new one."""
        assert not self.key_is_renamed(old_name), f"key {old_name} is already registered as a renamed cfg key"
        object.__getattribute__(self, "_renamed")[old_name] = (new_name, message)

    def key_is_deprecated(self, full_key: str) -> bool:
        return full_key in object.__getattribute__(self, "_deprecated")

    def key_is_renamed(self, full_key: str) -> bool:
        return full_key in object.__getattribute__(self, "_renamed")

    def raise_key_rename_error(self, full_key: str) -> None:
        new, message = object.__getattribute__(self, "_renamed")[full_key]
        note = f" Note: {message}" if message else ""
        raise KeyError(f"Key {full_key} was renamed to {new}; please update your config.{note}")

    # -- merging ---------------------------------------------------------------------------------------------------

    @classmethod
    def _open_cfg(cls, filename: str) -> IO[str]:
        """Opens a config file; a subclass may find it elsewhere."""
        return open(filename, encoding="utf-8")

    @classmethod
    def load_yaml_with_base(cls, filename: str, allow_unsafe: bool = False) -> dict[str, Any]:
        """A YAML file over those it names under ``_BASE_``; read as data whatever ``allow_unsafe`` says."""
        with cls._open_cfg(filename) as file:
            config: dict[str, Any] = yaml.safe_load(file) or {}
        bases = config.pop(BASE_KEY, [])
        merged: dict[str, Any] = {}
        for base in [bases] if isinstance(bases, str) else bases:
            _lay_over(merged, cls.load_yaml_with_base(_beside(filename, base), allow_unsafe))
        _lay_over(merged, config)
        return merged

    @classmethod
    def load_cfg(cls, cfg_file_obj_or_str: Any) -> CfgNode:
        """A node from YAML text or an open YAML file."""
        return cls(yaml.safe_load(cfg_file_obj_or_str))

    def merge_from_file(self, cfg_filename: str, allow_unsafe: bool = False) -> None:
        """Values of a YAML file, and of those it builds on, over this one."""
        with telling(self, file=cfg_filename):
            self.merge_from_other_cfg(type(self)(self.load_yaml_with_base(cfg_filename, allow_unsafe=allow_unsafe)))

    def merge_from_other_cfg(self, cfg_other: Mapping[str, Any]) -> None:
        assert BASE_KEY not in cfg_other, f"The reserved key '{BASE_KEY}' can only be used in files!"
        _merge(cfg_other, self, self, [])

    def merge_from_list(self, cfg_list: list[Any]) -> None:
        """``["SOLVER.BASE_LR", 0.1, …]`` into this one."""
        with telling(self, pairs=cfg_list):
            self._merge_pairs(cfg_list)

    def _merge_pairs(self, cfg_list: list[Any]) -> None:
        assert BASE_KEY not in cfg_list[::2], f"The reserved key '{BASE_KEY}' can only be used in files!"
        assert len(cfg_list) % 2 == 0, f"Override list has odd length: {cfg_list}; it must be a list of pairs"
        for full_key, value in zip(cfg_list[::2], cfg_list[1::2], strict=True):
            if self.key_is_deprecated(full_key):
                continue
            if self.key_is_renamed(full_key):
                self.raise_key_rename_error(full_key)
            *parents, last = full_key.split(".")
            node: Any = self
            for parent in parents:
                assert parent in node, f"Non-existent key: {full_key}"
                node = node[parent]
            assert last in node, f"Non-existent key: {full_key}"
            node[last] = _fitting(_decoded(value), node[last], full_key)

    def dump(self, **options: Any) -> str:
        return str(yaml.safe_dump(_plain(self), **options))


#: yacs has this beside the class, too.
load_cfg = CfgNode.load_cfg


def _rebuilt(kind: type[CfgNode], items: dict[str, Any], hidden: dict[str, Any]) -> CfgNode:
    made = kind()
    made.update(items)
    for name, value in hidden.items():
        object.__setattr__(made, name, value)
    return made


def _is_plain_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and not isinstance(value, CfgNode)


def _is_foreign_node(value: Any) -> bool:
    """Whether a node is one of an installed yacs or fvcore; it becomes one of ours."""
    return _is_plain_dict(value) and any(kind.__name__ == "CfgNode" for kind in type(value).__mro__)


def _valid(value: Any, name: str) -> Any:
    good = isinstance(value, CfgNode) or type(value) in _VALID
    assert good, f"Invalid type {type(value)} for key {name}; valid types = {sorted(t.__name__ for t in _VALID)}"
    return value


def _merge(other: Mapping[str, Any], node: CfgNode, root: CfgNode, way: list[str]) -> None:
    for key, given in other.items():
        full_key = ".".join([*way, key])
        value = _decoded(copy.deepcopy(given))
        if key in node:
            value = _fitting(value, node[key], full_key)
            if isinstance(value, CfgNode):
                _merge(value, node[key], root, [*way, key])
            else:
                node[key] = value
        elif node.is_new_allowed():
            node[key] = value
        elif root.key_is_renamed(full_key):
            root.raise_key_rename_error(full_key)
        elif not root.key_is_deprecated(full_key):
            raise KeyError(f"Non-existent config key: {full_key}")


def _fitting(value: Any, original: Any, full_key: str) -> Any:
    """``value`` as a value of the same type as before; None goes with every type, tuples with lists."""
    if type(value) is type(original) or (isinstance(value, CfgNode) and isinstance(original, CfgNode)):
        return value
    if None in (value, original) and {type(value), type(original)} <= set(_VALID):
        return value
    if {type(value), type(original)} == {list, tuple}:
        return type(original)(value)
    raise ValueError(
        f"Type mismatch ({type(original)} vs. {type(value)}) with values ({original} vs. {value}) "
        f"for config key: {full_key}"
    )


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and key in below:
            assert isinstance(below[key], dict), f"Cannot inherit key '{key}' from base!"
            _lay_over(below[key], value)
        else:
            below[key] = value


def _beside(filename: str, base: str) -> str:
    base = os.path.expanduser(base)
    return base if os.path.isabs(base) else os.path.join(os.path.dirname(filename), base)


def _decoded(value: Any) -> Any:
    if _is_plain_dict(value):
        return CfgNode(value)
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
