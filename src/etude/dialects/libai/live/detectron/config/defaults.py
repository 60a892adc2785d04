"""detectron2's default config (``get_cfg``)."""

from __future__ import annotations

import ast
import os
from typing import Any

import yaml

from etude.dialects.libai.live.detectron.config.nodes import CfgNode
from etude.dialects.libai.places import CONFIGS


def _read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return _with_tuples(yaml.safe_load(file))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_tuples(item) for item in value]
    return ast.literal_eval(value) if isinstance(value, str) and value.startswith("(") else value


#: The default config itself, which code that adds keys for everybody changes.
DEFAULT_CONFIG = CfgNode(_read(os.path.join(CONFIGS, "detectron2", "defaults.yaml")))


def get_cfg() -> Any:
    """Return a copy of the default config."""
    return DEFAULT_CONFIG.clone()


#: A config that all of a process can reach; detectron2 itself advises against it.
global_cfg = CfgNode()


def set_global_cfg(cfg: CfgNode) -> None:
    """Let :data:`global_cfg` hold what ``cfg`` holds."""
    global_cfg.clear()
    global_cfg.update(cfg)
