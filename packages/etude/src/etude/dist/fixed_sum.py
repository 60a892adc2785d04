"""Adds numbers of all ranks in an order that does not depend on how many there are: the pairs of a balanced tree.

.. code-block:: text

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A rank adds what belongs to its own branch, the ranks add their branches. Addition of two numbers gives the same bits
either way round, so any power of two of ranks comes to the same bits. As much is sent as in an all-reduce.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from etude.dist import group


class Branch:
    """Adds tensors in the order of the tree, in memory for as many of them as the tree is deep."""

    def __init__(self) -> None:
        #: Sums that wait for one of the same size: how many were added, and their sum.
        self._waiting: list[tuple[int, Tensor]] = []

    def add(self, tensor: Tensor) -> None:
        """Add ``tensor``, which is changed."""
        count = 1
        while self._waiting and self._waiting[-1][0] == count:
            _, other = self._waiting.pop()
            tensor, count = other.add_(tensor), 2 * count
        self._waiting.append((count, tensor))

    @property
    def sum(self) -> Tensor:
        """The sum of a power of two of tensors."""
        ((_, tensor),) = self._waiting
        return tensor


def over_ranks(tensor: Tensor) -> Tensor:
    """Return the sum of a flat tensor over all ranks, a power of two of them."""
    if not group.is_joined():
        return tensor
    size = distributed.get_world_size()
    if size <= 2:
        distributed.all_reduce(tensor)
        return tensor
    length = tensor.numel()
    each = -(-length // size)
    padded = torch.nn.functional.pad(tensor, (0, each * size - length))
    # Each rank gets one part of the tensor from all ranks, adds it, and sends it to all.
    rows = torch.empty_like(padded)
    distributed.all_to_all_single(rows, padded)
    rows = rows.view(size, each)
    while len(rows) > 1:
        rows = rows[0::2] + rows[1::2]
    distributed.all_gather(list(padded.view(size, each).unbind()), rows[0])
    return padded[:length]
