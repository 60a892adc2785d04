"""Exact resume: the states of all random generators, and a position in any loader, as plain data.

Every engine that runs here, native or of a dialect, uses these three:

``Snapshot.take()``
    Copies the states of Python's, numpy's, torch's and CUDA's generators. ``restore()`` puts them back.
    ``state_dict()`` returns numbers and tensors only, so that ``torch.load(weights_only=True)`` reads them;
    ``Snapshot.of(state)`` reads them.

``Pass(loader)``
    Iterates ``loader`` once and counts batches. ``Pass(loader, state)`` continues the pass whose ``state_dict()`` was
    ``state``: it iterates the loader from the same generator states, reads the batches that were taken before and
    drops them. It leaves the generators of the process as it found them: restore those yourself, from your checkpoint.

``Replay(loader)``
    A loader whose every iteration is a :class:`Pass`. It has ``state_dict`` and ``set_epoch``, as ``etude.Loader``.

Loaders with workers that draw from generators of their own, as mmcv's and MMEngine's do, continue by
:mod:`etude.data.torch_loader.position`, which brings the states of those generators back with every batch.

The contract: batches depend only on the generator states at the start of the pass and at its first batch. This holds
for torch's ``DataLoader`` with and without workers, for lists, and for generators of batches. Workers that outlive a
pass (``persistent_workers``) continue their own draws, so their owner has to seed them in every pass. Étude's own
``Loader`` needs none of this: its batches follow from (seed, epoch, position).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.fast_dataclass import record


@record
class Snapshot:
    """The states of all generators of the process at one moment, as the generators give them."""

    python: Any
    numpy: Any
    torch: Tensor
    cuda: list[Tensor] | None = None

    @classmethod
    def take(cls) -> Snapshot:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        return cls(random.getstate(), np.random.get_state(legacy=True), torch.get_rng_state(), cuda)

    def restore(self) -> None:
        """Restore the generators. CUDA's stay as they are if the number of devices has changed."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda is not None and torch.cuda.is_available() and len(self.cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(self.cuda)

    def state_dict(self) -> dict[str, Any]:
        version, words, gauss = self.python
        name, keys, position, has_gauss, cached = self.numpy
        words, keys = torch.tensor(words, dtype=torch.int64), torch.from_numpy(keys.astype(np.int64))
        state: dict[str, Any] = {
            "python": {"version": version, "words": words, "gauss": gauss},
            "numpy": {"name": name, "keys": keys, "position": position, "has_gauss": has_gauss, "cached": cached},
            "torch": self.torch,
        }
        return state if self.cuda is None else {**state, "cuda": self.cuda}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Snapshot:
        """Read what :meth:`state_dict` returned; tensors may have been moved to a device since."""
        python, legacy, cuda = state["python"], state["numpy"], state.get("cuda")
        keys = np.asarray(torch.as_tensor(legacy["keys"]).cpu()).astype(np.uint32)
        return cls(
            (python["version"], tuple(torch.as_tensor(python["words"]).tolist()), python["gauss"]),
            (legacy["name"], keys, legacy["position"], legacy["has_gauss"], legacy["cached"]),
            state["torch"].cpu(),
            None if cuda is None else [one.cpu() for one in cuda],
        )


class Pass:
    """One pass over a loader, with a position. See the module's text for the contract.

    The generators are looked at twice: at the start, where torch's loader draws the seed of its workers, and at the
    first batch, where samplers draw their order.
    """

    def __init__(self, loader: Iterable[Any], state: Mapping[str, Any] | None = None) -> None:
        self.loader, self.taken = loader, 0
        now = Snapshot.take()
        if state is not None:
            Snapshot.of(state["start"]).restore()
            restore_own(loader, state["own"])
        self._start, self._own = Snapshot.take(), own_states(loader)
        self._first: Snapshot | None = None
        self.batches = iter(loader)
        if state is not None:
            if state["first"] is not None:
                Snapshot.of(state["first"]).restore()
            # The range first: the other way round, zip would take one batch more.
            for _ in zip(range(int(state["taken"])), self, strict=False):
                pass
            now.restore()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._first is None:
            self._first = Snapshot.take()
        batch = next(self.batches)
        self.taken += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        first = None if self._first is None else self._first.state_dict()
        return {"start": self._start.state_dict(), "first": first, "taken": self.taken, "own": self._own}


def own_generators(loader: Any) -> list[torch.Generator]:
    """Return the generators that belong to a loader or to its samplers (``DataLoader(generator=…)``)."""
    batches = getattr(loader, "batch_sampler", None)
    parts = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    found = [getattr(part, "generator", None) for part in parts]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def own_states(loader: Any) -> list[Tensor]:
    """Return the states of :func:`own_generators`."""
    return [generator.get_state() for generator in own_generators(loader)]


def restore_own(loader: Any, states: Sequence[Tensor]) -> None:
    """Restore a loader's own generators, if their number is unchanged."""
    generators = own_generators(loader)
    if len(generators) == len(states):
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state.cpu())


class Replay:
    """Any iterable of batches as a loader that can be saved in the middle of an epoch."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._pass: Pass | None = None
        self._resumed: Mapping[str, Any] | None = None
        self._epoch = 0

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        self._pass = Pass(self.loader, resumed)
        yield from self._pass

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next iteration; drop a position inside another epoch."""
        if epoch != self._epoch:
            self._epoch, self._resumed = epoch, None
        inner = getattr(self.loader, "set_epoch", None)
        if inner is not None:
            inner(epoch)

    def state_dict(self) -> dict[str, Any]:
        position = self._resumed if self._pass is None else self._pass.state_dict()
        return {"epoch": self._epoch, "pass": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._pass, self._resumed = int(state["epoch"]), None, state["pass"]

    def rewind(self) -> None:
        """Start the next iteration at its first batch."""
        self._resumed = None
