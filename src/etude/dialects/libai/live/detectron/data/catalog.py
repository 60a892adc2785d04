"""detectron2's catalogs: data sets by name, and what is known about each; and loaders that a yacs config describes."""

from __future__ import annotations

import itertools
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, IterableDataset

from etude.dialects.libai.lazy.read_errors import hinted, near, put_on
from etude.dialects.libai.live.detectron.config.user_errors import about
from etude.dialects.libai.live.detectron.data import samplers
from etude.errors import ConfigError, OutOfScope


class _DatasetCatalog(UserDict[str, Callable[[], Any]]):
    """Name → a function that gives the samples: a list of dicts, or a data set."""

    def register(self, name: str, func: Callable[[], Any]) -> None:
        assert callable(func), "You must register a function with `DatasetCatalog.register`!"
        assert name not in self, f"Dataset '{name}' is already registered!"
        self[name] = func

    def get(self, name: str) -> Any:  # type: ignore[override]
        """The samples of the data set ``name``."""
        if name not in self:
            error = KeyError(f"Dataset '{name}' is not registered! Available datasets are: {', '.join(self)}")
            put_on(error, ConfigError(error.args[0], hint=near(name, self)))
            raise hinted(error, near(name, self))
        return self[name]()

    def list(self) -> Sequence[str]:
        return [*self]

    def remove(self, name: str) -> None:
        self.pop(name)

    def __str__(self) -> str:
        return f"DatasetCatalog(registered datasets: {', '.join(self)})"

    __repr__ = __str__


class Metadata(SimpleNamespace):
    """What is known about a data set, by attribute; a value that was set stays."""

    name: str = "N/A"

    def __getattr__(self, key: str) -> Any:
        known = ", ".join(self.__dict__)
        about = f"Available keys are {known}." if len(self.__dict__) > 1 else "metadata is empty."
        raise AttributeError(f"Attribute '{key}' does not exist in the metadata of dataset '{self.name}': {about}")

    def __setattr__(self, key: str, value: Any) -> None:
        known = self.__dict__.setdefault(key, value)
        assert known == value, (
            f"Attribute '{key}' in the metadata of '{self.name}' cannot be set to a different value!\n"
            f"{known} != {value}"
        )

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def set(self, **kwargs: Any) -> Metadata:
        for key, value in kwargs.items():
            setattr(self, key, value)
        return self

    def get(self, key: str, default: Any = None) -> Any:
        return self.__dict__.get(key, default)


class _MetadataCatalog(UserDict[str, Metadata]):
    """Name of a data set → its :class:`Metadata`, which is there from the first time that it is asked for."""

    def get(self, name: str) -> Metadata:  # type: ignore[override]
        assert len(name)
        return self.data.setdefault(name, Metadata(name=name))

    def list(self) -> Sequence[str]:
        return [*self]

    def remove(self, name: str) -> None:
        self.pop(name)


_SAMPLERS = ("TrainingSampler", "RepeatFactorTrainingSampler", "RandomSubsetTrainingSampler")

DatasetCatalog = _DatasetCatalog()
MetadataCatalog = _MetadataCatalog()


def get_detection_dataset_dicts(
    names: str | Sequence[str],
    filter_empty: bool = True,
    min_keypoints: int = 0,
    proposal_files: Sequence[str] | None = None,
    check_consistency: bool = True,
) -> Any:
    """The samples of registered data sets as one list; of data sets proper, as one data set.

    ``filter_empty`` leaves out images whose annotations are all crowds, ``min_keypoints`` those with fewer visible
    key points. ``check_consistency`` is taken and not used.
    """
    names = [names] if isinstance(names, str) else names
    assert len(names), "no data set is named: see cfg.DATASETS.TRAIN and cfg.DATASETS.TEST"
    if proposal_files:
        raise OutOfScope("files of proposals are out of Étude's scope: put them into the samples of your data set")
    parts = [DatasetCatalog.get(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        assert isinstance(part, IterableDataset) or len(part), f"Dataset '{name}' is empty!"
    if isinstance(parts[0], Dataset):
        return parts[0] if len(parts) == 1 else ConcatDataset(parts)
    samples = list(itertools.chain.from_iterable(parts))
    if "annotations" in samples[0]:
        samples = [sample for sample in samples if not filter_empty or _shows_something(sample)]
        samples = [sample for sample in samples if min_keypoints <= 0 or _keypoints(sample) >= min_keypoints]
    assert len(samples), f"No valid data found in {','.join(names)}."
    return samples


def _shows_something(sample: Mapping[str, Any]) -> bool:
    return any(annotation.get("iscrowd", 0) == 0 for annotation in sample["annotations"])


def _keypoints(sample: Mapping[str, Any]) -> int:
    """How many key points of a sample can be seen; each is x, y and whether it is visible."""
    points = (annotation["keypoints"] for annotation in sample["annotations"] if "keypoints" in annotation)
    return sum(1 for point in points for visible in point[2::3] if visible > 0)


def train_loader_from_config(cfg: Any, *, mapper: Any = None, dataset: Any = None, sampler: Any = None) -> Any:
    """The arguments of ``build_detection_train_loader`` that a yacs config stands for."""
    keypoints = cfg.MODEL.ROI_KEYPOINT_HEAD.MIN_KEYPOINTS_PER_IMAGE if cfg.MODEL.KEYPOINT_ON else 0
    if dataset is None:
        with about("DATASETS.TRAIN"):
            dataset = get_detection_dataset_dicts(
                cfg.DATASETS.TRAIN,
                filter_empty=cfg.DATALOADER.FILTER_EMPTY_ANNOTATIONS,
                min_keypoints=keypoints,
                proposal_files=cfg.DATASETS.PROPOSAL_FILES_TRAIN if cfg.MODEL.LOAD_PROPOSALS else None,
            )
    with about("SOLVER.IMS_PER_BATCH"):
        samplers.own_batch_size(cfg.SOLVER.IMS_PER_BATCH)
    return {
        "dataset": dataset,
        "sampler": _sampler(cfg.DATALOADER, dataset) if sampler is None else sampler,
        "mapper": _given(mapper),
        "total_batch_size": cfg.SOLVER.IMS_PER_BATCH,
        "aspect_ratio_grouping": cfg.DATALOADER.ASPECT_RATIO_GROUPING,
        "num_workers": cfg.DATALOADER.NUM_WORKERS,
    }


def _sampler(options: Any, dataset: Any) -> Any:
    if isinstance(dataset, IterableDataset):
        return None
    name = options.SAMPLER_TRAIN
    if name == "TrainingSampler":
        return samplers.TrainingSampler(len(dataset))
    if name == "RepeatFactorTrainingSampler":
        kind = samplers.RepeatFactorTrainingSampler
        return kind(kind.repeat_factors_from_category_frequency(dataset, options.REPEAT_THRESHOLD))
    if name == "RandomSubsetTrainingSampler":
        return samplers.RandomSubsetTrainingSampler(len(dataset), options.RANDOM_SUBSET_RATIO)
    with about("DATALOADER.SAMPLER_TRAIN", hint=near(name, _SAMPLERS)):
        raise ValueError(f"Unknown training sampler: {name}")


def test_loader_from_config(cfg: Any, dataset_name: str | Sequence[str], mapper: Any = None) -> Any:
    """The arguments of ``build_detection_test_loader`` that a yacs config stands for."""
    with about("DATASETS.TEST"):
        dataset = get_detection_dataset_dicts(dataset_name, filter_empty=False)
    iterable = isinstance(dataset, IterableDataset)
    return {
        "dataset": dataset,
        "mapper": _given(mapper),
        "num_workers": cfg.DATALOADER.NUM_WORKERS,
        "sampler": None if iterable else samplers.InferenceSampler(len(dataset)),
    }


def _given(mapper: Any) -> Any:
    if mapper is None:
        raise OutOfScope(
            "detectron2.data.DatasetMapper is out of Étude's scope: give a mapper of your own that makes of a sample "
            "what your model takes (mapper=lambda sample: sample)"
        )
    return mapper
