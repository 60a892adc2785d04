"""Describes a checkpoint of any system: its layout, weights, optimizer, step and epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from etude.checkpoint import warm_start
from etude.checkpoint.find import find, is_native
from etude.checkpoint.formats import folders, layouts
from etude.fast_dataclass import record

NATIVE = "etude"
#: Parts whose entries are independent facts, so that each is compared on its own, and how deep they lie.
_LOOSE = {"meta": 1, "counters": 1, "message_hub": 2}


@record
class Content:
    """A checkpoint in memory. ``layout`` names the arrangement of ``state``."""

    path: str
    layout: str
    state: dict[Any, Any]
    #: How far training had come; None where nothing says so.
    step: int | None = None
    epoch: int | None = None

    def weights(self, key: str = "") -> dict[str, torch.Tensor]:
        return warm_start.weights_in(self.state, key=key, at=self.path)

    def optimizer(self) -> Any:
        """Return torch's state of the optimizer, or None."""
        found = _at(self.state, self._optimizer_place())
        return _with_numbers(found) if isinstance(found, Mapping) and "param_groups" in found else found

    def parts(self) -> dict[str, Any]:
        """Return the state by the parts that a conversion keeps or drops: ``model``, ``optimizer``, ``meta.seed`` …"""
        made: dict[str, Any] = {}
        for key, value in self.state.items():
            _split(str(key), value, _LOOSE.get(str(key), 0), made)
        return made

    def common_parts(self) -> dict[str, Any]:
        """Return the same under names that all layouts share: ``model``, ``optimizer``, ``step``, ``epoch``; others
        as is."""
        places = {"model": warm_start.weights_place(self.state), "optimizer": self._optimizer_place()}
        made: dict[str, Any] = {"model": self.weights(), "optimizer": self.optimizer()}
        made |= {"step": self.step, "epoch": self.epoch}
        made = {part: value for part, value in made.items() if value is not None}
        if places["model"] == "":
            return made
        taken = {*places.values(), *(f"{part}.{word}" for part, word in folders.epochs()), "meta.iter", "counters.step"}
        rest = Content(self.path, self.layout, dict(self.state)).parts()
        if "trainer" in rest:
            _split("trainer", rest.pop("trainer"), 1, rest)
        return made | {key: value for key, value in rest.items() if key not in taken and key not in made}

    def _optimizer_place(self) -> str:
        places = ("optimizer", *(layout.optimizer for layout in layouts.known()))
        return next((path for path in places if _at(self.state, path) is not None), "")


def read(path: str, *, trust: bool = False) -> Content:
    """Return the checkpoint at ``path``; for a run or a folder of checkpoints, the newest one."""
    path = find(path)
    if is_native(path):
        loaded = warm_start.load_native(path, trust_owner=trust)
        counted = loaded.state.get("counters", {})
        step, epoch = (counted.get(word, getattr(loaded.manifest, word)) for word in ("step", "epoch"))
        return Content(path, NATIVE, loaded.state, step, epoch)
    state = folders.read(path, trust=trust)
    return Content(path, layout_of(state), state, folders.steps_in(state) or None, folders.epoch_in(state))


def layout_of(state: Mapping[Any, Any]) -> str:
    """Return the system whose layout ``state`` has."""
    for layout in layouts.known():
        if layout.holds(state):
            return layout.name
    return "state_dict" if all(isinstance(value, torch.Tensor) for value in state.values()) else "torch"


def _at(state: Any, path: str) -> Any:
    for step in path.split("."):
        state = state.get(step) if isinstance(state, Mapping) else None
    return state


def _with_numbers(optimizer: Mapping[Any, Any]) -> dict[Any, Any]:
    """Key parameters by number, as torch does: a folder of ``torch.distributed.checkpoint`` has texts, or nothing."""
    state = optimizer.get("state") or {}
    return {**optimizer, "state": {int(key) if str(key).isdecimal() else key: one for key, one in state.items()}}


def _split(path: str, value: Any, depth: int, made: dict[str, Any]) -> None:
    if depth and isinstance(value, Mapping):
        for key, item in value.items():
            _split(f"{path}.{key}", item, depth - 1, made)
    else:
        made[path] = value
