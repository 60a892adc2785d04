"""Runs a model in stages, by ``torch.distributed.pipelining``: a process holds one stage or two, and every batch
passes through all of them in parts.

.. code-block:: text

    cut       a stage is the model without the modules of the others, which are None there
    train     torch's schedule: forward and backward passes of all parts; the last stage computes the loss
    forward   an evaluation: the whole batch, from stage to stage
"""

from __future__ import annotations

import copy
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn

from etude import torch_private
from etude.dist import objects
from etude.dist.layout.mesh import Mesh
from etude.dist.layout.shards import like
from etude.dist.layout.stages import CONTAINERS
from etude.errors import ConfigError, EtudeError, UserCodeError
from etude.errors.own_code import is_library, is_own
from etude.plan import PIPELINE_SCHEDULES, Pipeline

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32)


def cut(model: nn.Module, stages: Sequence[Sequence[str]], own: Sequence[int]) -> list[nn.Module]:
    """Return a module for each of this rank's ``own`` stages, and take everything else out of ``model``."""
    _require_untied(model, stages)
    dealt = {name for names in stages for name in names}
    views = [_view(model, set(stages[index]), dealt) for index in own]
    kept = {name for index in own for name in stages[index]}
    for name, child in list(model.named_children()):
        if isinstance(child, CONTAINERS):
            for key in list(child._modules):
                if f"{name}.{key}" in dealt - kept:
                    del child._modules[key]
        elif name in dealt - kept:
            _take_out(model, name)
    return views


def _view(model: nn.Module, own: set[str], dealt: set[str]) -> nn.Module:
    """Return the model with the modules of one stage; these are the model's own, not copies."""
    view = copy.copy(model)
    view._modules = dict(model._modules)
    view._forward_pre_hooks, view._forward_hooks = OrderedDict(), OrderedDict()
    view._forward_pre_hooks_with_kwargs, view._forward_hooks_with_kwargs = OrderedDict(), OrderedDict()
    for name, child in model.named_children():
        if isinstance(child, CONTAINERS):
            part = copy.copy(child)
            others = {f"{name}.{key}" for key in child._modules} & (dealt - own)
            part._modules = {key: item for key, item in child._modules.items() if f"{name}.{key}" not in others}
            view._modules[name] = part
        elif name in dealt - own:
            _take_out(view, name)
    return view


def _take_out(model: nn.Module, name: str) -> None:
    if isinstance(model, CONTAINERS):  # its `forward` calls one item after the other
        del model._modules[name]
    else:
        model._modules[name] = None


def _require_untied(model: nn.Module, stages: Sequence[Sequence[str]]) -> None:
    """Refuse a parameter that modules of different stages share: each would learn a copy apart."""
    home: dict[int, tuple[int, str]] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        stage = next((n for n, own in enumerate(stages) if any(name.startswith(f"{one}.") for one in own)), 0)
        first, other = home.setdefault(id(param), (stage, name))
        if first != stage:
            raise ConfigError(
                f"parallel.pipeline: {other} and {name} are one parameter, in stages {first} and {stage}",
                hint="give each its own, or put both modules into one stage",
            )


class Pipe:
    """The stages of this rank, and how batches pass through all of them."""

    def __init__(
        self, views: Sequence[nn.Module], own: Sequence[int], plan: Pipeline, mesh: Mesh, device: torch.device
    ) -> None:
        self.views, self.own, self.plan, self.mesh, self.device = list(views), list(own), plan, mesh, device
        self.group = mesh.group("pipeline")
        self.ranks = distributed.get_process_group_ranks(self.group)
        #: Stage → which rank of the pipeline holds it.
        self.homes = [_home(stage, plan, mesh.sizes["pipeline"]) for stage in range(plan.count)]
        self.autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._schedule: Any = None
        self._losses: list[dict[str, Tensor]] = []
        self._compute: Callable[[Any, Any], dict[str, Tensor]] = lambda output, target: {}
        self._scale = 1.0
        for view, stage in zip(self.views, self.own, strict=True):
            _pass_on(view, stage, self)

    def train(
        self, inputs: Sequence[Any], target: Any, compute: Callable[[Any, Any], dict[str, Tensor]], scale: float
    ) -> dict[str, Tensor]:
        """Compute the gradients of a batch; return its losses, which the last stage sends to all others."""
        self._require_even(inputs, target)
        schedule = self._schedule = self._schedule or self._made()
        self._compute, self._scale, self._losses = compute, scale / self.plan.parts, []
        first, last = 0 in self.own, self.plan.count - 1 in self.own
        given: dict[str, Any] = {"target": target, "losses": []} if last else {}
        try:
            schedule.step(*(inputs if first else ()), **given, return_outputs=False)
        except RuntimeError as error:
            if isinstance(error.__cause__, EtudeError):  # torch tells of it in words of its own
                raise error.__cause__ from None
            raise
        # Before the first batch torch also computes a loss of nothing, to learn shapes.
        return self._sent(self._losses[-self.plan.parts :])

    def _made(self) -> Any:
        """Make torch's schedule when the first batch is there."""
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import get_schedule_class

        stages = [
            PipelineStage(view, stage, self.plan.count, self.device, group=self.group)
            for view, stage in zip(self.views, self.own, strict=True)
        ]
        kind: Any = get_schedule_class(PIPELINE_SCHEDULES[self.plan.schedule][0])
        try:
            # Each loss is scaled here: torch would scale gradients that other batches have added to.
            return kind(
                stages[0] if self.plan.held == 1 else stages, self.plan.parts, loss_fn=self._loss, scale_grads=False
            )
        except ValueError as error:
            raise ConfigError(f"parallel.pipeline: {error}", at=str(self.plan.at)) from error

    def _loss(self, output: Any, target: Any) -> Tensor:
        with self.autocast():
            losses = self._compute(output, target)
        self._losses.append({name: value.detach() for name, value in losses.items()})
        total: Tensor = sum(losses.values())  # type: ignore[assignment]
        return total * self._scale

    def _sent(self, losses: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the means of losses over all parts of a batch, on every rank of the pipeline."""
        names = list(losses[0]) if losses else []
        source = self.ranks[self.homes[-1]]
        if self._names is None:
            self._names = objects.broadcast(names, source, self.group)
        means = torch.zeros(len(self._names), device=self.device)
        if losses:
            means = torch.stack([torch.stack([one[name].float() for one in losses]).mean() for name in names])
        distributed.broadcast(means, src=source, group=self.group)
        return dict(zip(self._names, means.unbind(), strict=True))

    _names: list[str] | None = None

    def _require_even(self, inputs: Sequence[Any], target: Any) -> None:
        size = len(next(one for one in (*inputs, target) if isinstance(one, Tensor)))
        if size % self.plan.parts or (self._size and size != self._size):
            raise ConfigError(
                f"parallel.pipeline: a process's batch of {size} cannot be cut into {self.plan.parts} equal parts"
                + (f" of the same size as before, when it was {self._size}" if self._size else ""),
                at=str(self.plan.places.get("microbatches", self.plan.at)),
                hint="choose batch_size as a multiple of microbatches, and drop_last: true for an uneven last batch",
            )
        self._size = size

    _size = 0

    def forward(self, inputs: Sequence[Any]) -> Any:
        """Pass a whole batch through all stages; return the output where the last one is, None elsewhere."""
        me = self.mesh.place["pipeline"]
        held = dict(zip(self.own, self.views, strict=True))
        value: Any = tuple(inputs)
        for stage, home in enumerate(self.homes):
            if me == home:
                value = held[stage](*value) if isinstance(value, tuple) else held[stage](value)
            if stage + 1 < len(self.homes) and (there := self.homes[stage + 1]) != home:
                if me == home:
                    self._send(value, there)
                elif me == there:
                    value = self._receive(home)
        return value if me == self.homes[-1] else None

    def _send(self, value: Any, there: int) -> None:
        if not isinstance(value, Tensor):
            raise UserCodeError(f"a stage of a pipeline gives one tensor to the next, not a {type(value).__name__}")
        about = torch.zeros(10, dtype=torch.int64)
        about[: value.ndim + 2] = torch.tensor([_DTYPES.index(value.dtype), value.ndim, *value.shape])
        distributed.send(about.to(self.device), self.ranks[there], group=self.group)
        distributed.send(value.contiguous(), self.ranks[there], group=self.group)

    def _receive(self, home: int) -> Tensor:
        about = torch.zeros(10, dtype=torch.int64, device=self.device)
        distributed.recv(about, self.ranks[home], group=self.group)
        kind, ndim, *shape = about.tolist()
        value = torch.empty(shape[:ndim], dtype=_DTYPES[kind], device=self.device)
        distributed.recv(value, self.ranks[home], group=self.group)
        return value

    def shared(self, output: Any) -> Any:
        """Return the output of the last stage on every rank of the pipeline."""
        return objects.broadcast(output, self.ranks[self.homes[-1]], self.group)


def _home(stage: int, plan: Pipeline, size: int) -> int:
    """Return which rank of the pipeline holds a stage."""
    if plan.is_vee and stage >= size:
        return 2 * size - 1 - stage
    return stage % size


def _pass_on(view: nn.Module, stage: int, pipe: Pipe) -> None:
    """Let a stage compute in the run's precision, and say what to do about a module that is not there."""
    own = view.forward

    looked = False

    def forward(*args: Any, **named: Any) -> Any:
        nonlocal looked
        first, looked = not looked and view.training, looked or view.training
        try:
            with pipe.autocast(), _NoReading(stage) if first else nullcontext():
                return own(*args, **named)
        except TypeError as error:
            if "'NoneType' object" not in str(error):
                raise
            missing = ", ".join(name for name, child in view._modules.items() if child is None)
            raise UserCodeError(
                f"stage {stage} of the pipeline has no {missing}, and `forward` calls it: "
                "write x = self.NAME(x) if self.NAME is not None else x"
            ) from error

    view.forward = forward


class _NoReading(torch_private.operator_mode()):  # type: ignore[misc]
    """Refuses a stage that decides by the values of a tensor: torch first sends it memory that nothing was written to,
    to learn the shapes of outputs, and later parts of a batch, of which each may decide differently."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.stage = stage

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(op.overloadpacket) in _READING:
            frame: Any = sys._getframe(1)
            while frame is not None and (is_library(frame.f_code.co_filename) or is_own(frame.f_globals["__name__"])):
                frame = frame.f_back
            where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "forward"
            raise ConfigError(
                f"parallel.pipeline: stage {self.stage} reads values of a tensor ({where}); what it does must not "
                "depend on them, for every part of a batch goes the same way",
                hint="compute with torch.where or a mask, or use parallel.tensor",
            )
        return op(*args, **(kwargs or {}))


#: Operators that give Python values of a tensor, or shapes that depend on them.
_READING = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten._unique2")


def numbered(optimizer: torch.optim.Optimizer, held: Mapping[int, Any]) -> None:
    """Keep the parameters of ``held`` (by the whole model's) in an optimizer that was made for the whole model, and
    remember their numbers there, by which checkpoints know them."""
    number, groups, numbers = 0, [], []
    for group in optimizer.param_groups:
        whole = list(range(number, number + len(group["params"])))
        number += len(group["params"])
        kept = [(at, held[id(param)]) for at, param in zip(whole, group["params"], strict=True) if id(param) in held]
        group["params"] = [param for _, param in kept]
        numbers += [at for at, _ in kept]
        groups.append(whole)
    optimizer.etude_numbers, optimizer.etude_groups = numbers, groups  # type: ignore[attr-defined]
    optimizer.etude_part = Numbered(optimizer)  # type: ignore[attr-defined]


class Numbered:
    """The state of an optimizer that has a part of the model's parameters, by their numbers in the whole model."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        state, numbers = self.optimizer.state_dict(), self.optimizer.etude_numbers
        groups = [
            {**options, "params": whole}
            for options, whole in zip(state["param_groups"], self.optimizer.etude_groups, strict=True)
        ]
        return {
            **state,
            "state": {numbers[key]: value for key, value in state["state"].items()},
            "param_groups": groups,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # A checkpoint numbers parameters as it met them: the parameter at a position is a number here.
        order = [number for options in state["param_groups"] for number in options["params"]]
        places = {number: place for place, number in enumerate(order)}
        own = {number: index for index, number in enumerate(self.optimizer.etude_numbers)}
        params = [param for options in self.optimizer.param_groups for param in options["params"]]
        kept = {
            own[places[key]]: {word: like(value, params[own[places[key]]]) for word, value in values.items()}
            for key, values in state["state"].items() if places[key] in own
        }  # fmt: skip
        groups: list[dict[str, Any]] = []
        for options, mine in zip(state["param_groups"], self.optimizer.param_groups, strict=True):
            ways = {key: mine[key] for key in ("fused", "foreach") if key in mine}
            begin = sum(len(one["params"]) for one in groups)
            groups.append({**options, **ways, "params": list(range(begin, begin + len(mine["params"])))})
        self.optimizer.load_state_dict({**state, "state": kept, "param_groups": groups})
