"""detectron2's config node: fvcore's, with a version."""

from __future__ import annotations

import os
from typing import Any

from etude.dialects.libai.lazy import nodes
from etude.errors import OutOfScope

VERSION = 2


class CfgNode(nodes.CfgNode):
    """A node whose files may say for which version of detectron2's keys they were written."""

    def merge_from_file(self, cfg_filename: str, allow_unsafe: bool = True) -> None:
        assert os.path.isfile(cfg_filename), f"Config file '{cfg_filename}' does not exist!"
        loaded = type(self)(self.load_yaml_with_base(cfg_filename, allow_unsafe=allow_unsafe))
        _require_version(loaded.get("VERSION", self.get("VERSION", VERSION)))
        self.merge_from_other_cfg(loaded)

    def dump(self, *args: Any, **kwargs: Any) -> str:
        return super().dump(**kwargs)


def upgrade_config(cfg: Any, to_version: int | None = None) -> Any:
    """A copy in the words of the newest version, which is the only one that the engine knows."""
    _require_version(VERSION if to_version is None else to_version)
    return downgrade_config(cfg, VERSION)


def downgrade_config(cfg: Any, to_version: int) -> Any:
    """A copy in the words of ``to_version``."""
    _require_version(to_version)
    _require_version(cfg.VERSION)
    return cfg.clone()


def _require_version(version: int) -> None:
    if version != VERSION:
        raise OutOfScope(
            f"version {version} of detectron2's config is out of Étude's scope: its keys describe detection models"
        )
