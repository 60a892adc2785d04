"""Sets up the process group, the limits and the random seeds of a run."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from etude.data.seeds import seed_everywhere
from etude_openmm.mmengine.live.dist.collectives import broadcast, sync_random_seed
from etude_openmm.mmengine.live.dist.utils import get_rank, get_world_size, init_dist, is_distributed
from etude_openmm.mmengine.live.logging.message_hub import MessageHub
from etude_openmm.shared.config.config_base import pretty_public
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.torch_utils import set_multi_processing

_MAX_FILES = 4096


def setup_env(env_cfg: dict[str, Any], launcher: str) -> None:
    """Set up cuDNN, worker processes, the process group, and the limit of open files."""
    if env_cfg.get("cudnn_benchmark"):
        torch.backends.cudnn.benchmark = True
    set_multi_processing(**env_cfg.get("mp_cfg", {}), distributed=launcher != "none")
    if launcher != "none" and not is_distributed():
        init_dist(launcher, **env_cfg.get("dist_cfg", {"backend": "nccl"}))
    _raise_file_limit(int(env_cfg.get("resource_limit", _MAX_FILES)))


def _raise_file_limit(wanted: int) -> None:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def common_timestamp() -> str:
    """Return the current time as ``20240131_120000``, the same in all processes."""
    # float32 is too coarse: it has steps of two minutes at today's times.
    now = torch.tensor(time.time(), dtype=torch.float64)
    broadcast(now)
    return time.strftime("%Y%m%d_%H%M%S", time.localtime(float(now)))


def set_random_seed(seed: int | None = None, deterministic: bool = False, diff_rank_seed: bool = False) -> int:
    """Seed every generator and return this process's seed. None draws one that all processes share."""
    common = sync_random_seed() if seed is None else seed
    own = common + get_rank() if diff_rank_seed else common
    seed_everywhere(own)
    if deterministic:
        if torch.backends.cudnn.benchmark:
            log_warning("torch.backends.cudnn.benchmark is turned off, because the run is deterministic")
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    return own


def describe(env_cfg: dict[str, Any], runner: Any) -> str:
    """Describe where and how this run happens, for its log."""
    facts = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "seed": runner.seed,
        "deterministic": runner.deterministic,
        "launcher": runner.launcher,
        "processes": get_world_size(),
        **{key: value for key, value in env_cfg.items() if key != "dist_cfg"},
    }
    lines = "\n".join(f"    {name}: {value}" for name, value in facts.items())
    bar = "-" * 60
    return f"\n{bar}\nEnvironment:\n{lines}\n{bar}\nConfig:\n{pretty_public(runner.cfg)}"


def unique_name(given: str | None, config_file: str | None, timestamp: str) -> str:
    """Return ``<name>_<timestamp>``, with a number behind it if a run in this process has that name already.

    Without the number, two runs that start within one second would share a message hub.
    """
    stem = given if given is not None else config_file and os.path.splitext(os.path.basename(config_file))[0]
    name = f"{stem}_{timestamp}" if stem else timestamp
    count = 1
    free = name
    while MessageHub.check_instance_created(free):
        count += 1
        free = f"{name}_{count}"
    return free
