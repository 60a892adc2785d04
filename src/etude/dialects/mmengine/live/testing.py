"""Helpers for users' own tests: comparisons, and a test case with a small runner's configs."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from unittest import TestCase
from uuid import uuid4

import torch
from torch import nn
from torch.utils.data import Dataset

from etude.dialects.mmengine.live.data.sampler import InfiniteSampler
from etude.dialects.mmengine.live.evaluator import BaseMetric
from etude.dialects.mmengine.live.logging.logger import MMLogger
from etude.dialects.mmengine.live.logging.message_hub import MessageHub
from etude.dialects.mmengine.live.model.base_model import BaseModel
from etude.dialects.mmengine.live.registry import DATASETS, METRICS, MODELS
from etude.dialects.mmengine.live.runner.runner import Runner
from etude.dialects.mmengine.live.visualization import Visualizer
from etude.dialects.openmm.configdict import ConfigDict
from etude.dialects.openmm.scope import DefaultScope
from etude.dialects.openmm.torch_utils import is_norm

# -- comparisons -------------------------------------------------------------------------------------------------------


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str | Callable[[str], str] | None = "",
) -> None:
    """Raise an ``AssertionError`` where two tensors differ by more than the tolerance."""
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=msg or None)


def check_python_script(cmd: str) -> None:
    """Run a Python command line in this process; an error in it is raised."""
    import runpy
    import shlex
    from unittest.mock import patch

    arguments = shlex.split(cmd)
    if arguments and arguments[0] == "python":
        arguments = arguments[1:]
    with patch("sys.argv", arguments):
        runpy.run_path(arguments[0], run_name="__main__")


def assert_dict_contains_subset(dict_obj: Mapping[Any, Any], expected_subset: Mapping[Any, Any]) -> bool:
    """Whether ``dict_obj`` has every pair of ``expected_subset``."""
    return all(key in dict_obj and _equal(dict_obj[key], value) for key, value in expected_subset.items())


def assert_attrs_equal(obj: Any, expected_attrs: Mapping[str, Any]) -> bool:
    """Whether ``obj`` has these attributes with these values."""
    return all(hasattr(obj, name) and _equal(getattr(obj, name), value) for name, value in expected_attrs.items())


def assert_dict_has_keys(obj: Mapping[Any, Any], expected_keys: Iterable[Any]) -> bool:
    """Whether ``obj`` has at least these keys."""
    return set(expected_keys) <= set(obj)


def assert_keys_equal(result_keys: Iterable[Any], target_keys: Iterable[Any]) -> bool:
    """Whether both are the same set of keys."""
    return set(result_keys) == set(target_keys)


def assert_is_norm_layer(module: nn.Module) -> bool:
    """Whether ``module`` normalises."""
    return is_norm(module)


def assert_params_all_zeros(module: nn.Module) -> bool:
    """Whether weight and bias of ``module`` are all zero."""
    tensors = [getattr(module, name, None) for name in ("weight", "bias")]
    return all(not tensor.any() for tensor in tensors if isinstance(tensor, torch.Tensor))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    return bool(one == other)


# -- a small run -------------------------------------------------------------------------------------------------------


class ToyModel(BaseModel):
    """Two layers; the loss is the sum of all errors."""

    def __init__(self, data_preprocessor: Any = None) -> None:
        super().__init__(data_preprocessor=data_preprocessor)
        self.linear1, self.linear2 = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        inputs = torch.stack(inputs) if isinstance(inputs, list) else inputs
        data_samples = torch.stack(data_samples) if isinstance(data_samples, list) else data_samples
        outputs = self.linear2(self.linear1(inputs))
        return {"loss": (data_samples - outputs).sum()} if mode == "loss" else outputs


class ToyDataset(Dataset[Any]):
    """Twelve random points, all with the label 1."""

    METAINFO: dict[str, Any] = {}
    data = torch.randn(12, 2)
    label = torch.ones(12)

    @property
    def metainfo(self) -> dict[str, Any]:
        return self.METAINFO

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.data[index], "data_samples": self.label[index]}


class ToyMetric(BaseMetric):
    """Always ``acc`` 1, or the metrics it is given one after the other."""

    def __init__(self, collect_device: str = "cpu", dummy_metrics: list[Any] | None = None) -> None:
        super().__init__(collect_device=collect_device)
        self.dummy_metrics, self.count = dummy_metrics, 0

    def process(self, data_batch: Any, predictions: Any) -> None:
        self.results.append({"acc": 1})

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        self.count += 1
        return {"acc": 1} if self.dummy_metrics is None else self.dummy_metrics[self.count - 1]


class RunnerTestCase(TestCase):
    """``epoch_based_cfg`` and ``iter_based_cfg``, fresh for every test, and :meth:`build_runner` for them."""

    dist_cfg: dict[str, Any] = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29600, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"
    }  # fmt: skip

    def setUp(self) -> None:
        self.temp_dir = tempfile.TemporaryDirectory()
        MODELS.register_module(module=ToyModel, force=True)
        METRICS.register_module(module=ToyMetric, force=True)
        DATASETS.register_module(module=ToyDataset, force=True)
        self.epoch_based_cfg = ConfigDict(_epoch_based(self.temp_dir.name))
        self.iter_based_cfg = copy.deepcopy(self.epoch_based_cfg)
        self.iter_based_cfg.train_dataloader.sampler.type = InfiniteSampler
        self.iter_based_cfg.train_cfg = {"by_epoch": False, "max_iters": 12}
        self.iter_based_cfg.log_processor = {"by_epoch": False}
        self.iter_based_cfg.default_hooks = {
            "logger": {"type": "LoggerHook", "interval": 1},
            "checkpoint": {"type": "CheckpointHook", "interval": 12, "by_epoch": False},
        }

    def tearDown(self) -> None:
        logging.shutdown()
        for managed in (MMLogger, Visualizer, DefaultScope, MessageHub):
            managed._instance_dict.clear()
        for registry, name in ((MODELS, "ToyModel"), (METRICS, "ToyMetric"), (DATASETS, "ToyDataset")):
            registry.module_dict.pop(name, None)
        self.temp_dir.cleanup()

    def build_runner(self, cfg: Any) -> Runner:
        """A runner with a name that no other has."""
        cfg.experiment_name = self.experiment_name
        runner: Runner = Runner.from_cfg(cfg)
        return runner

    @property
    def experiment_name(self) -> str:
        return f"{self._testMethodName}_{time.time()} + {uuid4()}"

    def setup_dist_env(self) -> None:
        """The environment of a launcher with one process."""
        self.dist_cfg["MASTER_PORT"] += 1
        os.environ.update({key: str(value) for key, value in self.dist_cfg.items()})

    def clear_work_dir(self) -> None:
        """An empty folder again."""
        logging.shutdown()
        self.temp_dir.cleanup()
        os.makedirs(self.temp_dir.name, exist_ok=True)


def _epoch_based(folder: str) -> dict[str, Any]:
    def loader(shuffle: bool) -> dict[str, Any]:
        sampler = {"type": "DefaultSampler", "shuffle": shuffle}
        return {"dataset": {"type": "ToyDataset"}, "sampler": sampler, "batch_size": 3, "num_workers": 0}

    return {
        "work_dir": folder,
        "model": {"type": "ToyModel"},
        "train_dataloader": loader(True),
        "val_dataloader": loader(False),
        "val_evaluator": [{"type": "ToyMetric"}],
        "test_dataloader": loader(False),
        "test_evaluator": [{"type": "ToyMetric"}],
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "train_cfg": {"by_epoch": True, "max_epochs": 2, "val_interval": 1},
        "val_cfg": {},
        "test_cfg": {},
        "default_hooks": {"logger": {"type": "LoggerHook", "interval": 1}},
        "custom_hooks": [],
        "env_cfg": {"dist_cfg": {"backend": "nccl"}},
        "experiment_name": "test1",
    }
