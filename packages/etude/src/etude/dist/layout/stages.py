"""Deals the layers of a model out to the stages of a pipeline, by names.

.. code-block:: text

    [[tok_embeddings, layers.0-1], [layers.2-3, norm, output]]

A stage is the model itself without the modules of the others: those of lists and dictionaries are taken out, the others
become None, and ``forward`` passes them by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from etude.dist.layout.mesh import Mesh
from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.plan import Pipeline
from etude.units import counted

#: Modules whose items are dealt out one by one.
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_RANGE = re.compile(r"(.*?)(\d+)-(\d+)$")
#: What the first and the last stage do besides blocks counts as so many blocks, when layers are dealt out evenly.
_ENDS = 1


def stages_of(model: nn.Module, plan: Pipeline) -> list[list[str]]:
    """Return the names of the modules of each stage. Every module with parameters belongs to one of them."""
    units = units_of(model)
    if not plan.stages:
        return _even(model, units, plan)
    at = str(plan.places.get("stages", plan.at))
    stages = [[one for name in names for one in _expanded(name, units, at)] for names in plan.stages]
    seen: dict[str, int] = {}
    for number, names in enumerate(stages):
        for name in names:
            if name in seen:
                raise ConfigError(f"parallel.pipeline.stages: {name} is in stages {seen[name]} and {number}", at=at)
            seen[name] = number
    missing = [name for name in units if name not in seen]
    if missing:
        raise ConfigError(
            f"parallel.pipeline.stages: no stage holds {', '.join(missing[:6])}", at=at, hint="add it to one of them"
        )
    return stages


def units_of(model: nn.Module) -> list[str]:
    """Return the modules that are dealt out: those directly in the model, and of lists and dictionaries their items.

    Parameters directly in the model belong to no stage."""
    own = [name for name, _ in model.named_parameters(recurse=False)]
    if own:
        raise ConfigError(
            f"parallel.pipeline: the parameter {own[0]} of the model is in none of its modules: no stage would hold it",
            hint="put it into a module (an nn.Embedding for positions)",
        )
    units = []
    for name, module in model.named_children():
        if isinstance(module, CONTAINERS):
            units += [f"{name}.{key}" for key in module._modules]
        # A dropout acts in one stage alone; what a project makes without parameters, as tables, is used in all of them.
        elif any(True for _ in module.parameters()) or type(module).__module__.startswith("torch.nn."):
            units.append(name)
    return units


def _expanded(name: str, units: Sequence[str], at: str) -> list[str]:
    """Return the units that a name means: itself, all items of a list, or ``layers.0-3``."""
    if name in units:
        return [name]
    match = _RANGE.match(name)
    if match:
        names = [f"{match[1]}{number}" for number in range(int(match[2]), int(match[3]) + 1)]
        if names and all(one in units for one in names):
            return names
    below = [one for one in units if one.startswith(f"{name}.")]
    if not below:
        raise ConfigError(
            f"parallel.pipeline.stages: the model has no {name!r}", at=at,
            hint=suggest(name, dict.fromkeys([*units, *(one.partition(".")[0] for one in units)])),
        )  # fmt: skip
    return below


def _even(model: nn.Module, units: Sequence[str], plan: Pipeline) -> list[list[str]]:
    """Deal out the longest list of blocks evenly, and what is before and after it to the first and the last stage."""
    lists: dict[str, list[str]] = {}
    for name in units:
        owner, _, _ = name.rpartition(".")
        lists.setdefault(owner, []).append(name)
    if not isinstance(model, nn.Sequential):
        lists.pop("", None)
    if not lists:
        raise ConfigError(
            f"parallel.pipeline: {type(model).__name__} has no list of layers to deal out", at=str(plan.at),
            hint="name the modules of each stage: stages: [[first, second], [third]]",
        )  # fmt: skip
    owner, blocks = max(lists.items(), key=lambda item: len(item[1]))
    if len(blocks) < plan.count:
        raise ConfigError(
            f"parallel.pipeline: {plan.count} stages for {counted(len(blocks), 'layer')} "
            f"({owner or type(model).__name__})",
            at=str(plan.at), hint=f"size: {max(1, len(blocks) // plan.held)} would fit" if len(blocks) > 1 else "",
        )  # fmt: skip
    first, last = units.index(blocks[0]), units.index(blocks[-1])
    each, rest = divmod(len(blocks), plan.count)
    stages, begin = [], 0
    for number in range(plan.count):
        # The first and the last stage have more to do than blocks alone, so the others get what is left over.
        end = begin + each + (plan.count - rest - _ENDS <= number < plan.count - _ENDS)
        stages.append(list(blocks[begin:end]))
        begin = end
    stages[0] = [*units[:first], *stages[0]]
    stages[-1] = [*stages[-1], *units[last + 1 :]]
    return stages


def on_rank(mesh: Mesh, plan: Pipeline) -> list[int]:
    """Return the stages that a rank holds: one, or one from the front and one more."""
    at = mesh.place["pipeline"]
    return [at, plan.count - 1 - at] if plan.is_vee else list(range(at, plan.count, plan.size))
