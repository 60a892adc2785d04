"""What a checkpoint of a trainer holds beside model, optimizer and scheduler, so that a resumed run ends the same."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


class TrainerState:
    """Random generators, what hooks remember (the best metric, the kept checkpoints), half a sum of gradients."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self._of_hooks: Mapping[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"rng": generators(), "hooks": {}}
        for name, hook in self._remembering():
            state["hooks"][name] = hook.state_dict()
        inner = self.trainer._trainer
        scaler = getattr(getattr(inner, "amp", None), "scaler", None)
        if scaler is not None:
            state["scaler"] = scaler.state_dict()
        every = getattr(inner, "grad_acc_steps", 1)
        if getattr(inner, "optimizer", None) is not None and (self.trainer.iter + 1) % every != 0:
            state["grads"] = {str(i): p.grad for i, p in enumerate(self._parameters()) if p.grad is not None}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._of_hooks = state["hooks"]
        scaler = getattr(getattr(self.trainer._trainer, "amp", None), "scaler", None)
        if scaler is not None and "scaler" in state:
            scaler.load_state_dict(state["scaler"])
        parameters = self._parameters()
        for index, grad in state.get("grads", {}).items():
            parameters[int(index)].grad = grad.to(parameters[int(index)].device).clone()
        restore_generators(state["rng"])

    def restore_hooks(self) -> None:
        """Give hooks back what they remembered; they are registered after the checkpoint was loaded."""
        for name, hook in self._remembering():
            if name in self._of_hooks:
                hook.load_state_dict(self._of_hooks[name])

    def _remembering(self) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for hook in self.trainer._hooks:
            if hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict"):
                name = type(hook).__name__
                seen[name] = seen.get(name, 0) + 1
                yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), hook

    def _parameters(self) -> list[Any]:
        return [p for group in self.trainer.optimizer.param_groups for p in group["params"]]


def generators() -> dict[str, Any]:
    """The state of every random generator, as plain data."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_generators(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), int(position), int(has_gauss), float(cached)))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    elif "cuda" in state:
        logging.getLogger("libai.engine.default").warning(
            "the checkpoint was written with another number of devices: their random generators start anew"
        )
