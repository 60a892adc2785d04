"""Registries and builders of MMClassification and MMTracking, and the base class of datasets.

Models, transforms, dataset wrappers and metrics other than accuracy exist only in the projects themselves.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from etude.data.torch_loader.epoch_seeds import follow_torch as worker_init_fn
from etude.data.torch_loader.epoch_seeds import keep_workers, stay_seeded
from etude.errors.spelling import suggest
from etude.optim.lamb import LAMB
from etude_openmm.mmcv1.live.optimizers import OPTIMIZERS
from etude_openmm.mmcv1.live.overlay.registries import MODELS as MMCV_MODELS
from etude_openmm.mmcv1.live.parallel import collate
from etude_openmm.mmcv1.live.utils.dist import get_dist_info
from etude_openmm.shared.errors import ConfigKeyError, ConfigValueError
from etude_openmm.shared.registries.registry_v1 import Registry, build_from_cfg

MODELS = Registry("models", parent=MMCV_MODELS, scope="mmcls")
BACKBONES = NECKS = HEADS = LOSSES = CLASSIFIERS = MODELS
ATTENTION = Registry("attention", scope="mmcls")
TRACK_MODELS = Registry("models", parent=MMCV_MODELS, scope="mmtrack")
TRACKERS = MOTION = REID = AGGREGATORS = TRACK_MODELS
DATASETS = Registry("dataset", scope="mmcls")
PIPELINES = Registry("pipeline", scope="mmcls")
SAMPLERS = Registry("sampler", scope="mmcls")
TRACK_DATASETS = Registry("dataset", scope="mmtrack")
TRACK_PIPELINES = Registry("pipeline", scope="mmtrack")

OPTIMIZERS.register_module(name="Lamb", module=LAMB, force=True)


def build_model(cfg: Any) -> Any:
    """Build a classifier or a part of one. ``build_backbone`` and similar functions of mmcls are the same."""
    return MODELS.build(cfg)


def build_track_model(cfg: Any, train_cfg: Any = None, test_cfg: Any = None) -> Any:
    """Build a tracker or a part of one. ``train_cfg`` and ``test_cfg`` should be in its config."""
    if train_cfg is None and test_cfg is None:
        return TRACK_MODELS.build(cfg)
    warnings.warn("train_cfg and test_cfg outside the model are deprecated", stacklevel=2)
    return TRACK_MODELS.build(cfg, default_args={"train_cfg": train_cfg, "test_cfg": test_cfg})


def build_dataset(cfg: Any, default_args: Mapping[str, Any] | None = None, registry: Registry = DATASETS) -> Any:
    """Build one dataset, or concatenate several from a list."""
    if isinstance(cfg, list | tuple):
        return ConcatDataset([build_dataset(one, default_args, registry) for one in cfg])
    return build_from_cfg(cfg, registry, default_args)


def build_track_dataset(cfg: Any, default_args: Mapping[str, Any] | None = None) -> Any:
    """Build a dataset of MMTracking, see :func:`build_dataset`."""
    return build_dataset(cfg, default_args, TRACK_DATASETS)


def build_sampler(cfg: Any, default_args: Mapping[str, Any] | None = None) -> Any:
    return None if cfg is None else build_from_cfg(cfg, SAMPLERS, default_args)


def build_dataloader(
    dataset: Any,
    samples_per_gpu: int,
    workers_per_gpu: int,
    num_gpus: int = 1,
    dist: bool = True,
    shuffle: bool = True,
    round_up: bool = True,
    seed: int | None = None,
    pin_memory: bool = True,
    persistent_workers: bool = True,
    sampler_cfg: Any = None,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Build a ``DataLoader``. A batch has ``samples_per_gpu`` samples, times the number of devices of this process.

    Workers, persistent ones too, are seeded each epoch by a number that the main process draws, so that a resumed
    run can repeat it.
    """
    rank, world_size = get_dist_info()
    sampler: Any = None
    if sampler_cfg:
        defaults = {"dataset": dataset, "num_replicas": world_size, "rank": rank, "shuffle": shuffle, "seed": seed}
        sampler = build_sampler(sampler_cfg, defaults)
    elif dist:
        sampler = DistributedSampler(
            dataset, num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed or 0, drop_last=not round_up
        )
    share = 1 if dist else max(num_gpus, 1)
    workers = share * workers_per_gpu
    lasting = persistent_workers and workers > 0
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=share * samples_per_gpu,
        sampler=sampler,
        shuffle=shuffle if sampler is None else False,
        num_workers=workers,
        collate_fn=kwargs.pop("collate_fn", partial(collate, samples_per_gpu=samples_per_gpu)),
        pin_memory=pin_memory and torch.cuda.is_available(),
        worker_init_fn=(stay_seeded if lasting else worker_init_fn) if workers else None,
        persistent_workers=lasting,
        **kwargs,
    )
    return keep_workers(loader) if lasting else loader


def build_track_dataloader(
    dataset: Any,
    samples_per_gpu: int,
    workers_per_gpu: int,
    num_gpus: int = 1,
    samples_per_epoch: int | None = None,
    dist: bool = True,
    persistent_workers: bool = False,
    **kwargs: Any,
) -> DataLoader[Any]:
    """Build a ``DataLoader`` for MMTracking, see :func:`build_dataloader`."""
    if samples_per_epoch is not None:
        warnings.warn("samples_per_epoch is not supported: an epoch is one pass over the data", stacklevel=2)
    kwargs["persistent_workers"] = persistent_workers
    return build_dataloader(dataset, samples_per_gpu, workers_per_gpu, num_gpus, dist, **kwargs)


class Compose:
    """Applies transforms in order, each a config of ``PIPELINES`` or a callable. A result of None ends it."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms: list[Callable[[Any], Any]] = []
        for transform in transforms:
            if isinstance(transform, dict):
                transform = build_from_cfg(transform, PIPELINES)
            if not callable(transform):
                raise TypeError(f"a transform must be a dict or callable, got {type(transform).__name__}")
            self.transforms.append(transform)

    def __call__(self, data: Any) -> Any:
        for transform in self.transforms:
            data = transform(data)
            if data is None:
                return None
        return data


#: Metrics that only MMClassification itself has.
_MMCLS_METRICS = ("precision", "recall", "f1_score", "support")


class BaseDataset(Dataset[Any]):
    """The base class of datasets: ``data_infos`` (dicts with ``gt_label``), a pipeline, and accuracy as metric."""

    CLASSES: Sequence[str] | None = None

    def __init__(
        self,
        data_prefix: str = "",
        pipeline: Sequence[Any] = (),
        classes: Sequence[str] | str | None = None,
        ann_file: str | None = None,
        test_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        self.data_prefix, self.ann_file, self.test_mode = data_prefix, ann_file, test_mode
        self.pipeline = Compose(pipeline)
        self.CLASSES = self.get_classes(classes)
        self.data_infos = self.load_annotations()

    def load_annotations(self) -> list[dict[str, Any]]:
        raise AttributeError(f"{type(self).__name__} must define load_annotations()")

    @classmethod
    def get_classes(cls, classes: Any = None) -> Any:
        """Return the class names: those of the dataset class, a sequence, or the lines of a file."""
        if classes is None:
            return cls.CLASSES
        if isinstance(classes, str):
            with open(classes, encoding="utf-8") as file:
                return [line.strip() for line in file if line.strip()]
        return classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.CLASSES or ())}

    def get_gt_labels(self) -> Any:
        return np.array([info["gt_label"] for info in self.data_infos])

    def get_cat_ids(self, idx: int) -> list[int]:
        return [int(self.data_infos[idx]["gt_label"])]

    def prepare_data(self, idx: int) -> Any:
        # A copy, because transforms change what they get.
        return self.pipeline(copy.deepcopy(self.data_infos[idx]))

    def __len__(self) -> int:
        return len(self.data_infos)

    def __getitem__(self, idx: int) -> Any:
        return self.prepare_data(idx)

    def evaluate(
        self,
        results: Any,
        metric: str | Sequence[str] = "accuracy",
        metric_options: Mapping[str, Any] | None = None,
        indices: Any = None,
        logger: Any = None,
    ) -> dict[str, Any]:
        """Return ``accuracy_top-1`` and so on, from a list of scores per sample."""
        options = {"topk": (1, 5), **(metric_options or {})}
        scores, labels = np.vstack(results), self.get_gt_labels()
        if indices is not None:
            labels = labels[indices]
        if len(scores) != len(labels):
            raise AssertionError(f"{len(scores)} results for {len(labels)} samples")
        check_metrics([metric] if isinstance(metric, str) else metric)
        return _accuracies(scores, labels, options["topk"], options.get("thrs", 0.0))


def check_metrics(names: Iterable[str], at: Any = None) -> None:
    """Raise an error for metrics that :meth:`BaseDataset.evaluate` does not have."""
    for name in names:
        if name != "accuracy":
            hint = (
                "pip install mmcls==0.25.0" if name in _MMCLS_METRICS else suggest(name, ["accuracy", *_MMCLS_METRICS])
            )
            raise ConfigValueError(f"metric {name} is not supported", at=at, hint=hint)


def _accuracies(scores: Any, labels: Any, topk: Any, thrs: Any) -> dict[str, float]:
    ks = (topk,) if isinstance(topk, int) else tuple(topk)
    if not ks:
        raise ConfigKeyError("metric_options: topk is empty", hint="write dict(topk=(1, 5))")
    found: dict[str, float] = {}
    for k, share in zip(ks, accuracy(scores, labels, ks, thrs), strict=True):
        name = "accuracy" if isinstance(topk, int) else f"accuracy_top-{k}"
        if isinstance(thrs, tuple):
            found |= {f"{name}_thr_{limit:.2f}": float(one) for limit, one in zip(thrs, share, strict=True)}
        else:
            found[name] = float(share)
    return found


def accuracy(pred: Any, target: Any, topk: int | tuple[int, ...] = 1, thrs: Any = 0.0) -> Any:
    """Return the percentage of samples whose label is among the best ``k`` with a score above the threshold."""
    scores, labels = torch.as_tensor(pred), torch.as_tensor(target)
    ks = (topk,) if isinstance(topk, int) else tuple(topk)
    thresholds = thrs if isinstance(thrs, tuple) else (thrs,)
    best, where = scores.float().topk(min(max(ks), scores.shape[1]), dim=1)
    hit = where == labels.reshape(-1, 1)
    found = []
    for k in ks:
        shares = [
            (hit[:, :k] & (best[:, :k] > limit if limit is not None else True)).any(1).float().mean().reshape(1) * 100
            for limit in thresholds
        ]
        found.append(shares if isinstance(thrs, tuple) else shares[0])
    return found[0] if isinstance(topk, int) else found
