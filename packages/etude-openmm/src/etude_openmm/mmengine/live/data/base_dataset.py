"""MMEngine's BaseDataset: loads annotations, packs them for workers, and applies the pipeline of transforms."""

from __future__ import annotations

import copy
import functools
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from torch.utils.data import Dataset

from etude_openmm.mmengine.live import user_errors
from etude_openmm.shared.file_io.fileio import list_from_file, load
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.registries.root import TRANSFORMS


def force_full_init(old_func: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``full_init()`` of the object before the first call of a decorated method."""

    @functools.wraps(old_func)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(obj, "_fully_initialized", False):
            initialise(obj)
        return old_func(obj, *args, **kwargs)

    return wrapper


def initialise(obj: Any) -> None:
    """Call ``obj.full_init()``, and log that a lazy dataset is loaded now."""
    name = type(obj).__name__
    if not hasattr(obj, "full_init"):
        raise AttributeError(f"{name} does not have full_init method.")
    log_warning(f"{name} was made with lazy_init; it is loaded now (full_init).")
    obj.full_init()
    obj._fully_initialized = True


class Compose:
    """Applies ``transforms`` (callables, or configs of TRANSFORMS) in order. The first that returns None ends it."""

    def __init__(self, transforms: Sequence[dict[str, Any] | Callable[..., Any]] | None) -> None:
        self.transforms: list[Callable[..., Any]] = []
        for transform in transforms or ():
            made = TRANSFORMS.build(transform) if isinstance(transform, dict) else transform
            if not callable(made):
                wanted = "should be a callable object" if made is not transform else "must be a callable object or dict"
                raise TypeError(f"transform {wanted}, but got {type(made)}")
            self.transforms.append(made)

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | None:
        for transform in self.transforms:
            data = transform(data)
            if data is None:
                return None
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


_ANNOTATIONS = ("data_list", "data_address", "data_bytes")


class BaseDataset(Dataset[Any]):
    """The base class of datasets: ``load_data_list``, ``filter_data``, ``indices``, packed for workers, the pipeline.

    An annotation file holds ``metainfo`` and ``data_list``. Metainfo comes from the argument, then from the class
    (``METAINFO``), then from the file. A string that is the path of a file is replaced by the lines of the file.
    """

    METAINFO: ClassVar[dict[str, Any]] = {}
    _fully_initialized: bool = False
    data_bytes: np.ndarray
    data_address: np.ndarray

    def __init__(
        self,
        ann_file: str | None = "",
        metainfo: Mapping[str, Any] | None = None,
        data_root: str | None = "",
        data_prefix: dict[str, Any] = {"img_path": ""},  # noqa: B006
        filter_cfg: dict[str, Any] | None = None,
        indices: int | Sequence[int] | None = None,
        serialize_data: bool = True,
        pipeline: list[Any] = [],  # noqa: B006
        test_mode: bool = False,
        lazy_init: bool = False,
        max_refetch: int = 1000,
    ) -> None:
        self.ann_file, self.data_root = ann_file, data_root
        self._metainfo = self._load_metainfo(copy.deepcopy(metainfo))
        self.data_prefix = copy.copy(data_prefix)
        self.filter_cfg = copy.deepcopy(filter_cfg)
        self._indices = indices
        self.serialize_data, self.test_mode, self.max_refetch = serialize_data, test_mode, max_refetch
        self.data_list: list[dict[str, Any]] = []
        self._join_prefix()
        self.pipeline = Compose(pipeline)
        if not lazy_init:
            self.full_init()

    # -- samples -------------------------------------------------------------------------------------------------

    def __getitem__(self, idx: int) -> Any:
        if not self._fully_initialized:
            initialise(self)
        if self.test_mode:
            data = self.prepare_data(idx)
            if data is None:
                raise self._without_sample("Test time pipline should not get `None` data_sample", idx)
            return data
        for _ in range(self.max_refetch + 1):
            data = self.prepare_data(idx)
            if data is not None:
                return data
            idx = self._rand_another()
        text = f"Cannot find valid image after {self.max_refetch}! Please check your image path and pipeline"
        raise self._without_sample(text, idx)

    def _without_sample(self, text: str, idx: int) -> Exception:
        error = Exception(text)
        user_errors.of_pipeline(error, self, idx)
        return error

    def prepare_data(self, idx: int) -> Any:
        """Return sample ``idx`` after the pipeline; None if another sample should be taken."""
        return self.pipeline(self.get_data_info(idx))

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Return a copy of the annotation of sample ``idx``, with ``sample_idx``."""
        if self.serialize_data:
            number = idx if idx >= 0 else idx + len(self.data_address)
            start = 0 if number == 0 else self.data_address[number - 1].item()
            info: dict[str, Any] = pickle.loads(self.data_bytes[start : self.data_address[number].item()].tobytes())
        else:
            info = copy.deepcopy(self.data_list[idx])
        info["sample_idx"] = idx if idx >= 0 else len(self) + idx
        return info

    @force_full_init
    def __len__(self) -> int:
        return len(self.data_address) if self.serialize_data else len(self.data_list)

    def _rand_another(self) -> int:
        # From numpy's global generator, as in MMEngine: workers seed it, so the same samples come instead.
        return int(np.random.randint(0, len(self)))

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return a copy of the metainfo of the dataset."""
        return copy.deepcopy(self._metainfo)

    # -- loading -------------------------------------------------------------------------------------------------

    def full_init(self) -> None:
        """Load the annotations, filter them, choose ``indices``, and pack them."""
        if self._fully_initialized:
            return
        self.data_list = self.load_data_list()
        self.data_list = self.filter_data()
        if self._indices is not None:
            self.data_list = self._get_unserialized_subset(self._indices)
        if self.serialize_data:
            self.data_bytes, self.data_address = self._serialize_data()
        self._fully_initialized = True

    def load_data_list(self) -> list[dict[str, Any]]:
        """Return the annotations of all samples, from ``ann_file``; to be overridden for other formats."""
        annotations = load(self.ann_file or "")
        if not isinstance(annotations, dict):
            raise TypeError(
                f"The annotations loaded from annotation file should be a dict, but got {type(annotations)}!"
            )
        if "data_list" not in annotations or "metainfo" not in annotations:
            raise ValueError("Annotation must have data_list and metainfo keys")
        for key, value in annotations["metainfo"].items():
            self._metainfo.setdefault(key, value)
        parsed: list[dict[str, Any]] = []
        for raw in annotations["data_list"]:
            info = self.parse_data_info(raw)
            if isinstance(info, dict):
                parsed.append(info)
            elif isinstance(info, list):
                if not all(isinstance(item, dict) for item in info):
                    raise TypeError(f"data_info must be list of dict, but got {[type(item) for item in info]}")
                parsed.extend(info)
            else:
                raise TypeError(f"data_info should be a dict or list of dict, but got {type(info)}")
        return parsed

    def parse_data_info(self, raw_data_info: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the sample or samples of one entry of the annotation file, with prefixes joined to paths."""
        for key, prefix in self.data_prefix.items():
            # The words of this and other messages are MMEngine's, for scripts that look for them.
            assert key in raw_data_info, f"raw_data_info: {raw_data_info} dose not contain prefix key{key}"
            raw_data_info[key] = os.path.join(prefix, raw_data_info[key])
        return raw_data_info

    def filter_data(self) -> list[dict[str, Any]]:
        """Return the annotations to keep; to be overridden, with ``self.filter_cfg`` as settings."""
        return self.data_list

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the classes of a sample; to be overridden where a wrapper balances classes."""
        raise NotImplementedError(f"{type(self).__name__} must implement `get_cat_ids` method")

    @classmethod
    def _load_metainfo(cls, metainfo: Mapping[str, Any] | None = None) -> dict[str, Any]:
        known = copy.deepcopy(cls.METAINFO)
        if metainfo is None:
            return known
        if not hasattr(metainfo, "items"):
            raise TypeError(f"metainfo should be a Mapping or Config, but got {type(metainfo)}")
        for key, value in metainfo.items():
            known[key] = _lines(key, value) if isinstance(value, str) else value
        return known

    def _join_prefix(self) -> None:
        """Put ``data_root`` before the annotation file and the prefixes that are relative."""
        root = self.data_root or ""
        if self.ann_file and not _is_absolute(self.ann_file) and root:
            self.ann_file = os.path.join(root, self.ann_file)
        for key, prefix in self.data_prefix.items():
            if not isinstance(prefix, str):
                raise TypeError(f"prefix should be a string, but got {type(prefix)}")
            if not _is_absolute(prefix) and root:
                self.data_prefix[key] = os.path.join(root, prefix)

    # -- subsets and packing -------------------------------------------------------------------------------------

    @force_full_init
    def get_subset_(self, indices: Sequence[int] | int) -> None:
        """Keep only these samples: a list of them, the first n, or the last n (a negative number)."""
        if self.serialize_data:
            self.data_bytes, self.data_address = self._get_serialized_subset(indices)
        else:
            self.data_list = self._get_unserialized_subset(indices)

    @force_full_init
    def get_subset(self, indices: Sequence[int] | int) -> Self:
        """Return a dataset of these samples; the annotations of the others are not copied."""
        other = self._copy_without_annotation()
        other.get_subset_(indices)
        return other

    def _get_serialized_subset(self, indices: Sequence[int] | int) -> tuple[np.ndarray, np.ndarray]:
        numbers = _numbers(indices, len(self.data_address))
        ends = self.data_address.tolist()
        parts = [self.data_bytes[ends[number - 1] if number else 0 : ends[number]] for number in numbers]
        if not parts:
            return self.data_bytes[:0], self.data_address[:0]
        return np.concatenate(parts), np.cumsum([len(part) for part in parts], dtype=np.int64)

    def _get_unserialized_subset(self, indices: Sequence[int] | int) -> list[dict[str, Any]]:
        return [self.data_list[number] for number in _numbers(indices, len(self.data_list))]

    def _serialize_data(self) -> tuple[np.ndarray, np.ndarray]:
        """Pack all annotations into one array of bytes, which workers share, and return it with the end of each."""
        # One array instead of many objects: workers share its memory, as no reference counts are written into it.
        packed = [pickle.dumps(info, protocol=4) for info in self.data_list]
        self.data_list.clear()
        ends = np.cumsum([len(item) for item in packed], dtype=np.int64)
        return np.frombuffer(b"".join(packed), dtype=np.uint8), ends

    def _copy_without_annotation(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        if id(self) in memo:
            found: Self = memo[id(self)]
            return found
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        for key, value in vars(self).items():
            setattr(other, key, value if key in _ANNOTATIONS else copy.deepcopy(value, memo))
        return other


def _numbers(indices: Sequence[int] | int, length: int) -> list[int]:
    if isinstance(indices, (int, np.integer)):
        assert indices <= length, f"{indices} is out of dataset length({length})"
        return list(range(length))[:indices] if indices >= 0 else list(range(length))[indices:]
    if isinstance(indices, (Sequence, np.ndarray)):
        return [int(index) if index >= 0 else int(index) + length for index in indices]
    raise TypeError(f"indices should be a int or sequence of int, but got {type(indices)}")


def _is_absolute(path: str) -> bool:
    return os.path.isabs(path) or path.startswith(("http://", "https://", "s3://"))


def _lines(key: str, value: str) -> Any:
    try:
        return list_from_file(value)
    except (TypeError, FileNotFoundError, OSError):
        log_warning(f"{value} is not a meta file, simply parsed as meta information")
        return value
