"""``mmengine.testing``: comparisons, and a test case with small runners for hooks and loops of one's own."""

from __future__ import annotations

import logging
import os
import runpy
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest import TestCase, mock

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from etude.dialects.mmengine.live.dist.utils import is_distributed
from etude.dialects.mmengine.live.evaluator import BaseMetric
from etude.dialects.mmengine.live.logging import MessageHub, MMLogger
from etude.dialects.mmengine.live.model.base_model import BaseModel
from etude.dialects.mmengine.live.registry import DATASETS, METRICS, MODELS
from etude.dialects.mmengine.live.visualization import Visualizer
from etude.dialects.openmm.config.config_v2 import Config
from etude.dialects.openmm.registries.scope import DefaultScope

# -- comparisons -----------------------------------------------------------------------------------------------------


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: Any = "",
) -> None:
    """torch's ``assert_close`` for numbers and tensors of any kind."""
    if isinstance(actual, torch.Tensor) or isinstance(expected, torch.Tensor):
        actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    torch.testing.assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=str(msg) or None
    )


def assert_dict_contains_subset(dict_obj: dict[Any, Any], expected_subset: dict[Any, Any]) -> bool:
    """Whether all of ``expected_subset`` is in ``dict_obj``."""
    return all(key in dict_obj and _equal(dict_obj[key], value) for key, value in expected_subset.items())


def assert_attrs_equal(obj: Any, expected_attrs: dict[str, Any]) -> bool:
    """Whether ``obj`` has these attributes with these values."""
    return all(hasattr(obj, name) and _equal(getattr(obj, name), value) for name, value in expected_attrs.items())


def assert_dict_has_keys(obj: dict[str, Any], expected_keys: list[str]) -> bool:
    """Whether ``obj`` has all these keys."""
    return set(expected_keys) <= set(obj)


def assert_keys_equal(result_keys: Iterable[str], target_keys: Iterable[str]) -> bool:
    """Whether both have the same keys, in any order."""
    return set(result_keys) == set(target_keys)


def assert_is_norm_layer(module: nn.Module) -> bool:
    """Whether ``module`` normalises."""
    return isinstance(
        module, (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm, nn.GroupNorm, nn.LayerNorm)
    )


def assert_params_all_zeros(module: nn.Module) -> bool:
    """Whether weight and bias are zero, as far as there are any."""
    params = [getattr(module, name, None) for name in ("weight", "bias")]
    return all(param is None or bool((param.data == 0).all()) for param in params)


def check_python_script(cmd: str) -> None:
    """Run ``[python] script.py arguments`` in this process."""
    script, *rest = [word for word in shlex.split(cmd) if word != "python"]
    with mock.patch.object(sys, "argv", [script, *rest]):
        runpy.run_path(script, run_name="__main__")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, (np.ndarray, torch.Tensor)):
        return bool((one == other).all())
    return bool(one == other)


# -- small runners ---------------------------------------------------------------------------------------------------


class ToyModel(BaseModel):
    """Two linear layers."""

    def __init__(self, data_preprocessor: Any = None) -> None:
        super().__init__(data_preprocessor=data_preprocessor)
        self.linear1 = nn.Linear(2, 2)
        self.linear2 = nn.Linear(2, 1)

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        stacked = torch.stack(inputs) if isinstance(inputs, list) else inputs
        outputs = self.linear2(self.linear1(stacked))
        if mode != "loss":
            return outputs
        targets = torch.stack(data_samples) if isinstance(data_samples, list) else data_samples
        return {"loss": (targets - outputs).sum()}


class ToyDataset(Dataset[Any]):
    """Twelve samples of two numbers."""

    METAINFO: ClassVar[dict[str, Any]] = {}
    data, label = torch.randn(12, 2), torch.ones(12)

    @property
    def metainfo(self) -> dict[str, Any]:
        return self.METAINFO

    def __len__(self) -> int:
        return int(self.data.size(0))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.data[index], "data_samples": self.label[index]}


class ToyMetric(BaseMetric):
    """An accuracy of 1."""

    def __init__(self, collect_device: str = "cpu", dummy_metrics: dict[str, Any] | None = None) -> None:
        super().__init__(collect_device=collect_device)
        self.dummy_metrics = dummy_metrics

    def process(self, data_batch: Any, predictions: Any) -> None:
        self.results.append({"acc": 1})

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {"acc": 1}


_TOYS = ((MODELS, ToyModel), (DATASETS, ToyDataset), (METRICS, ToyMetric))


def _loader(sampler: str, *, shuffle: bool) -> dict[str, Any]:
    return {
        "dataset": {"type": "ToyDataset"}, "sampler": {"type": sampler, "shuffle": shuffle},
        "batch_size": 3, "num_workers": 0,
    }  # fmt: skip


class RunnerTestCase(TestCase):
    """``self.epoch_based_cfg`` and ``self.iter_based_cfg`` describe small runs; ``build_runner(cfg)`` makes one.

    Each test has a folder of its own, and what loggers, hubs and visualizers it made is forgotten afterwards.
    """

    dist_cfg: ClassVar[dict[str, Any]] = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29600, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
    }  # fmt: skip

    def setUp(self) -> None:
        self.temp_dir = TemporaryDirectory()
        for registry, toy in _TOYS:
            registry.register_module(module=toy, force=True)
        common: dict[str, Any] = {
            "work_dir": self.temp_dir.name, "model": {"type": "ToyModel"}, "experiment_name": "test1",
            "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1}},
            "env_cfg": {"dist_cfg": {"backend": "nccl"}}, "custom_hooks": [], "val_cfg": {}, "test_cfg": {},
        }  # fmt: skip
        for mode in ("val", "test"):
            common[f"{mode}_dataloader"] = _loader("DefaultSampler", shuffle=False)
            common[f"{mode}_evaluator"] = [{"type": "ToyMetric"}]
        by_epoch = {
            "train_dataloader": _loader("DefaultSampler", shuffle=True),
            "train_cfg": {"by_epoch": True, "max_epochs": 2, "val_interval": 1},
            "default_hooks": {"logger": {"type": "LoggerHook", "interval": 1}},
        }
        by_iter = {
            "train_dataloader": _loader("InfiniteSampler", shuffle=True),
            "train_cfg": {"by_epoch": False, "max_iters": 12},
            "log_processor": {"by_epoch": False},
            "default_hooks": {
                "logger": {"type": "LoggerHook", "interval": 1},
                "checkpoint": {"type": "CheckpointHook", "interval": 12, "by_epoch": False},
            },
        }
        self.epoch_based_cfg: Any = Config({**common, **by_epoch})
        self.iter_based_cfg: Any = Config({**common, **by_iter})

    def tearDown(self) -> None:
        logging.shutdown()
        for managed in (MMLogger, Visualizer, DefaultScope, MessageHub):
            managed._instance_dict.clear()
        for registry, toy in _TOYS:
            registry.module_dict.pop(toy.__name__, None)
        self.temp_dir.cleanup()
        if is_distributed():
            torch.distributed.destroy_process_group()

    def build_runner(self, cfg: Any) -> Any:
        """A runner of ``cfg`` with a name that no other has."""
        from etude.dialects.mmengine.live.runner.runner import Runner

        cfg.experiment_name = self.experiment_name
        return Runner.from_cfg(cfg)

    @property
    def experiment_name(self) -> str:
        """A new name."""
        return f"{self._testMethodName}_{time.time()}_{uuid.uuid4()}"

    def setup_dist_env(self) -> None:
        """What a launcher of one process would set, with a port that no earlier test used."""
        self.dist_cfg["MASTER_PORT"] += 1
        for name, value in self.dist_cfg.items():
            os.environ[name] = str(value)

    def clear_work_dir(self) -> None:
        """Empty the folder of the test."""
        logging.shutdown()
        for entry in os.scandir(self.temp_dir.name):
            shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)

    def clear_dist_env(self) -> None:
        """Undo :meth:`setup_dist_env`."""
        for name in self.dist_cfg:
            os.environ.pop(name, None)
