"""Lets the ranks of a run decide together: is every loss finite, does any rank want to stop, how much time has passed.

The votes are sent after the forward pass and read after the backward pass. Under DDP on CPUs they travel with the
gradients, as the gradient of a few extra numbers; elsewhere in a small message of their own. Every rank sees the same
result at the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import fsum, isfinite
from time import monotonic
from typing import Any, TypeVar

import torch
from torch import distributed

from etude.dist import group
from etude.dist.layout.shards import copy_from_first
from etude.dist.world import World

T = TypeVar("T")
#: Exit codes that a rank may ask for, least urgent first; sent as their index in this list.
WISHES = (0, 75, 143, 130)


class Peers:
    """The other ranks, as the engine sees them. ``carrier`` is a parameter whose gradient DDP averages with the others:
    one number for each requested exit code, one for a bad loss, and the time that has passed."""

    def __init__(
        self,
        world: World,
        *,
        sync: Callable[[bool], None] = lambda last: None,
        by_hand: bool = False,
        finish: Callable[[Iterable[Any]], None] | None = None,
        stage: Any = None,
        carrier: torch.nn.Parameter | None = None,
    ) -> None:
        self.world, self.by_hand = world, by_hand
        #: What gradients need before they are used.
        self.finish = finish
        #: The ranks that hold the same layers; None: all of them.
        self._stage = stage
        self._sync, self._carrier = sync, carrier
        self._completes = True
        self._began = monotonic()
        self._sent = torch.zeros(3, dtype=torch.float64)
        self._work: Any = None
        self._is_carried = False
        self._asked_at = -1
        #: The exit code that this rank wishes to end with; 0: none.
        self.wish: Callable[[], int] = lambda: 0
        #: What all ranks have agreed on: the exit code to stop with, the seconds since the start, a loss that is bad.
        self.stop = 0
        self.now = 0.0
        self.bad = False

    def clock(self) -> float:
        """Return the seconds since the start, the same on every rank until the next exchange."""
        return self.now

    def sync(self, completes: bool) -> None:
        """Set whether the next backward pass completes the gradients of an update; until then, they are not sent."""
        self._completes = completes
        self._sync(completes)

    def ask(self, step: int, *, bad: bool = False) -> None:
        """Begin the exchange of ``step``, after the forward and before the backward pass."""
        self._asked_at = step
        if self._carrier is None or not self._completes:
            self._send(bad)
            return
        wish, since = WISHES.index(self.wish()), monotonic() - self._began - self.now
        # The gradient is given, not computed: DDP sees it as ready and sends it with its bucket.
        self._carrier.grad = None
        self._carrier.backward(torch.tensor([wish == 1, wish == 2, wish == 3, bad, since]))  # type: ignore[no-untyped-call]
        self._is_carried = True

    def _send(self, bad: bool) -> None:
        """Begin a separate exchange."""
        values = [float(WISHES.index(self.wish())), monotonic() - self._began, float(bad)]
        self._sent.copy_(torch.tensor(values, dtype=torch.float64))
        # The maximum: the most urgent wish, the longest time, and a bad loss anywhere.
        self._work = group.start_max(self._sent)

    def read_votes(self) -> None:
        """Wait for the answer of the exchange that was begun."""
        if self._is_carried:
            self._is_carried = False
            requeue, term, interrupt, bad, since = self._carrier.grad.tolist()  # type: ignore[union-attr]
            # These are means over ranks: more than 0 where any of them asks for it.
            wish = 3 if interrupt else 2 if term else 1 if requeue else 0
            self._agree(wish, self.now + since, bool(bad))
        elif self._work is not None:
            work, self._work = self._work, None
            work.wait()
            self._agree(*self._sent.tolist())

    def _agree(self, wish: float, now: float, bad: float) -> None:
        self.stop, self.bad = max(self.stop, WISHES[int(wish)], key=WISHES.index), bool(bad)
        self.now = max(self.now, now)

    def meet(self, step: int) -> None:
        """Exchange at once, unless this step has had its exchange."""
        if self._asked_at != step:
            self._send(bad=False)
        self.read_votes()

    @torch.no_grad()
    def average(self, params: Iterable[torch.nn.Parameter]) -> bool:
        """Average gradients over ranks, in one message per dtype and device; return True: they are to be used."""
        kinds: dict[Any, list[torch.Tensor]] = {}
        for param in params:
            if param.grad is not None:
                kinds.setdefault((param.grad.device, param.grad.dtype), []).append(param.grad)
        for grads in kinds.values():
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            distributed.all_reduce(flat)
            flat /= self.world.size
            for grad, mean in zip(grads, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
                grad.copy_(mean.view_as(grad))
        return True

    def copy_from_main(self, model: torch.nn.Module) -> None:
        """Broadcast rank 0's parameters and buffers to every rank."""
        copy_from_first(model)

    def align(self, model: torch.nn.Module) -> None:
        """Broadcast rank 0's buffers (batch-norm statistics), so that all ranks evaluate the same model."""
        for buffer in model.buffers():
            distributed.broadcast(buffer, group=self._stage, group_src=0)

    def from_bad_ranks(self, words: str, bad: bool) -> str:
        """Return the messages of the ranks whose loss is not finite."""
        gathered = group.gather(words if bad else "")
        return "; ".join(f"on rank {rank} {said}" for rank, said in enumerate(gathered) if said)

    def from_main(self, call: Callable[[], T]) -> T:
        """Return what ``call`` gives on rank 0, which alone knows the files of the run."""
        return group.first(call)

    def exchange(self) -> None:
        """Exchange at once, outside of steps."""
        self._send(bad=False)
        self.read_votes()


def mean_over_ranks(values: list[dict[str, list[float]]], own: Callable[[str], bool]) -> dict[str, list[float]]:
    """Return the mean over ranks, element by element, of each name; for names that ``own`` selects, rank 0's value.

    >>> mean_over_ranks([{"loss": [1.0], "time": [5.0]}, {"loss": [2.0], "time": [7.0]}], lambda name: name == "time")
    {'loss': [1.5], 'time': [5.0]}
    """
    names = dict.fromkeys(name for one in values for name in one)
    made = {}
    for name in names:
        lists = [one[name] for one in values if name in one]
        shortest = min(map(len, lists))
        alone = len(lists) == 1 or (own(name) and name in values[0])
        made[name] = lists[0] if alone else [_mean([one[i] for one in lists]) for i in range(shortest)]
    return made


def _mean(values: list[float]) -> float:
    # fsum raises where infinities of both signs meet.
    return (fsum(values) if all(map(isfinite, values)) else sum(values)) / len(values)
