"""A compressor together with its loss, which McQuic's trainer uses as its model.

The names of submodules are McQuic's (``module._compressor`` …), so that both can read each other's checkpoints.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from etude.dist import group
from etude_mcquic.live.data.transforms import getTraingingPostprocess


class _Inner(nn.Module):
    def __init__(self, compressor: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self._compressor, self._criterion = compressor, criterion
        self._postProcess = getTraingingPostprocess()
        self.PostProcessEnabled = True

    def forward(self, images: Tensor) -> dict[str, Any]:
        post = self._postProcess(images) if self.PostProcessEnabled else images
        outputs = named(self._compressor(post))
        rate, distortion = self._criterion(images, outputs["restored"], outputs.get("codes"), outputs.get("logits"))
        return {
            **outputs,
            "postProcessed": post,
            "rate": rate + outputs.get("commitment", 0.0),
            "distortion": distortion,
        }


class Compound(nn.Module):
    """Computes rate, distortion and the values that hooks need from a batch of images in [-1, 1]."""

    def __init__(self, compressor: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.module = _Inner(compressor, criterion)

    def forward(self, images: Tensor) -> dict[str, Any]:
        outputs: dict[str, Any] = self.module(images)
        return outputs

    @property
    def Compressor(self) -> Any:
        return self.module._compressor

    @property
    def criterion(self) -> nn.Module:
        return self.module._criterion

    @property
    def PostProcessEnabled(self) -> bool:
        """Return whether patches of the input are blackened in training."""
        return self.module.PostProcessEnabled

    @PostProcessEnabled.setter
    def PostProcessEnabled(self, enabled: bool) -> None:
        self.module.PostProcessEnabled = enabled

    def formatDistortion(self, loss: Tensor) -> Tensor:
        formatted: Tensor = self.criterion.formatDistortion(loss)  # type: ignore[operator]
        return formatted

    @torch.no_grad()
    def refresh(self, rank: int = 0) -> float:
        """Reassign unused code words and return the share that moved."""
        if hasattr(self.Compressor, "reAssignCodebook"):
            share = self.Compressor.reAssignCodebook() if rank == 0 else torch.zeros(())
            self.Compressor.syncCodebook()
            return float(share)
        share = float(self.Compressor.refresh())
        if group.is_there():  # each rank has drawn other words: take those of rank 0
            for tensor in (*self.parameters(), *self.buffers()):
                torch.distributed.broadcast(tensor, src=0)
        return share

    @property
    def CodeUsage(self) -> float:
        return float(getattr(self.Compressor, "CodeUsage", 0.0))


def named(answer: Any) -> dict[str, Any]:
    """Return the outputs of a compressor by name. McQuic's returns a tuple (restored, latent, codes, logits)."""
    if isinstance(answer, tuple):
        restored, _, codes, logits = answer
        return {"restored": restored, "codes": codes, "logits": logits}
    return {**answer, "restored": answer.get("postProcessed", answer.get("restored"))}
