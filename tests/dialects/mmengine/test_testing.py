"""``mmengine.testing``: what the test suites of users' packages stand on."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import nn

from etude.dialects import imports

imports.install()

import mmengine  # noqa: E402
import mmengine.testing as testing  # noqa: E402
from mmengine.registry import MODELS  # noqa: E402
from mmengine.testing import RunnerTestCase  # noqa: E402
from mmengine.testing._internal import MultiProcessTestCase  # noqa: E402
from mmengine.utils import digit_version  # noqa: E402


class TestSmallRunners(RunnerTestCase):
    def test_runs_by_epochs_and_by_iterations(self) -> None:
        for cfg, iterations in ((self.epoch_based_cfg, 8), (self.iter_based_cfg, 12)):
            runner = self.build_runner(cfg)
            runner.train()
            runner.test()
            assert runner.iter == iterations

    def test_the_environment_of_a_launcher_comes_and_goes(self) -> None:
        self.setup_dist_env()
        assert os.environ["WORLD_SIZE"] == "1"
        self.clear_dist_env()
        assert "WORLD_SIZE" not in os.environ

    def tearDown(self) -> None:
        super().tearDown()
        assert "ToyModel" not in MODELS.module_dict


class TestTwoProcesses(MultiProcessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._fork_processes()

    def test_both_have_a_rank(self) -> None:
        assert self.rank in (0, 1) and self.world_size == 2


class TestPreparedProcesses(MultiProcessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        self.prepared = test_name
        super().run_test(test_name, parent_pipe)

    def test_every_process_is_prepared(self) -> None:
        assert self.prepared == "test_every_process_is_prepared"


def test_a_process_that_fails_is_told_of() -> None:
    class Failing(MultiProcessTestCase):
        def setUp(self) -> None:
            super().setUp()
            self._fork_processes()

        def test_it(self) -> None:
            os._exit(3)

    result = Failing("test_it").run()
    assert len(result.failures) == 1 and "process 0 of test_it failed" in result.failures[0][1]


def test_comparisons() -> None:
    testing.assert_allclose(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    with pytest.raises(AssertionError, match="far"):
        testing.assert_allclose(1.0, 2.0, msg="far apart")
    assert testing.assert_dict_contains_subset({"a": torch.ones(2), "b": 2}, {"a": torch.ones(2)})
    assert not testing.assert_dict_contains_subset({"a": 1}, {"a": 2})
    assert testing.assert_attrs_equal(nn.Linear(2, 3), {"in_features": 2, "out_features": 3})
    assert testing.assert_dict_has_keys({"a": 1, "b": 2}, ["a"]) and testing.assert_keys_equal(["a", "b"], ["b", "a"])
    assert testing.assert_is_norm_layer(nn.LayerNorm(2)) and not testing.assert_is_norm_layer(nn.Linear(1, 1))
    assert testing.assert_params_all_zeros(nn.BatchNorm1d(2, affine=False))
    assert not testing.assert_params_all_zeros(nn.BatchNorm1d(2))


def test_users_can_ask_for_the_version() -> None:
    assert digit_version("0.10.0") <= digit_version(mmengine.__version__) < digit_version("1.0.0")
