"""Sets seeds and process settings, and logs versions and config as mmcv's train scripts do."""

from __future__ import annotations

import logging
import os
import platform
import random
import time
import warnings
from typing import Any

import numpy as np
import torch

from etude.config.dump import redact
from etude_openmm.mmcv1.live.utils.dist import get_dist_info
from etude_openmm.shared import torch_utils
from etude_openmm.shared.config.config_v1 import Config
from etude_openmm.shared.live.checkpoint_v1 import MMCV_VERSION
from etude_openmm.shared.live.processes import random_seed_everywhere

#: The versions that Étude behaves like.
MMCLS_VERSION = "0.25.0"
MMTRACK_VERSION = "0.14.0"
TORCH_VERSION = torch.__version__
IS_CUDA_AVAILABLE = torch.cuda.is_available()
SyncBatchNorm = torch.nn.SyncBatchNorm


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def get_time_str() -> str:
    return time.strftime("%Y%m%d_%H%M%S", time.localtime())


def collect_env() -> dict[str, Any]:
    """Return the versions that mmcv logs, without any environment variables."""
    known = torch_utils.collect_env()
    left_out = ("MMEngine", "MUSA available", "numpy_random_seed")
    return {
        **{key: value for key, value in known.items() if key not in left_out},
        "MMCV": f"{MMCV_VERSION}, served by etude",
        "MMCV Compiler": "n/a",
        "MMCV CUDA Compiler": "n/a",
    }


def setup_multi_processes(cfg: Any) -> None:
    """Set the start method of workers, and one thread for each if there are several."""
    method = cfg.get("mp_start_method", "fork")
    if platform.system() != "Windows" and torch.multiprocessing.get_start_method(allow_none=True) not in (None, method):
        warnings.warn(f"multi-processing start method is set to {method}", stacklevel=2)
    if platform.system() != "Windows":
        torch.multiprocessing.set_start_method(method, force=True)
    workers = cfg.get("data", {}).get("workers_per_gpu", 0)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if name not in os.environ and workers > 1:
            os.environ[name] = "1"


def set_random_seed(seed: int, deterministic: bool = False, use_rank_shift: bool = False) -> None:
    """Seed the generators of Python, numpy and torch. ``deterministic`` makes cuDNN deterministic, too."""
    if use_rank_shift:
        seed += get_dist_info()[0]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)  # for processes that start later
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def init_random_seed(seed: int | None = None, device: str = "cuda") -> int:
    """Return ``seed``, or a random one that all ranks share."""
    if seed is not None:
        return seed
    return random_seed_everywhere(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


_DASHES = "-" * 60 + "\n"


def say_environment(logger: logging.Logger, cfg: Any, *, project: tuple[str, str], distributed: bool) -> str:
    """Log versions and config as the scripts do, and return the versions as text. ``project`` is (name, version)."""
    name, version = project
    info = "\n".join(f"{key}: {value}" for key, value in {**collect_env(), name: version}.items())
    logger.info(f"Environment info:\n{_DASHES}{info}\n{_DASHES}")
    logger.info(f"Distributed training: {distributed}")
    logger.info(f"Config:\n{public(cfg).pretty_text}")
    return info


def seed_all(logger: logging.Logger, cfg: Any, *, deterministic: bool) -> None:
    """Seed every generator and write the seed into the config; with ``diff_seed`` each rank has another one."""
    seed = init_random_seed(cfg.get("seed")) + (get_dist_info()[0] if cfg.get("diff_seed") else 0)
    logger.info(f"Set random seed to {seed}, deterministic: {deterministic}")
    set_random_seed(seed, deterministic=deterministic)
    cfg["seed"] = seed


def public(cfg: Any) -> Any:
    """Return the config with the values of keys hidden that look like secrets."""
    return Config(redact(cfg._cfg_dict.to_dict()), filename=cfg.filename)
