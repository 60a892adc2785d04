"""Saves what a resumed trainer needs beside model, optimizer and scheduler to end in the same bits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etude.core.run import is_part, numbered
from etude.data.resume import Snapshot
from etude.ledger.writer import state_of_ledger
from etude_libai.files import is_split
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.data.position import batches_of


class TrainerState:
    """The entry ``trainer`` of a checkpoint: position, generators, accumulated gradients and the gradient scaler."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        state = moment(self.trainer, gather=True)
        inner = self.trainer._trainer
        scaler = getattr(getattr(inner, "amp", None), "scaler", None)
        if scaler is not None:
            state["scaler"] = scaler.state_dict()
        every = getattr(inner, "grad_acc_steps", 1)
        if getattr(inner, "optimizer", None) is not None and (self.trainer.iter + 1) % every != 0:
            if topology.splits():
                from etude_libai.live.split import updates

                updates.complete(inner.optimizer)
            state["grads"] = {str(i): p.grad for i, p in enumerate(self._parameters()) if p.grad is not None}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        scaler = getattr(getattr(self.trainer._trainer, "amp", None), "scaler", None)
        if scaler is not None and "scaler" in state:
            scaler.load_state_dict(state["scaler"])
        parameters = self._parameters()
        for index, grad in state.get("grads", {}).items():
            own = parameters[int(index)]
            if is_split(own):
                from etude_libai.live.split import files

                own.grad = files.like(grad, own)
            else:
                own.grad = grad.to(own.device).clone()
        self.trainer._left_off = state

    def _parameters(self) -> list[Any]:
        return [p for group in self.trainer.optimizer.param_groups for p in group["params"]]


def moment(trainer: Any, *, gather: bool, hooks: Any = None) -> dict[str, Any]:
    """Return the state of a trainer: iteration, random generators, data positions, recorded values, hooks.

    With ``gather`` all processes call this together, and each adds its own part; else only this one's is known.
    """
    seen = batches_of(trainer)
    own: dict[str, Any] = {"rng": Snapshot.take().state_dict(), "data": None if seen is None else seen.state_dict()}
    own["ledger"] = state_of_ledger(trainer.engine)
    if topology.splits():
        from etude_libai.live.split import random

        own["data_rng"] = random.data_state()
    parts = dist.all_gather(own) if gather else [own]
    ranks = range(len(parts)) if gather else [topology.get_rank()]
    storage = getattr(trainer, "storage", None)
    sizes = topology.get_dist_util().sizes
    return {
        "iter": trainer.iter,
        "ranks": dict(zip(map(str, ranks), parts, strict=True)),
        "sizes": {"data": sizes.data, "tensor": sizes.tensor, "pipeline": sizes.pipeline},
        "storage": storage.state_dict() if storage is not None else None,
        "unfinished": _unfinished(trainer),
        "hooks": {name: hook.state_dict() for name, hook in remembering(trainer, hooks)},
    }


def take_up(trainer: Any) -> None:
    """Restore recorded values and generators right before the first step of a resumed run.

    The checkpoint was written before the evaluation and the log line of its iteration, so these hooks act first.
    """
    state, trainer._left_off = trainer._left_off, None
    trainer._only_finishes = trainer.iter >= trainer.max_iter
    if state.get("storage") is not None:
        trainer.storage.load_state_dict(state["storage"])
    own = own_part(state)
    if own is None:
        logging.getLogger(trainer.logger_name).warning(
            "the checkpoint does not hold the random generators of this process: they start again from the seed"
        )
    else:
        Snapshot.of(own["rng"]).restore()
        trainer.engine.history_state = own.get("ledger")
        if topology.splits() and own.get("data_rng") is not None:
            from etude_libai.live.split import random

            random.restore_data_state(own["data_rng"])
    following, trainer.iter = trainer.iter, trainer.iter - 1
    trainer.storage.iter = trainer.iter
    for number in range(_first_due(trainer, state.get("unfinished", ())), len(trainer._hooks)):
        trainer._acting = number  # a checkpoint that is written now knows who has still to act, too
        trainer._hooks[number]._finish_step()
    trainer._acting = None
    trainer.iter = trainer.storage.iter = following


def _first_due(trainer: Any, unfinished: Iterable[str]) -> int:
    """Return the index of the first hook that has to finish the checkpoint's iteration; the later ones have to, too."""
    left, number = Counter(unfinished), len(trainer._hooks)
    while number and left[name := type(trainer._hooks[number - 1]).__qualname__]:
        left[name] -= 1
        number -= 1
    return number


def own_part(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the part of this process in a checkpoint, or of one that drew the same data; None if there was none."""
    ranks, sizes = state.get("ranks", {}), topology.get_dist_util().sizes
    rank, saved = topology.get_rank(), state.get("sizes") or {}
    if saved and sizes.data == saved["data"]:
        rank = sizes.share(rank) * saved["tensor"] if (sizes.tensor, sizes.pipeline) != _other(saved) else rank
    found: Mapping[str, Any] | None = ranks.get(str(rank))
    return found


def _other(saved: Mapping[str, int]) -> tuple[int, int]:
    return saved["tensor"], saved["pipeline"]


def restore_hooks(trainer: Any, memories: Mapping[str, Any]) -> None:
    for name, hook in remembering(trainer):
        if name in memories:
            hook.load_state_dict(memories[name])


def remembering(trainer: Any, kinds: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the hooks with a state (of ``kinds``) by class name. A second hook of a class is called ``Name#2``."""
    found = [hook for hook in trainer._hooks if is_part(hook) and (kinds is None or kinds(hook))]
    yield from zip(numbered(type(hook).__name__ for hook in found), found, strict=True)


def _unfinished(trainer: Any) -> list[str]:
    """Return the hooks that have not finished this iteration; the first of them is acting now."""
    acting = getattr(trainer, "_acting", None)
    return [] if acting is None else [type(hook).__qualname__ for hook in trainer._hooks[acting:]]
