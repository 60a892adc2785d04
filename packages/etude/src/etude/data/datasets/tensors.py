"""Serves tensors that are already in memory, a batch at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etude.errors import ConfigError


class TensorData:
    """Sample ``i`` is row ``i`` of each tensor: a tuple, or the row itself if there is one tensor only.

    >>> data = TensorData(torch.eye(3), torch.tensor([0, 1, 2]))
    >>> data.fetch(torch.tensor([2, 0]))[1].tolist()
    [2, 0]
    """

    #: Nothing is drawn at random, so nothing needs to be seeded.
    deterministic = True

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ConfigError("TensorData needs at least one tensor")
        self.tensors: tuple[Tensor, ...] = tuple(torch.as_tensor(tensor) for tensor in tensors)
        lengths = {len(tensor) for tensor in self.tensors}
        if len(lengths) > 1:
            raise ConfigError(f"TensorData: the tensors have different lengths: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> Any:
        rows = tuple(tensor[index] for tensor in self.tensors)
        return rows if len(rows) > 1 else rows[0]

    def fetch(self, indices: Tensor) -> Any:
        """Return a whole batch at once. It is a copy: changing it in place leaves the dataset unchanged."""
        rows = tuple(tensor.index_select(0, indices) for tensor in self.tensors)
        return rows if len(rows) > 1 else rows[0]
