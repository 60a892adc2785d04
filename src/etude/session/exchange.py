"""Tells whether the training thread waits for other processes inside a forward or backward pass."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

#: The Python functions inside which DDP exchanges gradients and buffers, in C++ that leaves no frame of its own.
_EXCHANGES = {
    ("torch.autograd.graph", "_engine_run_backward"),
    ("torch.nn.parallel.distributed", "_distributed_broadcast_coalesced"),
}


def waits_for_peers(frames: list[FrameType], native_id: int) -> bool:
    """Return whether a thread with these frames, the innermost first, sleeps where processes exchange tensors.

    On a CPU the thread that trains computes the backward pass itself, so it sleeps there only until the others have
    sent their part. On a GPU it sleeps while the device computes, so waiting cannot be seen.
    """
    place = frames[0].f_globals.get("__name__", ""), frames[0].f_code.co_name
    return place in _EXCHANGES and _has_peers_on_cpu() and _sleeps(native_id)


def _has_peers_on_cpu() -> bool:
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_initialized() or not torch.distributed.is_available():
        return False
    return bool(torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1)


def _sleeps(native_id: int) -> bool:
    """Return whether a thread waits for something else than a CPU; False where the system does not tell."""
    try:
        return Path(f"/proc/self/task/{native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except (OSError, IndexError):
        return False
