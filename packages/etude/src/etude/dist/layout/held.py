"""Says what each rank of a mesh holds, before anything is split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from etude.dist.layout.mesh import AXES, Mesh
from etude.plan import Parallel, Pipeline

_MOST = 16
_WORDS = {
    "pipeline": "stage", "copy": "samples", "shard": "samples and shard", "context": "part of sequences",
    "tensor": "pieces of weights",
}  # fmt: skip


def drawn(model: nn.Module, parallel: Parallel, processes: int, *, local: int) -> list[str]:
    """Return lines that draw the mesh: the size of each axis, then what each rank holds of the parameters."""
    sizes = parallel.sizes(processes, local=local)
    used = [f"{axis} {sizes[axis]}" for axis in AXES if sizes[axis] > 1]
    lines = [f"{'mesh':<10} {processes} processes: {' × '.join(used)}"]
    whole = sum(param.numel() for param in model.parameters())
    stages = _stages(model, parallel)
    splits = _splits(model, parallel)
    for rank in range(min(processes, _MOST)):
        mesh = Mesh(rank, **sizes)
        place = ", ".join(f"{_WORDS[axis]} {mesh.place[axis]}" for axis in AXES if sizes[axis] > 1)
        count = held(model, mesh, parallel.pipeline, stages, splits)
        lines.append(f"{'':<10} rank {rank:<3} {place}: {count:,} of {whole:,} elements")
    if processes > _MOST:
        lines.append(f"{'':<10} … {processes - _MOST} more")
    for stage, names in enumerate(stages if len(stages) > 1 else ()):
        lines.append(f"{'':<10} stage {stage}: {', '.join(names)}")
    if sizes["tensor"] > 1:
        rows = sum(word == "row" for word in _words(model, parallel).values())
        lines.append(f"{'':<10} messages of tensor: {rows} forward and as many backward in each pass, one per row")
    return lines


def held(model: nn.Module, mesh: Mesh, plan: Pipeline, stages: list[list[str]], splits: Mapping[str, int]) -> int:
    """Return how many elements of parameters a rank holds."""
    from etude.dist.layout.stages import on_rank

    own = None if len(stages) < 2 else {name for at in on_rank(mesh, plan) for name in stages[at]}
    count = 0
    for name, param in model.named_parameters():
        if own is not None and not any(name == one or name.startswith(f"{one}.") for one in own):
            continue
        shape = list(param.shape)
        if name in splits:
            shape[splits[name]] //= mesh.sizes["tensor"]
        if shape and mesh.sizes["shard"] * mesh.sizes["context"] > 1 and mesh.sizes["shard"] > 1:
            shape[0] = _piece(shape[0], mesh)
        size = 1
        for one in shape:
            size *= one
        count += size
    return count


def _piece(length: int, mesh: Mesh) -> int:
    """Return how many rows FSDP leaves to a rank, which gives full pieces to the first ones."""
    count = mesh.sizes["shard"] * mesh.sizes["context"]
    at = mesh.place["shard"] * mesh.sizes["context"] + mesh.place["context"]
    each = -(-length // count)
    return max(0, min(each, length - at * each))


def _stages(model: nn.Module, parallel: Parallel) -> list[list[str]]:
    from etude.dist.layout.stages import stages_of

    return stages_of(model, parallel.pipeline) if parallel.pipeline.size > 1 else [[]]


def _words(model: nn.Module, parallel: Parallel) -> dict[str, str]:
    from etude.dist.layout.tensor import require_dividing, words_of

    words = words_of(model, parallel.tensor)
    require_dividing(model, words, parallel.tensor)
    return words


def _splits(model: nn.Module, parallel: Parallel) -> dict[str, int]:
    """Return the dimension along which tensor parallelism splits each parameter, by its name."""
    from etude.dist.layout.tensor import splits_of

    splits: dict[str, Any] = {}
    for name, word in _words(model, parallel).items() if parallel.tensor.size > 1 else ():
        for param, dim in (splits_of(model.get_submodule(name), word) or {}).items() if word != "sequence" else ():
            splits[f"{name}.{param}"] = dim
    return splits
