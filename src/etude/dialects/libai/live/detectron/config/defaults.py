"""detectron2's default config, and the registry of models by name."""

from __future__ import annotations

import copy
from typing import Any

import torch

from etude.dialects.libai.live.detectron.config.default_values import DEFAULTS
from etude.dialects.libai.live.detectron.config.nodes import CfgNode
from etude.dialects.libai.live.detectron.config.registry import Registry
from etude.dialects.libai.live.detectron.config.user_errors import about
from etude.errors import OutOfScope

META_ARCH_REGISTRY = Registry("META_ARCH")
_DETECTION = ("GeneralizedRCNN", "PanopticFPN", "ProposalNetwork", "RetinaNet", "SemanticSegmentor", "FCOS")


#: The default config itself, which code that adds keys for everybody changes.
DEFAULT_CONFIG = CfgNode(copy.deepcopy(DEFAULTS))


def get_cfg() -> CfgNode:
    """A copy of the default config."""
    made = DEFAULT_CONFIG.clone()
    assert isinstance(made, CfgNode)
    return made


#: A config that all of a process can reach; detectron2 itself advises against it.
global_cfg = CfgNode()


def set_global_cfg(cfg: CfgNode) -> None:
    """Let :data:`global_cfg` hold what ``cfg`` holds."""
    global_cfg.clear()
    global_cfg.update(cfg)


def build_model(cfg: Any) -> torch.nn.Module:
    """The model that is registered as ``cfg.MODEL.META_ARCHITECTURE``, on its device."""
    name = cfg.MODEL.META_ARCHITECTURE
    if name in _DETECTION and name not in META_ARCH_REGISTRY:
        raise OutOfScope(
            f"MODEL.META_ARCHITECTURE: {name} is out of Étude's scope: detection models are not part of the engine; "
            "register a model of your own with @META_ARCH_REGISTRY.register() and name it here"
        )
    model: torch.nn.Module = META_ARCH_REGISTRY.get(name)(cfg)
    device = str(cfg.MODEL.DEVICE)
    with about("MODEL.DEVICE", hint="such as cpu, cuda or cuda:1"):
        return model.to("cpu" if device.startswith("cuda") and not torch.cuda.is_available() else device)
