"""Turns a batch into new parameters: forward, backward, clip, ``optimizer.step()``, ``zero_grad()``.

This is the seam where training systems differ. The native update is one small object; a dialect or a user brings
another (a GAN's, say) under a name in the ``UPDATES`` table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from operator import add
from typing import Any, Protocol

import torch
from torch import Tensor

from etude.core.describe import FORWARD
from etude.core.forward import Forward, Losses
from etude.core.nonfinite import guard_of
from etude.core.returned import wrong_loss
from etude.core.run import Run
from etude.core.stepping import Scaled, Searching, Stepping, needs_closure
from etude.dist.layout.shards import gradient, set_gradient, whole
from etude.errors import ConfigError, ReturnError
from etude.errors.spelling import suggest
from etude.optim.clipping import Gradients
from etude.optim.gradients import clear


class Update(Protocol):
    """Takes the run and a batch, updates the parameters, and returns ``run.outputs`` for the hooks."""

    def __call__(self, run: Run, batch: Any) -> Any: ...


class Step:
    """Runs forward, backward and, every ``accumulate`` steps, ``optimizer.step()``.

    The last group of a run may be smaller than ``accumulate``; its gradients are averaged over its own size. A loss
    that is not finite never reaches the parameters: ``stop`` raises :class:`~etude.errors.Diverged`, ``skip`` drops
    the group and continues, ``rollback`` restores the newest checkpoint and skips the batch. ``skip`` and ``rollback``
    happen at most ``nonfinite_limit`` times in a row.

    On an accelerator, fused optimizers read a flag on the device (see :class:`~etude.optim.found_inf.Unread`), and the
    run sees it at the next log line or save. Elsewhere each loss is read before it reaches the parameters.
    """

    def __init__(
        self,
        forward: Forward,
        optimizers: Mapping[str, torch.optim.Optimizer],
        *,
        accumulate: int = 1,
        clip: Sequence[Callable[[Gradients], Tensor | None]] = (),
        precision: str = "fp32",
        nonfinite: str = "stop",
        nonfinite_limit: int = 3,
        device: torch.device | str = "cpu",
    ) -> None:
        self.forward, self.optimizers = forward, list(optimizers.values())
        self.accumulate, self.clip = accumulate, list(clip)
        self.precision, self.device = precision, torch.device(device)
        groups = [group["params"] for optimizer in self.optimizers for group in optimizer.param_groups]
        self.params = [param for group in groups for param in group]
        _require_apart(optimizers)
        #: Steps since the last update.
        self.pending = 0
        #: Returns the context of the forward pass, in which torch computes in ``precision``: ``with step.autocast():``.
        self.autocast = _autocast(precision, self.device)
        self._guard = guard_of(
            self.optimizers, self.device,
            policy=nonfinite, limit=nonfinite_limit, accumulate=accumulate, precision=precision,
        )  # fmt: skip
        self._stepping = self._special()
        self._gradients = Gradients(groups, peeks=self._guard.peeks)
        # For `only`: the optimizers by name, the steps of single ones, and what these are made with.
        self._named, self._parts = dict(optimizers), dict[str, Step]()
        self._label, self._inputs = "loss", list[torch.nn.Parameter]()
        self._settings: dict[str, Any] = {
            "accumulate": accumulate, "clip": clip, "precision": precision, "nonfinite": nonfinite,
            "nonfinite_limit": nonfinite_limit, "device": device,
        }  # fmt: skip

    def __call__(self, run: Run, batch: Any) -> dict[str, Any]:
        if run.peers is not None:
            run.peers.sync(self.pending + 1 >= self._group_size(run))
        run.acting = FORWARD
        with self.autocast():
            losses, output, target = self.forward(batch)
        loss, run.acting = reduce(add, losses.values()), None
        run.outputs = {"losses": losses, "loss": loss, "output": output, "target": target}
        run.hooks.after_forward(run)
        self._learn(run, losses, loss)
        return run.outputs  # type: ignore[no-any-return]

    def learn(self, run: Run, loss: Tensor | Losses) -> None:
        """Run backward and, if a group of ``accumulate`` steps is complete, clip and step. For your own update.

        Call it once per step, with the loss that was computed inside ``with step.autocast():``.
        """
        losses = {"loss": loss} if not isinstance(loss, Mapping) else dict(loss)
        if text := wrong_loss(run, losses, given=True):
            raise ReturnError(f"step.learn: {text}")
        self._learn(run, losses, reduce(add, losses.values()))

    def only(self, name: str) -> Step:
        """Return a step for one of several optimizers. Its ``learn`` computes gradients of that one's parameters only.

        A GAN calls ``step.only("generator").learn(run, loss)`` and then the same for its discriminator.
        """
        if name not in self._named:
            raise ConfigError(f"no optimizer is called {name!r}", hint=suggest(name, self._named))
        if name not in self._parts:
            part = Step(self.forward, {name: self._named[name]}, **self._settings)
            part._label, part._inputs = f"loss/{name}", part.params
            self._parts[name] = part
        return self._parts[name]

    def _learn(self, run: Run, losses: Losses, loss: Tensor) -> None:
        if loss.ndim:
            raise ReturnError(wrong_loss(run, losses))
        size = 1 if self.accumulate == 1 else self._group_size(run)
        if not (self._backward_alone(loss, size) if run.peers is None else self._backward_together(run, loss, size)):
            self._drop(run, losses, loss)
            return
        self.pending += 1
        self._record(run, losses, loss)
        if self.pending >= size:
            self.apply(run)

    def _backward_alone(self, loss: Tensor, size: int) -> bool:
        """Compute gradients if the loss is finite, and return whether it is."""
        if not self._guard.passes(loss):
            return False
        self.backward(loss if size == 1 else loss / size)
        return True

    def _backward_together(self, run: Run, loss: Tensor, size: int) -> bool:
        """Compute gradients on one of several ranks, and return whether the losses of all ranks are finite.

        A rank's loss is weighted by its share of the batch, so that the mean over ranks is the mean over samples.
        """
        weight = weight_of(run)
        # Ask before the backward pass and read the votes after it, so that they travel with the gradients. Every
        # rank must run the backward pass, even with a bad loss: the others wait in its all-reduce.
        run.peers.ask(run.step, bad=not self._guard.is_finite(loss))
        self.backward(loss if weight == size == 1 else loss * (weight / size))
        run.peers.read_votes()
        return not run.peers.bad

    def backward(self, loss: Tensor) -> None:
        if self._stepping is not None:
            loss = self._stepping.scale(loss)
        loss.backward(inputs=self._inputs or None)  # type: ignore[no-untyped-call]

    def apply(self, run: Run) -> None:
        """Clip, call the hooks of ``before_update``, step the optimizers, and drop the gradients."""
        if run.peers is not None and self._average_or_drop(run):
            return
        run.acting = "update"
        if self._stepping is not None:
            self._stepping.unscale(self.optimizers)  # before clipping, which has to see the true norm
        if self.clip:
            run.norm = self._clip(run)
            run.events.put("grad_norm", run.norm)
        run.hooks.before_update(run)
        if self._stepping is None:
            for optimizer in self.optimizers:
                optimizer.step()
        else:
            self._stepping.step(run, self.optimizers)
        clear(self.optimizers)
        self.pending, run.acting = 0, None
        self._guard.learnt(run)

    def _average_or_drop(self, run: Run) -> bool:
        """Complete the gradients. If a replica left in between, drop them and return True."""
        if run.peers.finish is not None:
            run.peers.finish(self.params)
        if not run.peers.by_hand or run.peers.average(self.params):
            return False
        self._forget()
        run.events.put("dropped", 1.0)
        return True

    def _clip(self, run: Run) -> Tensor:
        """Clip the gradients of all optimizers together, and return their norm before clipping."""
        gradients = self._gradients
        gradients.mesh = run.place if run.place.is_split else None
        norm = None if getattr(self.clip[0], "measures", False) else gradients.norm()
        for clip in self.clip:
            before = clip(gradients)
            norm = before if norm is None else norm
        return norm if run.peers is None else whole(norm)  # type: ignore[return-value]

    def _drop(self, run: Run, losses: Losses, loss: Tensor) -> None:
        """Drop the group that contains a bad loss."""
        self._forget()
        run.loss = loss.detach()
        self._guard.refuse(run, losses, self._guard.is_finite(loss))

    def _forget(self) -> None:
        """Drop the gradients of a group."""
        self.pending = 0
        for param in self.params:
            set_gradient(param, None)

    @property
    def has_begun(self) -> bool:
        """Return whether a group of ``accumulate`` steps is incomplete, or the last loss was refused; of the steps of
        single optimizers, too."""
        return bool(self.pending or self._guard.bad or any(part.has_begun for part in self._parts.values()))

    @property
    def waits(self) -> str:
        """The reason why every step waits for the accelerator to read its loss; empty if no step waits."""
        return self._guard.waits

    def read_losses(self, run: Run) -> None:
        """Read the losses that only the device has checked. Called before a log line or a save, and at the end."""
        self._guard.read_losses(run)

    def _group_size(self, run: Run) -> int:
        """Return how many steps the current group of ``accumulate`` has. The last group of a run may be smaller."""
        first = run.step - self.pending
        left = self.accumulate if run.total_steps is None else run.total_steps - first
        return max(1, min(self.accumulate, left))

    def _record(self, run: Run, losses: Losses, loss: Tensor) -> None:
        """Record the loss and, where there are several, each of them."""
        run.loss = loss.detach()
        named = {self._label: run.loss}
        if len(losses) > 1:
            named |= {f"loss/{name}": value for name, value in losses.items()}
        for name, value in named.items():
            run.events.put(name, value.detach() if run.peers is None else value.detach() * weight_of(run))

    def _special(self) -> Stepping | None:
        """Return what steps the optimizers if they need a scaler or a closure; None if a call of ``step`` is enough."""
        if self.precision == "fp16":
            return Scaled(self.device)
        return Searching(self.forward, self.autocast) if any(map(needs_closure, self.optimizers)) else None

    def state_dict(self) -> dict[str, Any]:
        """Return the scaler's state, and the gradients of an incomplete group."""
        scaler = {} if self._stepping is None else self._stepping.state_dict()
        state: dict[str, Any] = {"pending": self.pending, "bad": self._guard.bad, "scaler": scaler}
        if self.pending:
            grads = {str(index): gradient(param) for index, param in enumerate(self.params)}
            state["grads"] = {index: grad for index, grad in grads.items() if grad is not None}
        if self._parts:
            state["parts"] = {name: part.state_dict() for name, part in self._parts.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pending = int(state["pending"])
        self._guard.load(int(state["bad"]))
        if self._stepping is not None:
            self._stepping.load_state_dict(state["scaler"])
        for index, grad in state.get("grads", {}).items():
            set_gradient(self.params[int(index)], grad)
        for name, own in state.get("parts", {}).items():
            self.only(name).load_state_dict(own)


def _require_apart(optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """Refuse a parameter that two optimizers hold: each step would move it twice."""
    owners: dict[int, str] = {}
    for name, optimizer in optimizers.items():
        for param in (param for group in optimizer.param_groups for param in group["params"]):
            first = owners.setdefault(id(param), name)
            if first != name:
                text = f"the optimizers {first!r} and {name!r} hold the same parameter, of shape {tuple(param.shape)}"
                raise ConfigError(text, hint="a step would move it twice: give each parameter to one of them")


def read_losses(run: Run) -> None:
    """Let the update do what it has deferred to the next log line or save."""
    own = getattr(run.update, "read_losses", None)
    if own is not None:
        own(run)


def weight_of(run: Run) -> float:
    """Return how much this rank's batch counts against those of the other ranks."""
    return float(getattr(run.data.get("train"), "weight", 1.0))


def _autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    if precision == "fp32":
        return nullcontext
    return partial(torch.autocast, device.type, dtype=torch.bfloat16 if precision == "bf16" else torch.float16)
