"""Hooks of MMSelfSup's clustering methods: DeepCluster and ODC."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from etude.dialects.mmengine.live.dist import broadcast, collect_results, get_dist_info
from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook
from etude.dialects.mmengine.live.selfsup import clustering as algorithms
from etude.dialects.mmengine.live.selfsup.utils import get_model


class DeepClusterHook(Hook):
    """Clusters the features of the whole dataset, and makes the clusters the labels of the next epochs.

    Before training (``initial``) and every ``interval`` epochs: extract, cluster, assign, then sample clusters
    uniformly (``unif_sampling``) or weight the loss (``reweight``), and start the head anew.
    """

    def __init__(
        self,
        extract_dataloader: dict[str, Any],
        clustering: Mapping[str, Any],
        unif_sampling: bool,
        reweight: bool,
        reweight_pow: float,
        init_memory: bool = False,
        initial: bool = True,
        interval: int = 1,
        seed: int | None = None,
    ) -> None:
        options = dict(clustering)
        self.clustering_type, self.clustering_cfg = options.pop("type"), options
        self.extract_dataloader, self.seed = extract_dataloader, seed
        self.unif_sampling, self.reweight, self.reweight_pow = unif_sampling, reweight, reweight_pow
        self.init_memory, self.initial, self.interval = init_memory, initial, interval

    def before_train(self, runner: Any) -> None:
        self.data_loader = runner.train_dataloader
        self.extractor = runner.build_dataloader(self.extract_dataloader, seed=self.seed)
        if self.initial:
            self.deepcluster(runner)

    def after_train_epoch(self, runner: Any) -> None:
        if self.every_n_epochs(runner, self.interval):
            self.deepcluster(runner)

    def deepcluster(self, runner: Any) -> None:
        """One round: features → labels → what the next epochs learn."""
        model = get_model(runner.model)
        features = self.extract(runner, model)
        labels = self.cluster(runner, features)
        self.data_loader.dataset.assign_labels(labels)
        if self.unif_sampling:
            self.data_loader.sampler.set_uniform_indices(labels, self.clustering_cfg["k"])
        if self.reweight:
            self.set_reweight(runner, labels, self.reweight_pow)
        model.head._is_init = False
        model.head.init_weights()
        if self.init_memory:
            model.memory_bank.init_memory(features, labels)

    def extract(self, runner: Any, model: Any) -> np.ndarray:
        """Features of all samples, in the order of the dataset, on rank 0; empty on the others."""
        training = model.training
        model.eval()
        rows: list[np.ndarray] = []
        with torch.no_grad():
            for batch in self.extractor:
                inputs, samples = model.data_preprocessor(batch, False)
                features = model(inputs, samples, mode="tensor")
                last = features[-1] if isinstance(features, (list, tuple)) else features
                rows.extend(last.flatten(2).mean(-1).cpu().numpy() if last.dim() > 2 else last.cpu().numpy())
        model.train(training)
        everything = collect_results(rows, len(self.extractor.dataset))
        return np.stack(everything) if everything else np.empty((0, 0), dtype=np.float32)

    def cluster(self, runner: Any, features: np.ndarray) -> np.ndarray:
        """The cluster of each sample; rank 0 finds them and tells the others."""
        rank, world_size = get_dist_info()
        labels = np.zeros(len(self.extractor.dataset), dtype=np.int64)
        if rank == 0:
            algorithm = getattr(algorithms, self.clustering_type)(**self.clustering_cfg)
            algorithm.cluster(features, verbose=True)
            labels = algorithm.labels
            np.save(os.path.join(runner.work_dir, f"cluster_epoch_{runner.epoch}.npy"), labels)
            self.evaluate(runner, labels)
        if world_size > 1:
            shared = torch.from_numpy(labels)
            broadcast(shared, 0)
            labels = shared.numpy()
        return labels

    def set_reweight(self, runner: Any, labels: np.ndarray, reweight_pow: float = 0.5) -> None:
        """Weigh the loss of each cluster by its size."""
        weight = inverse_sizes(labels, self.clustering_cfg["k"], reweight_pow, 1e-10)
        get_model(runner.model).loss_weight.copy_(torch.from_numpy(weight))

    def evaluate(self, runner: Any, new_labels: np.ndarray) -> None:
        """Tell how even the clusters are."""
        runner.logger.info(_shape(new_labels, self.clustering_cfg["k"]))


class ODCHook(Hook):
    """Keeps ODC's memory bank in order: centroids, small clusters, weights of the loss, a line in the log."""

    def __init__(
        self,
        centroids_update_interval: int,
        deal_with_small_clusters_interval: int,
        evaluate_interval: int,
        reweight: bool,
        reweight_pow: float,
        dist_mode: bool = True,
    ) -> None:
        self.centroids_update_interval = centroids_update_interval
        self.deal_with_small_clusters_interval = deal_with_small_clusters_interval
        self.evaluate_interval = evaluate_interval
        self.reweight, self.reweight_pow = reweight, reweight_pow
        self.dist_mode = dist_mode

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        bank = get_model(runner.model).memory_bank
        if self.every_n_train_iters(runner, self.centroids_update_interval):
            bank.update_centroids_memory()
        if self.every_n_train_iters(runner, self.deal_with_small_clusters_interval):
            bank.deal_with_small_clusters()
        if self.reweight:
            self.set_reweight(runner, reweight_pow=self.reweight_pow)
        if self.every_n_train_iters(runner, self.evaluate_interval) and get_dist_info()[0] == 0:
            self.evaluate(runner, bank.label_bank.cpu().numpy())

    def after_train_epoch(self, runner: Any) -> None:
        if self.every_n_epochs(runner, 10) and get_dist_info()[0] == 0:
            labels = get_model(runner.model).memory_bank.label_bank.cpu().numpy()
            np.save(os.path.join(runner.work_dir, f"cluster_epoch_{runner.epoch + 1}.npy"), labels)

    def set_reweight(self, runner: Any, labels: np.ndarray | None = None, reweight_pow: float = 0.5) -> None:
        """Weigh the loss of each cluster by its size."""
        model = get_model(runner.model)
        if labels is None:
            labels = model.memory_bank.label_bank.cpu().numpy()
        weight = inverse_sizes(labels, model.num_classes, reweight_pow, 1e-5)
        model.loss_weight.copy_(torch.from_numpy(weight))

    def evaluate(self, runner: Any, new_labels: np.ndarray) -> None:
        """Tell how even the clusters are."""
        runner.logger.info(_shape(new_labels, int(new_labels.max()) + 1))


def inverse_sizes(labels: np.ndarray, clusters: int, power: float, eps: float) -> np.ndarray:
    """Weights that sum to one and fall with the size of a cluster."""
    inverse = (1.0 / (np.bincount(labels, minlength=clusters).astype(np.float32) + eps)) ** power
    weights: np.ndarray = (inverse / inverse.sum()).astype(np.float32)
    return weights


def _shape(labels: np.ndarray, clusters: int) -> str:
    sizes = np.bincount(labels, minlength=clusters)
    return f"empty_num: {int((sizes == 0).sum())}\tmin_cluster: {int(sizes.min())}\tmax_cluster: {int(sizes.max())}"
