"""detectron2's config node, which is fvcore's with a version, and the default config (``get_cfg``).

Files of earlier versions are read with today's names.
"""

from __future__ import annotations

import ast
import io
import logging
import os
import re
from collections.abc import Iterable
from typing import IO, Any

import yaml

from etude.dialects.libai.lazy.yacs_places import telling
from etude.dialects.libai.places import CONFIGS
from etude.errors import MissingExtra

try:
    from fvcore.common import config as fvcore
except ImportError as error:
    raise MissingExtra("fvcore", "detectron2", "a yacs config (CfgNode, get_cfg)") from error

logger = logging.getLogger("detectron2.config.config")

VERSION = 2

_PANOPTIC, _RETINANET = "MODEL.PANOPTIC_FPN", "MODEL.RETINANET"
#: What a key was called in the version before → what it is called in this one.
_RENAMED: dict[int, dict[str, str]] = {
    1: {"MODEL.RPN_HEAD.NAME": "MODEL.RPN.HEAD_NAME"},
    2: {
        "MODEL.WEIGHT": "MODEL.WEIGHTS",
        f"{_PANOPTIC}.SEMANTIC_LOSS_SCALE": "MODEL.SEM_SEG_HEAD.LOSS_WEIGHT",
        f"{_PANOPTIC}.RPN_LOSS_SCALE": "MODEL.RPN.LOSS_WEIGHT",
        f"{_PANOPTIC}.INSTANCE_LOSS_SCALE": f"{_PANOPTIC}.INSTANCE_LOSS_WEIGHT",
        f"{_PANOPTIC}.COMBINE_ON": f"{_PANOPTIC}.COMBINE.ENABLED",
        f"{_PANOPTIC}.COMBINE_OVERLAP_THRESHOLD": f"{_PANOPTIC}.COMBINE.OVERLAP_THRESH",
        f"{_PANOPTIC}.COMBINE_STUFF_AREA_LIMIT": f"{_PANOPTIC}.COMBINE.STUFF_AREA_LIMIT",
        f"{_PANOPTIC}.COMBINE_INSTANCES_CONFIDENCE_THRESHOLD": f"{_PANOPTIC}.COMBINE.INSTANCES_CONFIDENCE_THRESH",
        "MODEL.ROI_HEADS.SCORE_THRESH": "MODEL.ROI_HEADS.SCORE_THRESH_TEST",
        "MODEL.ROI_HEADS.NMS": "MODEL.ROI_HEADS.NMS_THRESH_TEST",
        f"{_RETINANET}.INFERENCE_SCORE_THRESHOLD": f"{_RETINANET}.SCORE_THRESH_TEST",
        f"{_RETINANET}.INFERENCE_TOPK_CANDIDATES": f"{_RETINANET}.TOPK_CANDIDATES_TEST",
        f"{_RETINANET}.INFERENCE_NMS_THRESHOLD": f"{_RETINANET}.NMS_THRESH_TEST",
        "TEST.DETECTIONS_PER_IMG": "TEST.DETECTIONS_PER_IMAGE",
        "TEST.AUG_ON": "TEST.AUG.ENABLED",
        "TEST.AUG_MIN_SIZES": "TEST.AUG.MIN_SIZES",
        "TEST.AUG_MAX_SIZE": "TEST.AUG.MAX_SIZE",
        "TEST.AUG_FLIP": "TEST.AUG.FLIP",
    },
}
_ANCHORS = ("ASPECT_RATIOS", "SIZES")


#: How detectron2's own files compute the sizes of anchors.
_EXPRESSION = re.compile(r"""!!python/object/apply:eval *\[ *"([^"]*)" *\]""")
#: What an expression may consist of: no names but those of its own loops, no calls, no attributes.
_ARITHMETIC = (
    ast.Expression, ast.ListComp, ast.comprehension, ast.Name, ast.Load, ast.Store, ast.Constant, ast.List, ast.Tuple,
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop,
)  # fmt: skip


def _computed(text: str) -> str:
    """Return the value of an arithmetic expression as YAML; another one would run code and is refused."""
    parsed = ast.parse(text.strip(), mode="eval")
    if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(parsed)):
        raise ValueError(f"{text!r} is no arithmetic: a YAML config is read as data")
    return repr(eval(compile(parsed, "<config>", "eval"), {"__builtins__": {}}))


class CfgNode(fvcore.CfgNode):  # type: ignore[misc]
    """A node whose files may say for which version of detectron2's keys they were written."""

    def merge_from_file(self, cfg_filename: str, allow_unsafe: bool = True) -> None:
        """Merge a YAML file, which is read as data: ``allow_unsafe`` has no effect."""
        with telling(self, file=cfg_filename):
            self._merge_file(cfg_filename)

    @classmethod
    def _open_cfg(cls, filename: str) -> IO[str]:
        """Open a file for fvcore, with values in place of expressions (``!!python/object/apply:eval ["[32 * 2]"]``)."""
        with super()._open_cfg(filename) as file:
            return io.StringIO(_EXPRESSION.sub(lambda found: _computed(found[1]), file.read()))

    def merge_from_list(self, cfg_list: list[Any]) -> None:
        with telling(self, pairs=cfg_list):
            super().merge_from_list(cfg_list)

    def _merge_file(self, cfg_filename: str) -> None:
        assert os.path.isfile(cfg_filename), f"Config file '{cfg_filename}' does not exist!"
        loaded = type(self)(self.load_yaml_with_base(cfg_filename, allow_unsafe=False))
        newest = self.get("VERSION", VERSION)
        assert newest == VERSION, "CfgNode.merge_from_file is only allowed on a config object of latest version!"
        version = loaded["VERSION"] if "VERSION" in loaded else guess_version(loaded, cfg_filename)
        assert version <= newest, f"Cannot merge a v{version} config into a v{newest} config."
        if version == newest:
            self.merge_from_other_cfg(loaded)
            return
        logger.warning(f"'{cfg_filename}' is written for v{version} of the keys; they are read as those of v{newest}")
        whole = downgrade_config(self, to_version=version)
        whole.merge_from_other_cfg(loaded)
        upgraded = upgrade_config(whole)
        self.clear()
        self.update(upgraded)

    def dump(self, *args: Any, **kwargs: Any) -> str:
        return str(super().dump(**kwargs))


def guess_version(cfg: Any, filename: str) -> int:
    """The version of a file that does not say it: the first public one had other names for two common keys."""
    if "WEIGHT" in cfg.get("MODEL", {}) or "AUG_ON" in cfg.get("TEST", {}):
        logger.warning(f"Config '{filename}' has no VERSION. Assuming it to be v1.")
        return 1
    return VERSION


def upgrade_config(cfg: Any, to_version: int | None = None) -> Any:
    """A copy in the words of ``to_version``, by default the newest."""
    to_version, cfg = VERSION if to_version is None else to_version, cfg.clone()
    assert to_version >= cfg.VERSION, f"Cannot upgrade from v{cfg.VERSION} to v{to_version}!"
    for version in range(cfg.VERSION + 1, to_version + 1):
        _rename(cfg, _RENAMED[version].items())
        if version == 2:
            _share_anchors(cfg)
        cfg.VERSION = version
    return cfg


def downgrade_config(cfg: Any, to_version: int) -> Any:
    """A copy in the words of ``to_version``."""
    cfg = cfg.clone()
    assert to_version <= cfg.VERSION, f"Cannot downgrade from v{cfg.VERSION} to v{to_version}!"
    for version in range(cfg.VERSION, to_version, -1):
        _rename(cfg, [(new, old) for old, new in reversed(_RENAMED[version].items())])
        if version == 2:
            _part_anchors(cfg)
        cfg.VERSION = version - 1
    return cfg


def _share_anchors(cfg: Any) -> None:
    """Version 1 had anchors of RPN and of RetinaNet; those of the model that is built become everybody's."""
    used, other = ("RETINANET", "RPN") if cfg.MODEL.META_ARCHITECTURE == "RetinaNet" else ("RPN", "RETINANET")
    for name in _ANCHORS:
        _rename(cfg, [(f"MODEL.{used}.ANCHOR_{name}", f"MODEL.ANCHOR_GENERATOR.{name}")])
        cfg.MODEL[other].pop(f"ANCHOR_{name}", None)
    cfg.MODEL.RETINANET.pop("ANCHOR_STRIDES", None)


def _part_anchors(cfg: Any) -> None:
    for name in _ANCHORS:
        _rename(cfg, [(f"MODEL.ANCHOR_GENERATOR.{name}", f"MODEL.RPN.ANCHOR_{name}")])
        cfg.MODEL.RETINANET[f"ANCHOR_{name}"] = cfg.MODEL.RPN[f"ANCHOR_{name}"]
    cfg.MODEL.RETINANET.ANCHOR_STRIDES = []


def _rename(cfg: Any, names: Iterable[tuple[str, str]]) -> None:
    for old, new in names:
        *above, last = new.split(".")
        node = cfg
        for part in above:
            node = node.setdefault(part, type(cfg)())
        node[last] = _taken(cfg, old.split("."))


def _taken(node: Any, way: list[str]) -> Any:
    """The value at the end of ``way``, removed, and the nodes that are empty without it with it."""
    if len(way) == 1:
        return node.pop(way[0])
    value = _taken(node[way[0]], way[1:])
    if not node[way[0]]:
        del node[way[0]]
    return value


# -- the default config -----------------------------------------------------------------------------------------------


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
