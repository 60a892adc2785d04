"""How a batch becomes new parameters: forward, backward, clip, ``optimizer.step()``, ``zero_grad()``.

This is the seam where training systems differ. The native update is one small object; a dialect or a user brings
another (a GAN's, say) under a name in the ``UPDATES`` table.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from etude.core.run import Run
from etude.dist.shards import whole
from etude.errors import ConfigError, Diverged, UserCodeError, suggest
from etude.losses.outputs import as_mapping
from etude.optim.finite import Unread, takes_found_inf

_log = logging.getLogger("etude.core")
Losses = dict[str, Tensor]
#: A loss scale is read every so many updates, and below this one nothing can be learnt.
_SCALE_PERIOD, _LEAST_SCALE = 50, 1e-6
_SHOWN_IDS = 8


class Update(Protocol):
    """Takes the run and a batch, learns from it, and returns what the hooks may look at as ``run.outputs``."""

    def __call__(self, run: Run, batch: Any) -> Any: ...


@dataclass
class Forward:
    """How a batch meets the model.

    With a ``loss``: a sequence is inputs then target, a mapping has its target under one of ``target_keys``, and the
    model gets the rest. Without: the model gets the whole batch and returns its losses, a tensor or a mapping whose
    keys with ``loss`` in their name are summed.

    >>> forward = Forward(torch.nn.Identity(), {"mse": torch.nn.MSELoss()})
    >>> losses, output, target = forward((torch.zeros(2), torch.ones(2)))
    >>> losses["mse"].item(), forward({"input": torch.zeros(2), "target": torch.ones(2)})[0]["mse"].item()
    (1.0, 1.0)
    """

    model: torch.nn.Module
    losses: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    target_keys: tuple[str, ...] = ("target", "targets", "label", "labels", "y")

    def __call__(self, batch: Any) -> tuple[Losses, Any, Any]:
        """Losses by name, the model's output, and the target (None where the model keeps it to itself)."""
        if not self.losses:
            output = self._call_whole(batch)
            return named_losses(output), output, self.target(batch)
        inputs, target = self.split(batch)
        output = self.call(inputs)
        losses: Losses = {}
        name = ""
        try:
            for name, loss in self.losses.items():
                losses[name] = loss(output, target)
        except UserCodeError:
            raise  # it says itself what is wrong with the model's output
        except Exception as error:
            error.etude_loss = name, f"output {_kind(output)}, target {_kind(target)}"  # type: ignore[attr-defined]
            raise
        return losses, output, target

    def _call_whole(self, batch: Any) -> Any:
        """Without a loss the model gets everything; one that does not take it was probably meant to have a loss."""
        try:
            return self.call(batch)
        except TypeError as error:
            if takes(self.model, batch):
                raise
            raise UserCodeError(
                f"no `loss` is named, so the model is called with the whole batch ({_describe(batch)}) and returns its "
                f"losses; {type(self.model).__name__} does not take it: {error}"
            ) from error

    def split(self, batch: Any) -> tuple[Any, Any]:
        if isinstance(batch, Mapping):
            key = next((key for key in self.target_keys if key in batch), None)
            if key is not None:
                return {name: value for name, value in batch.items() if name != key}, batch[key]
        elif isinstance(batch, Sequence) and len(batch) >= 2:
            return batch[:-1], batch[-1]
        raise UserCodeError(
            f"a loss needs batches of (inputs, target) or a mapping with one of {', '.join(self.target_keys)}; "
            f"this batch is {_describe(batch)}"
        )

    def target(self, batch: Any) -> Any:
        if isinstance(batch, Mapping):
            return next((batch[key] for key in self.target_keys if key in batch), None)
        return batch[-1] if isinstance(batch, Sequence) and len(batch) >= 2 else None

    def call(self, inputs: Any) -> Any:
        """The model's answer to inputs: a sequence as arguments, a mapping as keywords."""
        if isinstance(inputs, Mapping):
            return self.model(**inputs)
        if isinstance(inputs, list | tuple):
            return self.model(*inputs)
        return self.model(inputs)


def takes(model: torch.nn.Module, inputs: Any, **settings: Any) -> bool:
    """Return whether ``model.forward`` can be called with ``inputs`` as :meth:`Forward.call` does."""
    plain = getattr(model, "module", model)
    positional = inputs if isinstance(inputs, list | tuple) else () if isinstance(inputs, Mapping) else (inputs,)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    try:
        inspect.signature(plain.forward).bind(*positional, **named, **settings)
    except TypeError:
        return False
    except ValueError:  # one that is written in C has no signature
        return True
    return True


def named_losses(output: Any) -> Losses:
    """What a model without a separate loss returned, as losses by name."""
    if isinstance(output, Tensor) and output.ndim == 0:
        return {"loss": output}
    named = as_mapping(output)
    if named is not None:
        losses = {key: _mean(value) for key, value in named.items() if "loss" in key and value is not None}
        if losses:
            return losses
    raise UserCodeError(
        "the model returned no loss: name one under `loss`, or return a scalar tensor or a mapping with a key "
        f"that contains 'loss'; it returned {_describe(output)}"
    )


class Step:
    """The native update: forward, backward and, every ``accumulate`` steps, new parameters.

    The last group of a run may be smaller than ``accumulate``; its gradients are averaged over what it has. A loss
    that is not finite never reaches the parameters: ``stop`` raises :class:`~etude.errors.Diverged`, ``skip`` drops
    the group and goes on, ``rollback`` goes back to the newest checkpoint and past this batch, both at most
    ``nonfinite_limit`` times in a row.

    On an accelerator, fused optimizers get a flag on the device (see :class:`~etude.optim.finite.Unread`), and the run
    learns of it with the next log line or save; elsewhere each loss is read before it is learnt from.
    """

    def __init__(
        self,
        forward: Forward,
        optimizers: Mapping[str, torch.optim.Optimizer],
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        precision: str = "fp32",
        nonfinite: str = "stop",
        nonfinite_limit: int = 3,
        device: torch.device | str = "cpu",
    ) -> None:
        self.forward, self.optimizers = forward, list(optimizers.values())
        self._named, self._parts = dict(optimizers), dict[str, Step]()
        self._name, self._inputs = "", list[torch.nn.Parameter]()
        self._settings: dict[str, Any] = {
            "accumulate": accumulate, "clip_norm": clip_norm, "clip_value": clip_value, "precision": precision,
            "nonfinite": nonfinite, "nonfinite_limit": nonfinite_limit, "device": device,
        }  # fmt: skip
        self.accumulate, self.clip_norm, self.clip_value = accumulate, clip_norm, clip_value
        self.nonfinite, self.nonfinite_limit = nonfinite, nonfinite_limit
        self.device = torch.device(device)
        self.precision = precision
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=precision == "fp16")
        self.params = [p for opt in self.optimizers for group in opt.param_groups for p in group["params"]]
        self._searching = [opt for opt in self.optimizers if _needs_closure(opt)]
        self.pending = 0
        self.bad = self._scaled = 0
        self._peeks = sees_memory(self.device)
        self._unread = self._deferred()

    def __call__(self, run: Run, batch: Any) -> dict[str, Any]:
        if run.peers is not None:
            run.peers.sync(self.pending + 1 >= self._group_size(run))
        try:
            with self.autocast():
                losses, output, target = self.forward(batch)
        except Exception as error:
            error.etude_where = where_of(error, run, batch)  # type: ignore[attr-defined]
            raise
        total = _sum(losses)
        run.outputs = {"losses": losses, "loss": total, "output": output, "target": target}
        if run.hooks.after_forward:
            run.hooks.after_forward(run)
        self._learn(run, losses, total)
        return run.outputs  # type: ignore[no-any-return]

    def learn(self, run: Run, loss: Tensor | Losses) -> None:
        """Backward and, when a group of ``accumulate`` steps is complete, clip and step: for an update of your own.

        Call it once per step, with the loss that was computed under :meth:`autocast`.
        """
        losses = {"loss": loss} if isinstance(loss, Tensor) else loss
        self._learn(run, losses, _sum(losses))

    def only(self, name: str) -> Step:
        """Return the same for one optimizer of several; its ``learn`` gives gradients to that one's parameters alone.

        A GAN calls ``step.only("generator").learn(run, loss)`` and then the same for its discriminator.
        """
        if name not in self._named:
            raise ConfigError(f"no optimizer is called {name!r}", hint=suggest(name, self._named))
        if name not in self._parts:
            part = Step(self.forward, {name: self._named[name]}, **self._settings)
            part._name, part._inputs = name, part.params
            self._parts[name] = part
        return self._parts[name]

    def _learn(self, run: Run, losses: Losses, total: Tensor) -> None:
        if total.ndim:
            raise UserCodeError(_not_a_number(run, losses))
        group, unread = self._group_size(run), run.peers is None and self._unread is not None
        if self._unread is not None and unread:
            self._unread.look(total)
        bad = not unread and not self.is_finite(total)
        if run.peers is None and not bad:
            self.backward(total if group == 1 else total / group)
        elif run.peers is None or not self._backward_together(run, total, group, bad):
            self._refuse(run, losses)
            return
        self.pending += 1
        self._record(run, losses, total)
        if self.pending >= group:
            self.apply(run)

    def autocast(self) -> AbstractContextManager[Any]:
        """The numbers that the forward pass is done in."""
        if self.precision == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=dtype)

    def backward(self, loss: Tensor) -> None:
        if self.scaler.is_enabled():
            loss = self.scaler.scale(loss)
        loss.backward(inputs=self._inputs or None)  # type: ignore[no-untyped-call]

    def _backward_together(self, run: Run, total: Tensor, group: int, bad: bool) -> bool:
        """The backward pass of one rank of several; whether the losses of all of them are finite is known after it.

        A rank's loss counts as much as its share of the batch, so that the mean over ranks is that over samples.
        """
        weight = weight_of(run)
        run.peers.ask(run.step, bad=bad)
        self.backward(total if weight == group == 1 else total * (weight / group))
        run.peers.settle()
        return not run.peers.bad

    def apply(self, run: Run) -> None:
        """Clip, let hooks look, step, and forget the gradients."""
        scaled = self.scaler.is_enabled()
        if run.peers is not None and run.peers.by_hand:
            run.peers.average(self.params)
        if scaled:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        if self.clip_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.params, self.clip_norm)
            run.events.put("grad_norm", norm if run.peers is None else whole(norm))
        if self.clip_value is not None:
            if self.clip_norm is None:
                grads = [param.grad for param in self.params if param.grad is not None]
                run.events.put("grad_norm", whole(torch.nn.utils.get_total_norm(grads)))
            torch.nn.utils.clip_grad_value_(self.params, self.clip_value)
        if run.hooks.before_update:
            run.hooks.before_update(run)
        for optimizer in self.optimizers:
            if scaled:
                self.scaler.step(optimizer)
            elif optimizer in self._searching:
                optimizer.step(self._again(run, optimizer))  # type: ignore[arg-type]
            else:
                optimizer.step()
            optimizer.zero_grad()
        if scaled:
            self.scaler.update()
            self._check_scale(run)
        self.pending = 0
        if self._unread is None:
            self.bad = 0

    def _deferred(self) -> Unread | None:
        """Where losses need not be read at every step; None where they are."""
        if self._peeks or self.scaler.is_enabled():
            return None
        able = all(takes_found_inf(optimizer) for optimizer in self.optimizers)
        if able and self.accumulate == 1 and self.nonfinite != "rollback":
            return Unread(self.optimizers, self.device, lasting=self.nonfinite == "stop")
        reason = "accumulates" if self.accumulate > 1 else "may roll back" if able else "has an optimizer not fused"
        _log.info("the loss is read at every step, which waits for the device: this run %s", reason)
        return None

    def settle(self, run: Run) -> None:
        """Let Python know of losses that only the device has looked at: before a log line or a save, at the end."""
        if self._unread is None:
            return
        self.bad, longest = self._unread.read()
        if not longest:
            return
        if self.nonfinite == "stop":
            raise Diverged(f"the loss is not finite at step {run.done - self.bad + 1}; {_last_good(run)}")
        run.events.put("nonfinite", 1.0)
        if longest > self.nonfinite_limit:
            raise Diverged(f"the loss is not finite at step {run.done}, {longest} times in a row; {_last_good(run)}")

    def _check_scale(self, run: Run) -> None:
        """Every so often, for it reads the device: a scale that keeps falling means that every step is skipped."""
        self._scaled += 1
        if self._scaled % _SCALE_PERIOD == 0 and (scale := self.scaler.get_scale()) < _LEAST_SCALE:
            raise Diverged(
                f"the loss scale has fallen to {scale:.1e} at step {run.step + 1}: "
                f"the gradients overflow at every step; {_last_good(run)}"
            )

    def _again(self, run: Run, optimizer: torch.optim.Optimizer) -> Callable[[], Tensor]:
        """The loss of this batch at other parameters, with gradients, for optimizers that search (LBFGS)."""

        def evaluate() -> Tensor:
            optimizer.zero_grad()
            with self.autocast():
                losses, _, _ = self.forward(run.batch)
            total = _sum(losses)
            total.backward()  # type: ignore[no-untyped-call]
            return total

        return evaluate

    def is_finite(self, loss: Tensor) -> bool:
        """Whether the loss is a number. Memory of the CPU is looked at directly: that is no read of a device."""
        if self._peeks:
            return math.isfinite(loss.detach().numpy()) if loss.dtype != torch.bfloat16 else bool(loss.isfinite())
        return bool(loss.isfinite())

    def _group_size(self, run: Run) -> int:
        if self.accumulate == 1:
            return 1
        first = run.step - self.pending
        left = self.accumulate if run.total_steps is None else run.total_steps - first
        return max(1, min(self.accumulate, left))

    def _record(self, run: Run, losses: Losses, total: Tensor) -> None:
        weight = 1.0 if run.peers is None else weight_of(run)
        name = f"loss/{self._name}" if self._name else "loss"
        run.events.put(name, total.detach() if weight == 1 else total.detach() * weight)
        if len(losses) > 1:
            for name, value in losses.items():
                run.events.put(f"loss/{name}", value.detach() if weight == 1 else value.detach() * weight)

    def _refuse(self, run: Run, losses: Losses) -> None:
        values = ", ".join(f"{name} {float(value.detach())}" for name, value in losses.items())
        values = f"({values}){_batch_ids(run)}"
        if run.peers is not None:
            values = run.peers.from_bad_ranks(values, not self.is_finite(_sum(losses)))
        self.bad += 1
        self.pending = 0
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        run.events.put("nonfinite", 1.0)
        if self.nonfinite == "stop" or self.bad > self.nonfinite_limit:
            where = _last_good(run)
            times = "" if self.nonfinite == "stop" else f", {self.bad} times in a row"
            raise Diverged(f"the loss is not finite at step {run.step + 1} {values}{times}; {where}")
        if self.nonfinite == "rollback" and run.store is not None:
            run.store.rollback(run)

    def state_dict(self) -> dict[str, Any]:
        """Scaler, and the gradients of a group that is not complete."""
        state: dict[str, Any] = {"pending": self.pending, "bad": self.bad, "scaler": self.scaler.state_dict()}
        if self.pending:
            state["grads"] = {str(i): p.grad for i, p in enumerate(self.params) if p.grad is not None}
        if self._parts:
            state["parts"] = {name: part.state_dict() for name, part in self._parts.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pending, self.bad = int(state["pending"]), int(state["bad"])
        if self._unread is not None:
            self._unread.set_row(self.bad)
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(dict(state["scaler"]))
        for index, grad in state.get("grads", {}).items():
            param = self.params[int(index)]
            param.grad = grad.to(param.device).clone()
        for name, own in state.get("parts", {}).items():
            self.only(name).load_state_dict(own)


def _not_a_number(run: Run, losses: Losses) -> str:
    """Which loss gave more than one number, and where the config asks for it."""
    name, value = next((name, value) for name, value in losses.items() if value.ndim)
    return (
        f"{_place_of_loss(run, name)}the loss {name} gives a tensor of shape {tuple(value.shape)}, not one number; "
        "let it return a mean (`reduction: mean`)"
    )


def settle(run: Run) -> None:
    """What an update has put off to the next log line or save."""
    own = getattr(run.update, "settle", None)
    if own is not None:
        own(run)


def sees_memory(device: torch.device) -> bool:
    """Whether Python can look at tensors of ``device`` without waiting for it."""
    return device.type == "cpu"


def weight_of(run: Run) -> float:
    """What the samples of this rank's batch count against those of the other ranks'."""
    return float(getattr(run.data.get("train"), "weight", 1.0))


def _last_good(run: Run) -> str:
    good = getattr(run.store, "newest", None)
    return f"last good checkpoint: {good()}" if good and good() else "no checkpoint was saved yet"


def _batch_ids(run: Run) -> str:
    """Which samples made up the batch, as far as its loader can say."""
    ask = getattr(run.data.get("train"), "sample_ids", None)
    ids = ask() if ask is not None else []
    shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (", …" if len(ids) > _SHOWN_IDS else "")
    return f", batch ids {shown}" if ids else ""


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _sum(losses: Losses) -> Tensor:
    values = iter(losses.values())
    total = next(values)
    for value in values:
        total = total + value
    return total


def _mean(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.ndim == 0 else value.mean()
    if isinstance(value, Sequence) and all(isinstance(item, Tensor) for item in value):
        return _sum({str(index): _mean(item) for index, item in enumerate(value)})
    raise UserCodeError(f"a loss must be a tensor or a list of tensors, not {_describe(value)}")


def where_of(error: BaseException, run: Run, batch: Any) -> str:
    """Return what failed in a forward pass, and where the config names it: a loss, or the model."""
    if hasattr(error, "etude_loss"):
        name, given = error.etude_loss
        return f"{_place_of_loss(run, name)}loss {name}, step {run.step + 1}, {given}"
    at = f"{run.plan.model.at}: " if run.plan is not None and run.plan.model.at.file else ""
    return f"{at}model {type(run.model).__name__}, step {run.step + 1}, {_shapes(batch)}"


def _place_of_loss(run: Run, name: str) -> str:
    specs = run.plan.losses if run.plan is not None else ()
    return next((f"{spec.at}: " for spec in specs if spec.name.rpartition(".")[2] == name.partition("#")[0]), "")


def _kind(value: Any) -> str:
    """``(64, 10) float32``"""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return _describe(value)


def _shapes(batch: Any) -> str:
    """``batch of (64, 1, 8, 8) and (64,)``"""
    named = (
        batch.items()
        if isinstance(batch, Mapping)
        else [("", part) for part in batch]
        if _is_list(batch)
        else [("", batch)]
    )
    words = [f"{name} {tuple(part.shape)}".strip() for name, part in named if isinstance(part, Tensor)]
    return f"batch of {' and '.join(words) or type(batch).__name__}"


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {', '.join(map(str, value)) or 'none'}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
