"""``LazyCall(target)(**arguments)``: a call that is written down as a config and made by ``instantiate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.targets import name_of


class LazyCall:
    """Wraps a callable, the dotted name of one, or another lazy call that yields one."""

    def __init__(self, target: Any) -> None:
        if not (callable(target) or isinstance(target, str | Mapping) or _is_config(target)):
            raise TypeError(f"target of LazyCall must be a callable or defines a callable! Got {target}")
        self._target = target

    def __call__(self, **kwargs: Any) -> Any:
        # OmegaConf would take these types for schemas, so their names stand for them.
        schema = isinstance(self._target, type) and (is_dataclass(self._target) or issubclass(self._target, dict))
        target = name_of(self._target) if schema else self._target
        return dict_config({**kwargs, "_target_": target})


def _is_config(value: Any) -> bool:
    return type(value).__name__ == "DictConfig"
