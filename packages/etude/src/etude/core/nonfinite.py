"""Keeps losses that are not finite away from the parameters: stop, skip the batch, or roll back."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etude.core.describe import batch_ids, last_good
from etude.core.run import Run
from etude.errors import Diverged
from etude.optim.found_inf import Unread, takes_found_inf

_log = logging.getLogger("etude.core")


class Guard:
    """Reads each loss before the backward pass.

    ``stop`` raises :class:`~etude.errors.Diverged` at the first one that is not finite, ``skip`` leaves out the batch,
    ``rollback`` goes back to the newest checkpoint and past the batch, both at most ``limit`` times in a row.
    """

    def __init__(self, device: torch.device, *, policy: str, limit: int, waits: str = "") -> None:
        self.policy, self.limit = policy, limit
        #: Why every step waits for an accelerator to read its loss; empty if none does.
        self.waits = waits
        #: How many losses in a row were bad.
        self.bad = 0
        #: Whether Python reads tensors of the device without waiting for it.
        self.peeks = sees_memory(device)

    def is_finite(self, loss: Tensor) -> bool:
        """Read ``loss``. Memory of the CPU is looked at directly: that waits for no device."""
        # numpy has no bfloat16.
        if self.peeks and loss.dtype != torch.bfloat16:
            return math.isfinite(loss.detach().numpy())
        return bool(loss.isfinite())

    #: Whether a process that is alone computes gradients of a loss; several ranks read it and decide together.
    passes = is_finite

    def learnt(self, run: Run) -> None:
        """Record an update of the parameters."""
        self.bad = 0

    def refuse(self, run: Run, losses: Mapping[str, Tensor], finite: bool) -> None:
        """Apply the policy. ``finite``: the loss of this rank is finite, but that of another rank is not."""
        values = ", ".join(f"{name} {float(value.detach())}" for name, value in losses.items())
        values = f"({values}){batch_ids(run)}"
        if run.peers is not None:
            values = run.peers.from_bad_ranks(values, not finite)
        self.bad += 1
        run.events.put("nonfinite", 1.0)
        if self.policy == "stop" or self.bad > self.limit:
            times = "" if self.policy == "stop" else f", {self.bad} times in a row"
            good = last_good(run) if run.peers is None else run.peers.from_main(lambda: last_good(run))
            raise Diverged(f"the loss is not finite at step {run.step + 1} {values}{times}; {good}")
        if self.policy == "rollback" and run.store is not None:
            run.store.rollback(run)

    def read_losses(self, run: Run) -> None:
        """Read the losses that only the device has checked."""

    def load(self, bad: int) -> None:
        """Continue from a checkpoint."""
        self.bad = bad


class DeferredGuard(Guard):
    """Lets the device check the losses; Python reads the result at the next log line or save."""

    def __init__(self, optimizers: Sequence[Any], device: torch.device, *, policy: str, limit: int) -> None:
        super().__init__(device, policy=policy, limit=limit)
        self._unread = Unread(optimizers, device, lasting=policy == "stop")

    def passes(self, loss: Tensor) -> bool:
        """Let the device check ``loss``; its optimizers skip a bad one."""
        self._unread.look(loss)
        return True

    def learnt(self, run: Run) -> None:
        if run.peers is not None:  # several ranks read every loss; otherwise `read_losses` counts
            self.bad = 0

    def read_losses(self, run: Run) -> None:
        self.bad, longest = self._unread.read()
        if not longest:
            return
        if self.policy == "stop":
            raise Diverged(f"the loss is not finite at step {run.done - self.bad + 1}; {last_good(run)}")
        run.events.put("nonfinite", 1.0)
        if longest > self.limit:
            raise Diverged(f"the loss is not finite at step {run.done}, {longest} times in a row; {last_good(run)}")

    def load(self, bad: int) -> None:
        self.bad = bad
        self._unread.set_row(bad)


def guard_of(
    optimizers: Sequence[torch.optim.Optimizer],
    device: torch.device,
    *,
    policy: str,
    limit: int,
    accumulate: int,
    precision: str,
) -> Guard:
    """Return the guard that waits for the device as seldom as the optimizers allow."""
    if sees_memory(device):
        return Guard(device, policy=policy, limit=limit)
    able = all(takes_found_inf(optimizer) for optimizer in optimizers)
    if able and accumulate == 1 and policy != "rollback" and precision != "fp16":
        return DeferredGuard(optimizers, device, policy=policy, limit=limit)
    reason = "accumulates" if accumulate > 1 else "uses fp16" if precision == "fp16" else "may roll back"
    waits = f"this run {reason if able else 'has an optimizer that is not fused'}"
    _log.info("the loss is read at every step, which waits for the device: %s", waits)
    return Guard(device, policy=policy, limit=limit, waits=waits)


def sees_memory(device: torch.device) -> bool:
    """Return whether Python can look at tensors of ``device`` without waiting for it."""
    return device.type == "cpu"
