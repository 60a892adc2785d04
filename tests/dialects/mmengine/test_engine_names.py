"""Every name of the engine half can be imported, from the package and from its own module."""

from __future__ import annotations

import importlib

import pytest
import torch

from etude.dialects import imports
from etude.dialects.mmengine import names_engine
from etude.errors import OutOfScope

imports.install()
from mmengine.testing import RunnerTestCase  # noqa: E402


@pytest.mark.parametrize("module", sorted(names_engine.MODULES))
def test_a_module_gives_its_names(module: str) -> None:
    served = importlib.import_module(module)
    for name in names_engine.MODULES[module]:
        assert getattr(served, name) is not None


@pytest.mark.parametrize("registry", sorted(names_engine.REGISTERED))
def test_a_registry_finds_its_entries_by_name(registry: str) -> None:
    table = getattr(importlib.import_module("mmengine.registry"), registry)
    for name in names_engine.REGISTERED[registry]:
        assert table.get(name) is not None, name


def test_what_is_out_of_scope_says_what_to_use() -> None:
    with pytest.raises(OutOfScope, match="FSDPStrategy"):
        importlib.import_module("mmengine._strategy.deepspeed")


class TestCaseForUsers(RunnerTestCase):
    """The test case that downstream projects derive theirs from."""

    def test_both_kinds_of_loops_run(self) -> None:
        for cfg, iters in ((self.epoch_based_cfg, 8), (self.iter_based_cfg, 12)):
            cfg.log_level = "ERROR"
            runner = self.build_runner(cfg)
            runner.train()
            assert runner.iter == iters and runner.test() == {"acc": 1}

    def test_comparisons(self) -> None:
        from mmengine import testing

        testing.assert_allclose(torch.ones(2), torch.ones(2) + 1e-9)
        with pytest.raises(AssertionError):
            testing.assert_allclose(torch.ones(2), torch.zeros(2))
        assert testing.assert_dict_contains_subset({"a": 1, "b": torch.ones(1)}, {"b": torch.ones(1)})
        assert testing.assert_attrs_equal(torch.nn.Linear(2, 3), {"in_features": 2})
        assert not testing.assert_params_all_zeros(torch.nn.Linear(2, 3))
        assert testing.assert_is_norm_layer(torch.nn.BatchNorm1d(2)) and testing.assert_keys_equal([1, 2], (2, 1))
