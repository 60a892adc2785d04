"""Asking a config for keys that may not be there, and for the configs that come with the dialect."""

from __future__ import annotations

import os
from glob import glob
from typing import Any

from etude.dialects.libai.lazy.extra import omegaconf
from etude.dialects.libai.lazy.load import LazyConfig
from etude.dialects.libai.lazy.read_errors import hinted, near
from etude.dialects.libai.places import CONFIGS


class _Absent:
    pass


_ABSENT = _Absent()


def try_get_key(cfg: Any, *keys: str, default: Any = None) -> Any:
    """The value of the first dotted key that is there; one that holds None counts, one that holds ``???`` does not."""
    select = omegaconf().OmegaConf.select
    for key in keys:
        value = select(cfg, key, default=_ABSENT)
        if value is not _ABSENT:
            return value
    return default


def get_config(config_path: str) -> Any:
    """One of the common configs: ``get_config("common/train.py").train``."""
    path = os.path.join(CONFIGS, config_path)
    if not os.path.isfile(path):
        known = [os.path.relpath(file, CONFIGS) for file in glob(f"{CONFIGS}/**/*.py", recursive=True)]
        raise hinted(RuntimeError(f"{config_path} not available in LiBai configs!"), near(config_path, known))
    return LazyConfig.load(path)
