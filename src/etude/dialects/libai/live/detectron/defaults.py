"""detectron2's yacs defaults, as far as the engine reads them, and the registry of models by name."""

from __future__ import annotations

import copy
from typing import Any

import torch

from etude.dialects.libai.live.detectron.nodes import CfgNode
from etude.dialects.libai.live.detectron.registry import Registry

META_ARCH_REGISTRY = Registry("META_ARCH")

_DEFAULTS: dict[str, Any] = {
    "VERSION": 2,
    "OUTPUT_DIR": "./output",
    "SEED": -1,
    "CUDNN_BENCHMARK": False,
    "FLOAT32_PRECISION": "",
    "VIS_PERIOD": 0,
    "MODEL": {"META_ARCHITECTURE": "", "WEIGHTS": "", "DEVICE": "cuda"},
    "DATASETS": {"TRAIN": (), "TEST": ()},
    "DATALOADER": {"NUM_WORKERS": 4},
    "SOLVER": {
        "LR_SCHEDULER_NAME": "WarmupMultiStepLR", "MAX_ITER": 40000, "BASE_LR": 0.001, "BASE_LR_END": 0.0,
        "MOMENTUM": 0.9, "NESTEROV": False, "WEIGHT_DECAY": 0.0001, "WEIGHT_DECAY_NORM": 0.0, "GAMMA": 0.1,
        "STEPS": (30000,), "NUM_DECAYS": 3, "WARMUP_FACTOR": 0.001, "WARMUP_ITERS": 1000, "WARMUP_METHOD": "linear",
        "RESCALE_INTERVAL": False, "CHECKPOINT_PERIOD": 5000, "IMS_PER_BATCH": 16, "REFERENCE_WORLD_SIZE": 0,
        "BIAS_LR_FACTOR": 1.0, "WEIGHT_DECAY_BIAS": None,
        "CLIP_GRADIENTS": {"ENABLED": False, "CLIP_TYPE": "value", "CLIP_VALUE": 1.0, "NORM_TYPE": 2.0},
        "AMP": {"ENABLED": False},
    },
    "TEST": {"EXPECTED_RESULTS": [], "EVAL_PERIOD": 0, "PRECISE_BN": {"ENABLED": False, "NUM_ITER": 200}},
}  # fmt: skip


def get_cfg() -> CfgNode:
    """A copy of the default config."""
    return CfgNode(copy.deepcopy(_DEFAULTS))


#: A config that all of a process can reach; detectron2 itself advises against it.
global_cfg = CfgNode()


def set_global_cfg(cfg: CfgNode) -> None:
    """Let :data:`global_cfg` hold what ``cfg`` holds."""
    global_cfg.clear()
    global_cfg.update(cfg)


def build_model(cfg: Any) -> torch.nn.Module:
    """The model that is registered as ``cfg.MODEL.META_ARCHITECTURE``, on its device."""
    model: torch.nn.Module = META_ARCH_REGISTRY.get(cfg.MODEL.META_ARCHITECTURE)(cfg)
    device = cfg.MODEL.DEVICE
    return model.to("cpu" if str(device).startswith("cuda") and not torch.cuda.is_available() else device)
