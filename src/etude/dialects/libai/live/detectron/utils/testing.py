"""Helpers that detectron2's users import into their tests."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from etude.dialects.libai.lazy.load import DetectronLazyConfig


def reload_lazy_config(cfg: Any) -> Any:
    """``cfg`` as it is after being saved to a file and read again."""
    with tempfile.TemporaryDirectory(prefix="detectron2") as folder:
        path = os.path.join(folder, "d2_cfg_test.yaml")
        DetectronLazyConfig.save(cfg, path)
        return DetectronLazyConfig.load(path)
