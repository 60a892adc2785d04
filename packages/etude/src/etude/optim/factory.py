"""Builds the optimizer of a plan, with its parameter groups and the fastest kernels that the parameters allow."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from etude.dist.layout.shards import is_sharded
from etude.errors import ConfigError, EtudeError, UserCodeError
from etude.errors.spelling import suggest
from etude.optim.dynamo import spare_dynamo
from etude.optim.foreach import EXACT
from etude.optim.groups import make_groups, named_parameters
from etude.plan import Optimizer as OptimizerPlan
from etude.plan import Spec
from etude.registry import OPTIMIZERS

_FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})
#: Said by the user, one of these decides how the update is computed.
_WAYS = ("fused", "foreach", "capturable", "differentiable")


def build_optimizer(plan: OptimizerPlan, model: nn.Module) -> Optimizer:
    """Build what ``plan`` asks for, over the parameters of ``model`` that are its own."""
    spec = plan.spec
    factory = OPTIMIZERS.get(spec.name, at=str(spec.at))
    spare_dynamo(factory)
    accepted = _parameters(factory)
    named = named_parameters(model, plan.params)
    if not named:
        raise ConfigError("the model has no parameters to train", at=str(spec.at))
    way = _way(accepted, spec.args, model, [entry.parameter for entry in named])
    if way.get("fused") and factory is torch.optim.SGD and is_sharded(model):
        way = {"foreach": True}  # torch's fused SGD takes no DTensors
    args = {**_lists_as_tuples(spec.args), **way}
    defaults = {name: p.default for name, p in accepted.items() if p.default is not inspect.Parameter.empty}
    groups = make_groups(named, plan.groups, defaults | args)
    optimizer = _made(Spec(kind=spec.kind, name=spec.name, args=args, at=spec.at), groups)
    _require_known_options(plan, optimizer)
    return optimizer


def without_fused(optimizer: Optimizer, model: nn.Module) -> None:
    """Let an optimizer that was made for whole parameters step those in shards: torch's fused SGD takes no DTensors."""
    for group in optimizer.param_groups:
        if isinstance(optimizer, torch.optim.SGD) and group.get("fused") and is_sharded(model):
            group["fused"], group["foreach"] = None, True


def _made(spec: Spec, groups: list[dict[str, Any]]) -> Optimizer:
    try:
        made: Optimizer = OPTIMIZERS.build(spec, groups)
    except EtudeError:
        raise
    except ValueError as error:
        raise ConfigError(f"{spec.name}: {error}", at=str(spec.at)) from error
    except Exception as error:
        raise UserCodeError(f"{spec.at}: {spec.name} raised {type(error).__name__}: {error}") from error
    return made


def _parameters(factory: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def _way(
    accepted: Mapping[str, Any], given: Mapping[str, Any], model: nn.Module, params: Sequence[nn.Parameter]
) -> dict[str, bool]:
    """Return ``fused`` if possible, else ``foreach``; nothing if the config chooses."""
    if any(given.get(way) is not None for way in _WAYS) or isinstance(given.get("lr"), torch.Tensor):
        return {}
    # The kernels take no sparse gradients, and a lazy parameter has no memory to choose one by.
    if _is_sparse(model) or any(isinstance(parameter, UninitializedParameter) for parameter in params):
        return {}
    if "fused" in accepted and _can_fuse(params):
        return {"fused": True}
    return {"foreach": True} if "foreach" in accepted else {}


def _can_fuse(params: Sequence[nn.Parameter]) -> bool:
    kinds = {parameter.device.type for parameter in params}
    if len(kinds) != 1 or not kinds <= _FUSED_DEVICES:
        return False
    if kinds == {"cpu"}:
        return all(parameter.dtype in EXACT for parameter in params)
    return all(parameter.is_floating_point() for parameter in params)


def _is_sparse(model: nn.Module) -> bool:
    return any(getattr(module, "sparse", False) is True for module in model.modules())


def _lists_as_tuples(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with lists as tuples: config files have no tuples, and torch expects ``betas`` as one."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in args.items()}


def _require_known_options(plan: OptimizerPlan, optimizer: Optimizer) -> None:
    """Refuse misspelt options here, because torch accepts any key in a group and never reads it."""
    known = [*optimizer.defaults, "name"]
    for rule in plan.groups:
        for option in rule.options:
            if option not in known:
                raise ConfigError(
                    f"{plan.spec.name} has no group option {option!r}",
                    at=str(rule.at),
                    hint=suggest(option, [*known, "lr_mult", "decay_mult"]),
                )
