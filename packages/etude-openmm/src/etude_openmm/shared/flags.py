"""Flags that the train scripts of mmcv 1.x and of MMEngine share."""

from __future__ import annotations

import argparse

from etude.dialects.base import Flag

LOAD_FROM = Flag("--load-from", "start from these weights", {"metavar": "FILE"})
NO_VALIDATE = Flag("--no-validate", "do not evaluate while training", {"action": "store_true"})
SHARED = (
    Flag(
        "--cfg-options", "the same as key=value", {"nargs": "+", "default": [], "metavar": "k=v"},
        instead="key=value does",
    ),
    Flag(
        "--launcher", "who started the processes",
        {"default": "none", "choices": ["none", "pytorch", "slurm", "mpi"]}, ignorable=True,
    ),
    Flag(
        "--local_rank", argparse.SUPPRESS, {"type": int, "default": 0}, aliases=("--local-rank",), ignorable=True,
    ),
    Flag("--gpus", argparse.SUPPRESS, {"type": int}, ignorable=True),
    Flag("--gpu-ids", argparse.SUPPRESS, {"type": int, "nargs": "+"}, ignorable=True),
    Flag("--gpu-id", argparse.SUPPRESS, {"type": int}, ignorable=True),
)  # fmt: skip
