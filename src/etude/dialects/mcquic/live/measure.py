"""``etude test``: the weights of a McQuic checkpoint on the images of ``valSet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from etude.checkpoint.state import check_weights
from etude.dialects.mcquic.config import Config
from etude.dialects.mcquic.files import Saver
from etude.dialects.mcquic.live.build import compound, device_of, import_parts, validator
from etude.dialects.mcquic.live.model.models import find_model, join_alone
from etude.errors import ResumeError
from etude.plan import Plan

if TYPE_CHECKING:
    from etude.build import Options


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> dict[str, float]:
    """Return the means over all images: PSNR and MS-SSIM in decibel, bits per pixel, and a target of your own."""
    config = Config.deserialize(dict(plan.source))
    import_parts(plan, config)
    state = Saver.load(checkpoint, trust=options.trust).get("trainer", {}).get("_model")
    if state is None:
        raise ResumeError(f"{checkpoint} is no checkpoint of McQuic: it has no trainer with a _model")
    make = find_model(config.Model.Key, at=str(plan.model.at))
    alone = join_alone(make)
    try:
        model = compound(plan, config, make).to(device_of()).eval()
        check_weights(model, state)
        model.load_state_dict(state)
        train = config.Train
        images = validator(plan, split, train.ValSet if split == "val" else train.TrainSet)
        return images.means(model, train.Target)[0]
    finally:
        if alone:
            torch.distributed.destroy_process_group()
