"""Registries of a project below the root ones: a small stand-in for MMSelfSup."""

from __future__ import annotations

import pytest
import torch

from tests.mmengine import toy as toy  # isort: skip  (serves the names below)
from mmselfsup.registry import HOOKS, OPTIMIZERS
from mmselfsup.utils import register_all_modules
from torch import nn

from mmengine.registry import OPTIMIZERS as ROOT_OPTIMIZERS
from mmengine.registry import DefaultScope


def test_names_are_found_in_their_scope_and_from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultScope, "_instance_dict", DefaultScope._instance_dict.copy())
    register_all_modules()
    assert HOOKS.get("SimSiamHook") is not None and HOOKS.get("EMAHook") is not None
    assert ROOT_OPTIMIZERS.get("mmselfsup.LARS") is OPTIMIZERS.get("LARS") is ROOT_OPTIMIZERS.get("LARS")
    assert DefaultScope.get_current_instance().scope_name == "mmselfsup"


def test_a_name_that_comes_only_with_a_project_is_answered_with_its_package() -> None:
    with pytest.raises(KeyError, match=r"pip install mmpretrain"):
        ROOT_OPTIMIZERS.build({"type": "Adan", "params": [nn.Parameter(torch.zeros(1))]})
