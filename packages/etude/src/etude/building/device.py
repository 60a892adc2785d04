"""Picks the device, seeds the generators, and sets how torch computes."""

from __future__ import annotations

import random

import numpy as np
import torch

from etude.dist.world import ALONE, World
from etude.errors import ConfigError
from etude.plan import Parallel, Training

_DEVICES = "write auto, cpu, cuda, cuda:1 or mps"


def seed_everything(training: Training) -> None:
    """Seed Python's, numpy's and torch's generators from one seed, and set how torch computes."""
    random.seed(training.seed)
    # numpy takes 32 bits.
    np.random.seed(training.seed % 2**32)
    torch.manual_seed(training.seed)
    set_computing(training)


def fix_threads(training: Training, parallel: Parallel) -> None:
    """Let operations have as many threads in any number of processes, where these come to the same bits: the order of
    sums depends on threads, too."""
    if parallel.virtual_ranks and training.threads is None:
        torch.set_num_threads(1)


def set_computing(training: Training) -> None:
    """Set how torch computes: deterministically or not, how exactly, and in how many threads."""
    if training.deterministic:
        torch.use_deterministic_algorithms(True, warn_only=training.deterministic == "warn")
    if training.matmul is not None:
        torch.set_float32_matmul_precision(training.matmul)
    if training.threads is not None:
        torch.set_num_threads(training.threads)


def pick_device(name: str, world: World = ALONE) -> torch.device:
    """Return the device. ``auto`` is the accelerator if there is one, else the CPU; ranks of one machine take one
    each."""
    if world.is_many and torch.cuda.is_available() and name in ("auto", "cuda"):
        torch.cuda.set_device(world.local_rank % torch.cuda.device_count())
    if name != "auto":
        try:
            # A tensor there: `torch.device` also takes devices that this machine does not have.
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            said = str(error).splitlines()[0]
            # torch answers an unknown word with all devices it was ever built for.
            said = "no such device" if said.startswith("Expected one of") else said
            raise ConfigError(f"train.device: {name} cannot be used: {said}", hint=_DEVICES) from error
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
