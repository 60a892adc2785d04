"""From a run of McQuic to its model, its predictions, and a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from etude.checkpoint.state import check_weights
from etude.plan import Plan
from etude_mcquic.config import Config
from etude_mcquic.files import Saver
from etude_mcquic.live.build import compound, import_parts
from etude_mcquic.live.data.images import open_images, to_bytes
from etude_mcquic.live.data.transforms import getEvalTransform
from etude_mcquic.live.model.compound import named
from etude_mcquic.live.model.models import find_model, join_alone
from etude_mcquic.live.validate import measure

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.dialects.base import Answers, Inputs


def build_model(plan: Plan) -> nn.Module:
    """Return the compressor with its loss."""
    config = Config.deserialize(dict(plan.source))
    import_parts(plan, config)
    make = find_model(config.Model.Key, at=str(plan.model.at))
    join_alone(make)  # until the process ends: a codebook asks for its rank
    return compound(plan, config, make)


@torch.no_grad()
def predict(plan: Plan, options: Options, checkpoint: str, split: str, data: Path | None) -> Answers:
    """Compress and restore every picture: PSNR, MS-SSIM, bits per pixel, and the restored picture as bytes."""
    model = build_model(plan).eval()
    weights = Saver.load(checkpoint, trust=options.trust)["trainer"]["_model"]
    check_weights(model, weights)
    model.load_state_dict(weights)
    train = plan.source["train"]
    images = open_images(str(data or train["valSet" if split == "val" else "trainSet"]), transform=getEvalTransform())
    found: list[dict[str, Any]] = []
    for index in range(len(images)):
        row = measure(model.Compressor, images[index].unsqueeze(0))
        found.append({**row, "picture": to_bytes(row["picture"][0])})
    names = [str(path) for path in getattr(images, "paths", range(len(found)))]
    return names, found, [{name: value for name, value in row.items() if name != "picture"} for row in found]


class _Restored(nn.Module):
    """Gives the restored picture, without coding it."""

    def __init__(self, compressor: nn.Module) -> None:
        super().__init__()
        self.compressor = compressor

    def forward(self, images: Tensor) -> Tensor:
        restored: Tensor = named(self.compressor(images))["restored"]
        return restored


def program(plan: Plan, model: Any, shape: Sequence[int] | None) -> tuple[nn.Module, Inputs]:
    """Return the compressor, which takes pictures in [-1, 1]."""
    side = getattr(type(model.Compressor), "crop", 512)
    return _Restored(model.Compressor), ((torch.rand(4, *(shape or (3, side, side))) * 2 - 1,), {})
