"""MMTracking's evaluation hooks, which run a tracker over the frames of videos.

Results are lists by kind (``track_bboxes``, …), with an entry per frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from etude_openmm.mmcv1.live import testing
from etude_openmm.mmcv1.live.hooks import evaluation
from etude_openmm.shared.live.processes import gather_object

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: Results by kind, or one list if the model returns lists, as detectors do.
Results = dict[str, list[Any]] | list[Any]


@torch.no_grad()
def single_gpu_test(model: torch.nn.Module, data_loader: Any) -> Results:
    """Return the results of every frame. The model stays in eval mode."""
    model.eval()
    by_kind: defaultdict[str, list[Any]] = defaultdict(list)
    listed: list[Any] = []
    for batch in data_loader:
        result = model(return_loss=False, **batch)
        if not isinstance(result, Mapping):
            listed.extend(result)
            continue
        for kind, value in result.items():
            by_kind[kind].append(value)
    return dict(by_kind) if by_kind else listed


def multi_gpu_test(
    model: torch.nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> Results | None:
    """Test this rank's share. Rank 0 returns all results, the others None.

    Each rank gets whole videos, so results by kind are concatenated in order of ranks.
    """
    part = single_gpu_test(model, data_loader)
    return _joined(part) if isinstance(part, dict) else testing.collect_results(part, len(data_loader.dataset))


def _joined(part: dict[str, list[Any]]) -> dict[str, list[Any]] | None:
    parts = gather_object(part)
    if parts is None:
        return None
    joined: defaultdict[str, list[Any]] = defaultdict(list)
    for one in parts:
        for kind, values in one.items():
            joined[kind].extend(values)
    return dict(joined)


class _EveryScore(evaluation.EvalHook):
    """Saves the best checkpoint for a score of 0, too, as MMTracking does; mmcv ignores it."""

    def _take(self, runner: BaseRunner, results: Any) -> None:
        runner.log_buffer.output["eval_iter_num"] = len(self.dataloader)
        score = self.evaluate(runner, results)
        if self.save_best and score is not None:
            self._save_ckpt(runner, score)


class EvalHook(_EveryScore):
    """MMTracking's evaluation hook for one process."""

    usual_test = staticmethod(single_gpu_test)


class DistEvalHook(_EveryScore, evaluation.DistEvalHook):
    """MMTracking's evaluation hook for several processes."""

    usual_test = staticmethod(multi_gpu_test)
