"""MMEngine's MessageHub, where hooks, models and log lines share scalars and other values (infos)."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from etude.dialects.properties import reads
from etude_openmm.mmengine.live.logging.history_buffer import HistoryBuffer, settle
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.registries.managers import ManagerMixin

_IMMUTABLE = (int, float, str, bool, type(None))


class MessageHub(ManagerMixin):
    """Holds scalars, which have a history, and infos, which have one value. ``resumed`` says whether a key is saved.

    ``resumed`` of a key is fixed at its first use. A scalar that is given as a tensor is read only when asked for.
    """

    def __init__(
        self,
        name: str,
        log_scalars: Mapping[str, HistoryBuffer] | None = None,
        runtime_info: Mapping[str, Any] | None = None,
        resumed_keys: Mapping[str, bool] | None = None,
    ) -> None:
        super().__init__(name)
        self._log_scalars = self._parse_input("log_scalars", log_scalars)
        self._runtime_info = self._parse_input("runtime_info", runtime_info)
        self._resumed_keys = self._parse_input("resumed_keys", resumed_keys)
        for value in self._log_scalars.values():
            assert isinstance(value, HistoryBuffer), (
                f"The type of log_scalars'value must be HistoryBuffer, but got {type(value)}"
            )
        for key in self._resumed_keys:
            assert key in self._log_scalars or key in self._runtime_info, (
                f"{key!r} of resumed_keys is neither among log_scalars nor runtime_info"
            )

    @classmethod
    def get_current_instance(cls) -> MessageHub:
        """Return the newest hub, or make one named ``mmengine`` if there is none."""
        if not cls._instance_dict:
            cls.get_instance("mmengine")
        hub: MessageHub = super().get_current_instance()
        return hub

    # -- scalars -------------------------------------------------------------------------------------------------

    def update_scalar(
        self, key: str, value: int | float | np.ndarray | np.number | torch.Tensor, count: int = 1, resumed: bool = True
    ) -> None:
        """Add a number, or an array or tensor of one element, to the history of ``key``."""
        number: Any = value if type(value) is float or type(value) is int else self._get_valid_value(value)
        assert isinstance(count, int), f"The type of count must be int, but got {type(count)}"
        buffer = self._log_scalars.get(key)
        if buffer is None or self._resumed_keys.get(key) is not resumed:
            buffer = self.buffer(key, resumed)
        buffer.append(number, count)

    def update_scalars(self, log_dict: Mapping[str, Any], resumed: bool = True) -> None:
        """Add several scalars at once; each is a value, or a dict of ``value`` and ``count``."""
        assert isinstance(log_dict, Mapping), f"log_dict must be a dict, but got {type(log_dict)}"
        for key, value in log_dict.items():
            if isinstance(value, Mapping):
                self._check_log_dict_value(key, value)
                self.update_scalar(key, value["value"], value.get("count", 1), resumed)
            else:
                self.update_scalar(key, value, 1, resumed)

    def buffer(self, key: str, resumed: bool = True) -> HistoryBuffer:
        """Return the history of ``key``, made if it is new. Code that adds to it every iteration may keep it."""
        found: HistoryBuffer | None = self._log_scalars.get(key)
        if found is None:
            found = self._log_scalars[key] = HistoryBuffer.of_first_kind()
        if self._resumed_keys.get(key) is not resumed:
            self._set_resumed_keys(key, resumed)
        return found

    def get_scalar(self, key: str) -> HistoryBuffer:
        """Return the history of ``key``."""
        if key not in self._log_scalars:
            raise KeyError(f"{key} is not found in Messagehub.log_buffers: instance name is: {self.instance_name}")
        buffer: HistoryBuffer = self._log_scalars[key]
        return buffer

    def settle(self) -> None:
        """Turn all scalars that are still tensors into numbers, in one transfer."""
        settle(self._log_scalars.values())

    log_scalars: OrderedDict[str, HistoryBuffer] = reads("_log_scalars")

    # -- infos ---------------------------------------------------------------------------------------------------

    def update_info(self, key: str, value: Any, resumed: bool = True) -> None:
        """Set an info."""
        if self._resumed_keys.get(key) is not resumed:
            self._set_resumed_keys(key, resumed)
        self._runtime_info[key] = value

    def update_info_dict(self, info_dict: Mapping[str, Any], resumed: bool = True) -> None:
        """Set several infos."""
        assert isinstance(info_dict, Mapping), f"info_dict must be a dict, but got {type(info_dict)}"
        for key, value in info_dict.items():
            self.update_info(key, value, resumed)

    def pop_info(self, key: str, default: Any = None) -> Any:
        """Remove an info and return its value."""
        return self._runtime_info.pop(key, default)

    def get_info(self, key: str, default: Any = None) -> Any:
        """Return a copy of an info."""
        value = self._runtime_info.get(key, default)
        return value if isinstance(value, _IMMUTABLE) else copy.deepcopy(value)

    runtime_info: OrderedDict[str, Any] = reads("_runtime_info")

    # -- checks --------------------------------------------------------------------------------------------------

    def _set_resumed_keys(self, key: str, resumed: bool) -> None:
        known = self._resumed_keys.setdefault(key, resumed)
        assert known == resumed, f"{key} used to be {known}, but got {resumed} now. resumed keys cannot be modified."

    @staticmethod
    def _check_log_dict_value(key: str, value: Mapping[str, Any]) -> None:
        assert "value" in value, f"{key}: a scalar that is given as a dict needs `value`, but got {dict(value)}"

    @staticmethod
    def _get_valid_value(value: Any) -> Any:
        """Return a number, or a tensor of one element that the caller can no longer change."""
        if isinstance(value, torch.Tensor):
            assert value.numel() == 1, f"a scalar tensor has one element, but got {tuple(value.shape)}"
            # The result of a differentiable operation is not modified in place; a buffer of a model may be.
            return value.detach() if value.requires_grad else value.clone()
        if isinstance(value, np.ndarray):
            assert value.size == 1, f"a scalar array has one element, but got {value.shape}"
            return value.item()
        if isinstance(value, np.number):
            return value.item()
        if isinstance(value, (int, float)):
            return value
        raise AssertionError(f"a scalar must be a number, an array or a tensor of one element, but got {type(value)}")

    @staticmethod
    def _parse_input(name: str, value: Any) -> OrderedDict[str, Any]:
        if value is None:
            return OrderedDict()
        if isinstance(value, Mapping):
            return value if isinstance(value, OrderedDict) else OrderedDict(value)
        raise TypeError(f"{name} should be a dict or None, but got {type(value)}")

    # -- saving --------------------------------------------------------------------------------------------------

    def _is_resumed(self, key: str) -> bool:
        return bool(self._resumed_keys.get(key, False))

    def state_dict(self) -> dict[str, Any]:
        """Return the keys that are marked as resumed. Warns about infos that cannot be copied."""
        self.settle()
        scalars = OrderedDict(
            (key, copy.deepcopy(value)) for key, value in self._log_scalars.items() if self._is_resumed(key)
        )
        infos = OrderedDict(
            (key, _copied(key, value, "is not saved"))
            for key, value in self._runtime_info.items()
            if self._is_resumed(key)
        )
        keys = OrderedDict((key, True) for key in self._resumed_keys if key in scalars or key in infos)
        return {"log_scalars": scalars, "runtime_info": infos, "resumed_keys": keys}

    def remembered(self) -> tuple[Any, Any, Any]:
        """Return a copy of everything in the hub, for :meth:`go_back`."""
        self.settle()
        return copy.deepcopy(self._log_scalars), OrderedDict(self._runtime_info), OrderedDict(self._resumed_keys)

    def go_back(self, then: tuple[Any, Any, Any]) -> None:
        """Restore the content that :meth:`remembered` returned."""
        scalars, infos, resumed = then
        for held, kept in ((self._log_scalars, scalars), (self._runtime_info, infos), (self._resumed_keys, resumed)):
            held.clear()
            held.update(kept)

    def load_state_dict(self, state_dict: MessageHub | Mapping[str, Any]) -> None:
        """Load a state of :meth:`state_dict`, or of another hub. Entries of a wrong type are skipped with a warning."""
        if isinstance(state_dict, Mapping):
            for key in ("log_scalars", "runtime_info", "resumed_keys"):
                assert key in state_dict, f"The loaded `state_dict` of `MessageHub` must contain key {key!r}"
            parts = [state_dict[key] for key in ("log_scalars", "runtime_info", "resumed_keys")]
        else:
            parts = [state_dict._log_scalars, state_dict._runtime_info, state_dict._resumed_keys]
        scalars, infos, resumed = parts
        for key, value in scalars.items():
            if isinstance(value, HistoryBuffer):
                self._log_scalars[key] = copy.deepcopy(value)
            else:
                log_warning(f"{key} in message_hub is not HistoryBuffer, just skip resuming it.")
        for key, value in infos.items():
            self._runtime_info[key] = _copied(key, value, "is used itself")
        for key, value in resumed.items():
            if key in self._log_scalars or key in self._runtime_info:
                self._set_resumed_keys(key, value)
                if not value:
                    log_warning(f"Although resumed key: {key} is False, {key} is loaded")
            else:
                log_warning(f"resumed key {key} has no scalar or info in message_hub")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.state_dict(), "name": self.instance_name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], state["log_scalars"], state["runtime_info"], state["resumed_keys"])  # type: ignore[misc]


def _copied(key: str, value: Any, otherwise: str) -> Any:
    """Return a copy of an info; the info itself, with a warning, if there can be none."""
    try:
        return copy.deepcopy(value)
    except Exception:
        log_warning(f"{key} in message_hub cannot be copied and {otherwise}")
        return value
