"""Fault-tolerant replicas by torchft: they leave and join while the others train (``parallel: {fault_tolerant:
true}``).

.. code-block:: text

    a replica   one process with its own folder and its own share of every batch
    lighthouse  knows who is there (torchft_lighthouse, a separate process)
    a step      quorum: who takes part · forward, backward · mean of their gradients · commit, or drop the batch
    joining     the first quorum brings weights, optimizers, counters and position of a replica that is ahead

A replica that dies inside a step spoils its mean: that batch is dropped by all others. What it would have seen while it
is away is not made up for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from etude.dist.handover import Handover
from etude.dist.jobs.meeting import LOOPBACK, listen
from etude.dist.world import interface_of, towards
from etude.errors import ConfigError, PeerError
from etude.fast_dataclass import record

if TYPE_CHECKING:
    from etude.core.run import Run

LIGHTHOUSE, REPLICA, COUNT = "TORCHFT_LIGHTHOUSE", "REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS"


@record
class Place:
    """The number of this replica, how many there are, and where they meet."""

    number: int
    count: int
    lighthouse: str

    @property
    def share(self) -> tuple[int, int]:
        return self.number, self.count

    @classmethod
    def from_environment(cls, at: str) -> Place:
        """Read the place of this replica from torchft's environment variables; a ConfigError says what is missing."""
        missing = [name for name in (LIGHTHOUSE, REPLICA, COUNT) if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"parallel.fault_tolerant: {' and '.join(missing)} must be set in the environment of each replica",
                at=at, hint="torchft_lighthouse --min_replicas 1 prints its address; replicas are numbered from 0",
            )  # fmt: skip
        number, count = os.environ[REPLICA], os.environ[COUNT]
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise ConfigError(
                f"{REPLICA}={number} is not a replica of {COUNT}={count}; they are numbered from 0", at=at
            )
        return cls(int(number), int(count), os.environ[LIGHTHOUSE])


class Replicas:
    """The other replicas, as the engine sees them: the counterpart of :class:`~etude.dist.peers.Peers`."""

    by_hand, finish = True, None

    def __init__(self, place: Place, *, at: str = "", timeout: float = 30.0) -> None:
        os.environ.setdefault("RUST_LOG", "warn")
        logging.getLogger("torchft").setLevel(logging.ERROR)  # it logs every step
        try:
            from torchft import Manager, ProcessGroupGloo
        except ImportError as error:
            raise ConfigError("parallel.fault_tolerant needs torchft", at=at, hint="pip install 'etude[ft]'") from error
        wait = timedelta(seconds=timeout)
        address = towards(place.lighthouse.rpartition("/")[2]) or LOOPBACK
        name = interface_of(address)
        if name:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        self._store = listen(address)
        with _narrow_server(address):
            self._manager: Any = Manager(
                pg=ProcessGroupGloo(timeout=wait), load_state_dict=self._take, state_dict=self._give,
                min_replica_size=1, use_async_quorum=False, timeout=wait, rank=0, world_size=1, store_addr=address,
                store_port=self._store.port, lighthouse_addr=place.lighthouse, replica_id=f"etude_{place.number}",
                hostname=address, checkpoint_transport=Handover(address, wait),
            )  # fmt: skip
        self._began = monotonic()
        self._run: Run | None = None
        self._is_ready = self._trains = False
        self._bad = False
        #: The exit code that this replica wishes to end with; it ends alone.
        self.wish: Callable[[], int] = lambda: 0
        self.stop = 0
        self.bad = False

    def join(self, run: Run) -> None:
        """Join the others before the first step: a replica that joins copies their state and moves to their
        position."""
        self._run = run
        self._manager.start_quorum()
        self._is_ready, self._trains = True, True

    @property
    def count(self) -> int:
        """Return how many replicas take part in the step."""
        return int(self._manager.num_participants())

    def leave(self) -> None:
        self._manager.shutdown(wait=False)

    def _give(self) -> dict[str, Any]:
        """Return what a replica that joins needs: everything of a checkpoint but the generators, which are its own."""
        assert self._run is not None
        return {name: part.state_dict() for name, part in self._run.parts().items()}

    def _take(self, state: dict[str, Any]) -> None:
        run = self._run
        assert run is not None
        if self._trains and int(state["counters"]["step"]) != run.step:
            raise PeerError(f"this replica has fallen behind the others at step {run.step}; start it again")
        for name, part in run.parts().items():
            if name in state and not (self._trains and name.startswith(("data.", "counters"))):
                part.load_state_dict(state[name])

    # -- what the engine asks for ----------------------------------------------------------------------------------

    def clock(self) -> float:
        return monotonic() - self._began

    def sync(self, completes: bool) -> None:
        """Agree on who takes part in the step, unless it is the first, which :meth:`join` has begun."""
        if not self._is_ready:
            self._manager.start_quorum()
            self._is_ready = True

    def ask(self, step: int, *, bad: bool = False) -> None:
        self._bad = self._bad or bad

    def read_votes(self) -> None:
        """Do nothing here: a loss that is not finite shows in the mean of all replicas (see :meth:`average`)."""

    @torch.no_grad()
    def average(self, params: Iterable[torch.nn.Parameter]) -> bool:
        """Average gradients over replicas, in one message; return False if the batch is to be dropped."""
        grads = [param.grad for param in params if param.grad is not None]
        # One number more: it is not 0 where the loss of any replica is bad.
        flat = torch.cat([*(grad.reshape(-1).float() for grad in grads), torch.tensor([float(self._bad)])])
        self._manager.allreduce(flat).wait()
        if flat[-1] != 0:
            self._manager.report_error(ValueError("the loss of a replica is not finite"))
        self._bad = self._is_ready = False
        if not self._manager.should_commit():
            return False
        sizes = [grad.numel() for grad in grads]
        for grad, mean in zip(grads, torch.split(flat[:-1], sizes), strict=True):
            grad.copy_(mean.view_as(grad))
        return True

    def align(self, model: torch.nn.Module) -> None:
        """Do nothing: each replica evaluates its own model, and all have the same parameters."""

    def from_bad_ranks(self, words: str, bad: bool) -> str:
        return words

    def meet(self, step: int) -> None:
        self.stop = self.wish()

    def exchange(self) -> None:
        self.stop = self.wish()


@contextmanager
def _narrow_server(address: str) -> Iterator[None]:
    """Let the server that a manager of torchft starts listen on ``address``: it has no option for that, and listens on
    every network of the machine."""
    from torchft import manager

    usual = manager.ManagerServer

    def server(*args: Any, bind: str, **kwargs: Any) -> Any:
        return usual(*args, bind=f"{address}:{bind.rpartition(':')[2]}", **kwargs)

    manager.ManagerServer = server
    try:
        yield
    finally:
        manager.ManagerServer = usual
