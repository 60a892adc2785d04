"""yacs' config node, as far as scripts of detectron2 use it: nested dicts by attribute that can be frozen."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from typing import Any

import yaml


class CfgNode(dict[str, Any]):
    """``cfg.SOLVER.BASE_LR``; a frozen one refuses changes, and merging refuses keys that are not there."""

    def __init__(
        self, init_dict: Mapping[str, Any] | None = None, key_list: Any = None, new_allowed: bool = False
    ) -> None:
        super().__init__()
        object.__setattr__(self, "_frozen", False)
        object.__setattr__(self, "_new_allowed", new_allowed)
        for key, value in (init_dict or {}).items():
            self[key] = CfgNode(value) if isinstance(value, Mapping) and not isinstance(value, CfgNode) else value

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.is_frozen():
            raise AttributeError(f"Attempted to set {name} to {value}, but CfgNode is immutable")
        self[name] = value

    def is_frozen(self) -> bool:
        return bool(object.__getattribute__(self, "_frozen"))

    def freeze(self) -> None:
        self._set_frozen(True)

    def defrost(self) -> None:
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        object.__setattr__(self, "_frozen", frozen)
        for value in self.values():
            if isinstance(value, CfgNode):
                value._set_frozen(frozen)

    def clone(self) -> CfgNode:
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> CfgNode:
        made = CfgNode({key: copy.deepcopy(value, memo) for key, value in self.items()})
        made._set_frozen(self.is_frozen())
        return made

    def merge_from_file(self, cfg_filename: str, allow_unsafe: bool = False) -> None:
        """Values of a YAML file over this one; the file is read as data whatever ``allow_unsafe`` says."""
        with open(cfg_filename, encoding="utf-8") as file:
            self.merge_from_other_cfg(CfgNode(yaml.safe_load(file)))

    def merge_from_other_cfg(self, cfg_other: Mapping[str, Any]) -> None:
        for key, value in cfg_other.items():
            if key not in self and not object.__getattribute__(self, "_new_allowed"):
                raise KeyError(f"Non-existent config key: {key}")
            if isinstance(value, Mapping) and isinstance(self.get(key), CfgNode):
                self[key].merge_from_other_cfg(value)
            else:
                self[key] = copy.deepcopy(value)

    def merge_from_list(self, cfg_list: list[Any]) -> None:
        """``["SOLVER.BASE_LR", 0.1, …]`` into this one."""
        assert len(cfg_list) % 2 == 0, f"Override list has odd length: {cfg_list}; it must be a list of pairs"
        for full_key, value in zip(cfg_list[::2], cfg_list[1::2], strict=True):
            *parents, last = full_key.split(".")
            node = self
            for parent in parents:
                assert parent in node, f"Non-existent key: {full_key}"
                node = node[parent]
            assert last in node, f"Non-existent key: {full_key}"
            node[last] = _decoded(value)

    def dump(self, **options: Any) -> str:
        return str(yaml.safe_dump(_plain(self), **options))


def _decoded(value: Any) -> Any:
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
