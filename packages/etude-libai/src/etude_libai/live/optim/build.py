"""LiBai's parameter groups, gradient clipping by group, and the optimizer from its config."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from etude_libai.lazy.extra import is_list_config
from etude_libai.lazy.instantiate import instantiate
from etude_libai.live import topology

Group = dict[str, Any]
Groups = list[Group]
#: Normalisation layers of LiBai and detectron2, LayerNorm first.
NORMS: tuple[type[nn.Module], ...] = (
    nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


def norm_layers() -> tuple[type[nn.Module], ...]:
    """Return the layers whose parameters get ``weight_decay_norm``.

    In a checkout of LiBai, LayerNorm is LiBai's class, and torch's does not count.
    """
    own = getattr(sys.modules.get("libai.layers"), "LayerNorm", nn.LayerNorm)
    return (own, *NORMS[1:])


def build_optimizer(cfg: Any, model: nn.Module) -> Any:
    """Return the optimizer that ``cfg`` (a lazy call whose ``params`` is one too) describes, for ``model``."""
    cfg.params.model = model
    optimizer = instantiate(cfg)
    for group in optimizer.param_groups:
        for key, value in group.items():
            if is_list_config(value):  # slow in every step, and checkpoints cannot hold it
                group[key] = tuple(value)
    if topology.splits():
        from etude_libai.live.split import updates

        updates.attach(optimizer)
    return optimizer


def get_default_optimizer_params(
    model: nn.Module,
    base_lr: float | None = None,
    weight_decay: float | None = None,
    weight_decay_norm: float | None = None,
    weight_decay_bias: float | None = None,
    clip_grad_max_norm: float | None = None,
    clip_grad_norm_type: float | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Groups:
    """Return groups with weight decay for norm layers and biases. ``overrides`` are by the last part of a name."""
    overrides = with_bias_override(overrides, {"weight_decay": weight_decay_bias})
    if clip_grad_max_norm is not None and clip_grad_max_norm < 0:
        raise ValueError(
            f"clip_grad_max_norm must be at least 0, not {clip_grad_max_norm}: gradients would change sign"
        )
    clips = clip_grad_max_norm is not None and clip_grad_norm_type is not None
    always = {"clip_grad_max_norm": clip_grad_max_norm, "clip_grad_norm_type": clip_grad_norm_type} if clips else {}
    return grouped(model, norm_layers(), base_lr, weight_decay, weight_decay_norm, overrides, always=always)


def grouped(
    model: nn.Module,
    norms: tuple[type[nn.Module], ...],
    base_lr: float | None,
    weight_decay: float | None,
    weight_decay_norm: float | None,
    overrides: Mapping[str, Mapping[str, Any]],
    *,
    always: Mapping[str, Any] | None = None,
    lr_factor_func: Callable[[str], float] | None = None,
) -> Groups:
    """Return the parameters in groups of equal options. ``lr_factor_func`` gets ``module.parameter`` names."""
    names = {module: name for name, module in model.named_modules()}
    made: Groups = []
    for module, name, parameter in own_parameters(model):
        group: Group = {"params": [parameter]}
        if base_lr is not None:
            group["lr"] = base_lr
        if weight_decay is not None:
            group["weight_decay"] = weight_decay
        group.update(always or {})
        if isinstance(module, norms) and weight_decay_norm is not None:
            group["weight_decay"] = weight_decay_norm
        if lr_factor_func is not None:
            group["lr"] *= lr_factor_func(f"{names[module]}.{name}")
        group.update(overrides.get(name, {}))
        made.append(group)
    return reduce_param_groups(made)


def with_bias_override(
    overrides: Mapping[str, Mapping[str, Any]] | None, bias: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Return a copy of the overrides with the options for biases."""
    merged = dict(overrides or {})
    said = {key: value for key, value in bias.items() if value is not None}
    if said:
        if "bias" in merged:
            raise ValueError("Conflicting overrides for 'bias'")
        merged["bias"] = said
    return merged


def clip_grad(optimizer: Any) -> Any:
    """Call ``clip_grad()`` of the optimizer if it has one, else clip by the options of its groups. Return the norm of
    the gradients before, if it was computed."""
    own = getattr(optimizer, "clip_grad", None)
    return clip_groups(optimizer) if own is None else own()


def clip_groups(optimizer: Any, *, error_if_nonfinite: bool = False) -> Any:
    """Clip the gradients of each group that has clipping options, by the norm of that group. Return the norm of the
    first such group."""
    first = None
    if topology.splits():
        from etude_libai.live.split import updates

        updates.complete(optimizer)
    for group in optimizer.param_groups:
        if "clip_grad_max_norm" in group and "clip_grad_norm_type" in group:
            norm = clip_grad_norm_(
                group["params"],
                group["clip_grad_max_norm"],
                group["clip_grad_norm_type"],
                error_if_nonfinite=error_if_nonfinite,
            )
            first = norm if first is None else first
    return first


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, **options: Any
) -> torch.Tensor:
    """Clip gradients by their norm, which is that of all processes' pieces where parameters are split."""
    if not topology.splits():
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, **options)
    from etude_libai.live.split import updates

    return updates.clip(parameters, max_norm, norm_type, error_if_nonfinite=error_if_nonfinite)


# -- expand to one group per parameter, and reduce to one group per set of options -------------------------------------


def own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield every trainable parameter once, with the first module that owns it and its name there."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                yield module, name, parameter


def expand_param_groups(groups: Groups) -> Groups:
    """Return one group per parameter. Options of later groups are added to those of earlier ones."""
    per_parameter: dict[Any, Group] = {}
    for group in groups:
        assert "params" in group
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        names = group.get("param_names", [None] * len(group["params"]))
        for parameter, name in zip(group["params"], names, strict=True):
            entry = per_parameter.setdefault(parameter, {"params": [parameter]})
            entry.update(options)
            if name is not None:
                entry["param_names"] = [name]
    return list(per_parameter.values())


def reduce_param_groups(groups: Groups) -> Groups:
    """Merge groups with the same options in the same order. Groups keep the order of their first parameter."""
    by_options: dict[tuple[tuple[str, Any], ...], Group] = {}
    for entry in expand_param_groups(groups):
        options = tuple((key, value) for key, value in entry.items() if key not in ("params", "param_names"))
        group = by_options.setdefault(options, {**dict(options), "params": []})
        group["params"].extend(entry["params"])
        if "param_names" in entry:
            group.setdefault("param_names", []).extend(entry["param_names"])
    return list(by_options.values())
