"""The places of ranks: which part of the model a rank holds, and which share of the data is its own.

.. code-block:: text

    axis        ranks that differ in it alone
    pipeline    hold different layers; each batch passes through all of them
    copy        hold the same parameters and train on different samples (ddp, hsdp)
    shard       hold different pieces of the parameters and train on different samples (fsdp, hsdp)
    context     hold the same parameters and different parts of each sequence
    tensor      hold different pieces of the weights and compute one thing together

The last axis changes fastest: the ranks that talk most are neighbours, on one machine.
"""

from __future__ import annotations

from math import prod
from typing import Any

from etude.dist.world import World

AXES = ("pipeline", "copy", "shard", "context", "tensor")


class Mesh:
    """The sizes of all axes, and where this rank is on each of them."""

    def __init__(self, rank: int, *, end: int = -1, virtual: int = 0, **sizes: int) -> None:
        self.rank = rank
        #: In how many parts every batch is computed, whichever number of processes there is; 0: one for each.
        self.virtual = virtual
        self.sizes = {axis: sizes.get(axis, 1) for axis in AXES}
        self.size = prod(self.sizes.values())
        self.place = _coordinates(rank, self.sizes)
        #: Where on the axis of the pipeline its last stage is.
        self.end = end % self.sizes["pipeline"]
        self._devices: Any = None

    @classmethod
    def flat(cls, world: World) -> Mesh:
        """Return the mesh of ranks that each have a share of the data, and nothing else that differs."""
        return cls(world.rank, copy=world.size)

    @property
    def share(self) -> tuple[int, int]:
        """Return which of how many shares of every batch is this rank's; the ranks of one share work on it together."""
        copies, shards = self.sizes["copy"], self.sizes["shard"]
        return self.place["copy"] * shards + self.place["shard"], copies * shards

    @property
    def parts(self) -> int:
        """Return how many virtual ranks this process has; 0 if there are none."""
        return self.virtual // self.share[1]

    @property
    def gradient(self) -> tuple[int, int]:
        """Return which of how many gradients this rank's backward pass makes; their mean is used."""
        (share, shares), parts = self.share, self.sizes["context"]
        return share * parts + self.place["context"], shares * parts

    @property
    def stream(self) -> World:
        """Return whose random numbers this rank draws: tensor-parallel ranks draw the same, all others their own.

        With virtual ranks each part of a batch draws its own, and all else is the same everywhere."""
        if self.virtual:
            return World()
        width = self.sizes["tensor"]
        return World(rank=self.rank // width, size=self.size // width)

    @property
    def is_split(self) -> bool:
        """Return whether several ranks work on one share of the data."""
        return self.share[1] != self.size

    @property
    def is_last(self) -> bool:
        """Return whether this rank holds the end of the model, where outputs and losses are."""
        return self.place["pipeline"] == self.end

    @property
    def counts(self) -> bool:
        """Return whether this rank's results are counted: of ranks that have the same ones, the first."""
        return self.place["tensor"] == 0 and self.is_last

    def connect(self, device: str) -> Any:
        """Return torch's mesh of all axes. Every rank calls it, for the first time before anything is split."""
        if self._devices is None:
            from torch.distributed.device_mesh import init_device_mesh

            self._devices = init_device_mesh(device, tuple(self.sizes.values()), mesh_dim_names=AXES)
        return self._devices

    def group(self, axis: str) -> Any:
        """Return the process group of the ranks that differ from this one in ``axis`` alone."""
        return self._devices[axis].get_group()

    def is_first(self, tensor: Any = None) -> bool:
        """Return whether this rank is the first of those that hold what ``tensor`` is here, or of its stage."""
        known = getattr(getattr(tensor, "device_mesh", None), "mesh_dim_names", None) or ()
        covered = {axis for name in known for axis in name.split("_")} | {"pipeline"}
        return not any(at for axis, at in self.place.items() if axis not in covered)

    def __repr__(self) -> str:
        used = [f"{axis} {self.place[axis]} of {size}" for axis, size in self.sizes.items() if size > 1]
        return f"<Mesh: {', '.join(used) or 'one process'}>"


def _coordinates(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    place = {}
    for axis in reversed(AXES):
        rank, place[axis] = divmod(rank, sizes[axis])
    return place
