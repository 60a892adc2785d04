"""Looks up keys that may be absent, and the configs that come with the dialect."""

from __future__ import annotations

import json
import os
from functools import cache
from glob import glob
from typing import Any

from etude.dialects.libai.lazy.extra import dict_config, omegaconf
from etude.dialects.libai.lazy.load import LazyConfig
from etude.dialects.libai.lazy.reading.errors import hinted, near
from etude.dialects.libai.places import CONFIGS, common_config


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
    """Return one of the common configs: ``get_config("common/train.py").train``."""
    if path := common_config(config_path):
        return LazyConfig.load(path)
    models_and_data = _models_and_data()
    if config_path in models_and_data:
        return dict_config(models_and_data[config_path])
    files = [os.path.relpath(file, CONFIGS) for file in glob(f"{CONFIGS}/**/*.py", recursive=True)]
    known = [*files, *models_and_data]
    raise hinted(RuntimeError(f"{config_path} not available in LiBai configs!"), near(config_path, known))


@cache
def _models_and_data() -> dict[str, Any]:
    """Return LiBai's configs of models and data sets, by the path that users give."""
    with open(os.path.join(CONFIGS, "common.json"), encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
    return read
