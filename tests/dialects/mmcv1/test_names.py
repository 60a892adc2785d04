"""Every name that the dialect answers to leads somewhere; what is out of scope says so."""

from __future__ import annotations

import importlib

import pytest

from etude.dialects.mmcv1 import names
from etude.errors import OutOfScope


@pytest.mark.parametrize("module", sorted(names.MODULES))
def test_a_served_module_gives_all_its_names(module: str) -> None:
    served = importlib.import_module(module)
    for name in names.MODULES[module]:
        assert getattr(served, name) is not None


def test_the_same_object_stands_at_its_deep_path() -> None:
    from mmcv import Registry
    from mmcv.runner import HOOKS, EpochBasedRunner, EvalHook, LrUpdaterHook
    from mmcv.runner.epoch_based_runner import EpochBasedRunner as DeepRunner
    from mmcv.runner.hooks import HOOKS as HOOKS_THERE
    from mmcv.runner.hooks.evaluation import EvalHook as DeepEvalHook
    from mmcv.runner.hooks.lr_updater import LrUpdaterHook as DeepLrUpdaterHook
    from mmcv.utils.registry import Registry as DeepRegistry

    assert HOOKS is HOOKS_THERE
    assert (Registry, EpochBasedRunner, EvalHook, LrUpdaterHook) == (
        DeepRegistry,
        DeepRunner,
        DeepEvalHook,
        DeepLrUpdaterHook,
    )


def test_a_backend_of_ones_own_is_registered_at_the_client() -> None:
    from mmcv.fileio import BaseStorageBackend
    from mmcv.fileio.file_client import FileClient, HardDiskBackend

    @FileClient.register_backend("shelf", prefixes="shelf")
    class Shelf(BaseStorageBackend):
        def get(self, filepath: str) -> bytes:
            return filepath.encode()

        def get_text(self, filepath: str, encoding: str = "utf-8") -> str:
            return filepath

    assert FileClient.infer_client(uri="shelf://a").get("shelf://a") == b"shelf://a"
    assert isinstance(FileClient("disk").client, HardDiskBackend)


@pytest.mark.parametrize("module", ["mmcv.ops", "mmcv.image", "mmdet", "mmdet.models", "mmcv.cnn.bricks"])
def test_a_module_out_of_scope_says_so(module: str) -> None:
    with pytest.raises(OutOfScope, match="out of Étude's scope"):
        importlib.import_module(module)


@pytest.mark.parametrize("name", ["imread", "VideoReader"])
def test_a_function_out_of_scope_says_so(name: str) -> None:
    import mmcv

    with pytest.raises(OutOfScope, match="torchvision"):
        getattr(mmcv, name)


def test_a_misspelt_name_is_answered_with_the_near_one() -> None:
    import mmcv.runner

    with pytest.raises(AttributeError, match="did you mean 'EpochBasedRunner'"):
        mmcv.runner.EpochBasedRuner
