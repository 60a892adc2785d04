"""Running a model over a data loader: ``model(return_loss=False, **batch)``, results in one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from etude.dialects.mmcv1.live.utils.dist import get_dist_info


@torch.no_grad()
def single_gpu_test(model: torch.nn.Module, data_loader: Any) -> list[Any]:
    """Return the results of every batch; the model is left in eval mode, as mmcv does."""
    model.eval()
    results: list[Any] = []
    for batch in data_loader:
        results.extend(model(return_loss=False, **batch))
    return results


def multi_gpu_test(
    model: torch.nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> list[Any] | None:
    """Test this rank's share. The first rank returns all results in the order of the data set, the others None."""
    part = single_gpu_test(model, data_loader)
    return collect_results(part, len(data_loader.dataset))


def collect_results(part: list[Any], size: int) -> list[Any] | None:
    """Interleave the parts of all ranks, cut to ``size`` (samplers pad the last round)."""
    rank, world_size = get_dist_info()
    if world_size == 1:
        return part[:size]
    parts: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(part, parts)
    if parts is None:
        return None
    return interleave(parts)[:size]


def interleave(parts: Iterable[list[Any]]) -> list[Any]:
    """First of each, second of each, …: how a distributed sampler had dealt the samples out."""
    return [result for together in zip(*parts, strict=True) for result in together]


def collect_results_cpu(result_part: list[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    return collect_results(result_part, size)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    return collect_results(result_part, size)
