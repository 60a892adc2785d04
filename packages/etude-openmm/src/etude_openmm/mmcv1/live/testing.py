"""Runs a model over a data loader (``single_gpu_test``, ``multi_gpu_test``) and collects the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from etude_openmm.shared.live.processes import gather_object


@torch.no_grad()
def single_gpu_test(model: torch.nn.Module, data_loader: Any) -> list[Any]:
    """Return the results of ``model(return_loss=False, **batch)``. As in mmcv, the model stays in eval mode."""
    model.eval()
    results: list[Any] = []
    for batch in data_loader:
        results.extend(model(return_loss=False, **batch))
    return results


def multi_gpu_test(
    model: torch.nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> list[Any] | None:
    """Test this rank's share. Rank 0 returns all results in the order of the dataset, the others None."""
    # tmpdir and gpu_collect choose how mmcv moves the results to rank 0. Here there is one way.
    part = single_gpu_test(model, data_loader)
    return collect_results(part, len(data_loader.dataset))


def collect_results(part: list[Any], size: int) -> list[Any] | None:
    """Interleave the results of all ranks, cut to ``size``, because samplers pad the last round."""
    parts = gather_object(part)
    return None if parts is None else interleave(parts)[:size]


def interleave(parts: Iterable[list[Any]]) -> list[Any]:
    """Take one result of each rank in turn, which is how a distributed sampler deals out the samples."""
    return [result for together in zip(*parts, strict=True) for result in together]


def collect_results_cpu(result_part: list[Any], size: int, tmpdir: str | None = None) -> list[Any] | None:
    return collect_results(result_part, size)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    return collect_results(result_part, size)
