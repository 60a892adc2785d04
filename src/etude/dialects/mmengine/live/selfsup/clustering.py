"""k-means on features, after whitening them by their principal components."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Kmeans:
    """``k`` clusters of ``pca_dim`` whitened components; ``labels`` holds the result of :meth:`cluster`."""

    def __init__(self, k: int, pca_dim: int = 256, niter: int = 20, seed: int = 0) -> None:
        self.k, self.pca_dim, self.niter, self.seed = k, pca_dim, niter, seed
        self.labels: np.ndarray = np.empty(0, dtype=np.int64)

    def cluster(self, feat: np.ndarray, verbose: bool = False) -> float:
        """Assign every row of ``feat`` to a cluster; gives the mean squared distance to the centres."""
        points = whitened(torch.as_tensor(feat, dtype=torch.float32), self.pca_dim)
        generator = torch.Generator().manual_seed(self.seed)
        centres = points[torch.randperm(len(points), generator=generator)[: self.k]].clone()
        nearest, loss = _assigned(points, centres)
        for _ in range(self.niter):
            counts = torch.bincount(nearest, minlength=len(centres))
            sums = torch.zeros_like(centres).index_add_(0, nearest, points)
            kept = counts > 0
            centres[kept] = sums[kept] / counts[kept, None]
            nearest, loss = _assigned(points, centres)
        self.labels = nearest.numpy().astype(np.int64)
        return loss


def whitened(points: Tensor, dimensions: int) -> Tensor:
    """The first principal components with unit variance, each point scaled to length one."""
    centred = points - points.mean(0)
    rank = min(dimensions, *centred.shape)
    _, values, axes = torch.linalg.svd(centred, full_matrices=False)
    scale = values[:rank] / max(len(points) - 1, 1) ** 0.5
    return torch.nn.functional.normalize(centred @ axes[:rank].T / (scale + 1e-7))


def _assigned(points: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    distances = torch.cdist(points, centres)
    closest = distances.min(1)
    return closest.indices, float(closest.values.square().mean())
