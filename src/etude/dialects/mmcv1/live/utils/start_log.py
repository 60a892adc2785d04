"""Logs what the train scripts log before anything is built: the environment, the config and the seed."""

from __future__ import annotations

import logging
from typing import Any

from etude.config.dump import redact
from etude.dialects.mmcv1.live.utils.dist import get_dist_info
from etude.dialects.mmcv1.live.utils.environment import collect_env
from etude.dialects.mmcv1.live.utils.seeding import init_random_seed, set_random_seed
from etude.dialects.openmm.config.config_v1 import Config

_DASHES = "-" * 60 + "\n"


def say_environment(logger: logging.Logger, cfg: Any, *, project: tuple[str, str], distributed: bool) -> str:
    """Log versions and config as the scripts do; the versions as one text. ``project`` is a name and its version."""
    name, version = project
    info = "\n".join(f"{key}: {value}" for key, value in {**collect_env(), name: version}.items())
    logger.info(f"Environment info:\n{_DASHES}{info}\n{_DASHES}")
    logger.info(f"Distributed training: {distributed}")
    logger.info(f"Config:\n{public(cfg).pretty_text}")
    return info


def seed_all(logger: logging.Logger, cfg: Any, *, deterministic: bool) -> None:
    """Seed every generator, and let the config say with what; each rank in its own way with ``diff_seed``."""
    seed = init_random_seed(cfg.get("seed")) + (get_dist_info()[0] if cfg.get("diff_seed") else 0)
    logger.info(f"Set random seed to {seed}, deterministic: {deterministic}")
    set_random_seed(seed, deterministic=deterministic)
    cfg["seed"] = seed


def public(cfg: Any) -> Any:
    """The config as it may be written down: values of keys that are called like secrets are hidden."""
    return Config(redact(cfg._cfg_dict.to_dict()), filename=cfg.filename)
