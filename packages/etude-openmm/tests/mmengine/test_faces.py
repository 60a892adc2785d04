"""What code written against MMEngine, such as its own tests, pokes at: tables, errors, private helpers, files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from etude.dialects import imports
from tests.mmengine.toy import make

imports.install()

from mmengine.config import Config, ConfigDict  # noqa: E402
from mmengine.config.utils import _get_external_cfg_base_path, _get_package_and_cfg_path  # noqa: E402
from mmengine.dataset import BaseDataset  # noqa: E402
from mmengine.fileio import FileClient, get  # noqa: E402
from mmengine.fileio.backends import BaseStorageBackend, backends, prefix_to_backends, register_backend  # noqa: E402
from mmengine.fileio.handlers.registry_utils import file_handlers  # noqa: E402
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, EMAHook, LoggerHook  # noqa: E402
from mmengine.logging import HistoryBuffer  # noqa: E402
from mmengine.model import BaseModel, ImgDataPreprocessor  # noqa: E402
from mmengine.model.weight_init import trunc_normal_  # noqa: E402
from mmengine.optim import OptimWrapper, OptimWrapperDict  # noqa: E402
from mmengine.registry import HOOKS, PARAM_SCHEDULERS, RUNNERS, WEIGHT_INITIALIZERS  # noqa: E402
from mmengine.runner.amp import autocast  # noqa: E402
from mmengine.runner.checkpoint import CheckpointLoader, load_from_pavi  # noqa: E402
from mmengine.utils import deprecated_function, get_git_hash  # noqa: E402
from mmengine.visualization import Visualizer  # noqa: E402


def sgd(**options: Any) -> torch.optim.SGD:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, **options)


def test_tables_of_the_root_registries_show_what_comes_with_them() -> None:
    assert {"EMAHook", "CheckpointHook"} <= set(HOOKS.module_dict) and len(HOOKS) >= 14
    assert {"Runner", "FlexibleRunner"} == set(RUNNERS.module_dict)
    assert "Kaiming" in WEIGHT_INITIALIZERS.module_dict and "LinearLR" in repr(PARAM_SCHEDULERS)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: CheckpointHook(save_best="acc", rule=1), AssertionError, '"rule" should be a str or list of str'),
        (lambda: CheckpointHook(save_best="acc", greater_keys=1), AssertionError, "names"),
        (lambda: CheckpointHook(file_client_args={}, backend_args={}), ValueError, "cannot be set at the same time"),
        (lambda: LoggerHook(out_dir=1), TypeError, "out_dir must be a str or Path object"),
        (lambda: EMAHook(begin_iter=-1), AssertionError, "`begin_iter` must larger than"),
        (lambda: EMAHook(begin_iter=1, begin_epoch=1), AssertionError, "`begin_iter` and `begin_epoch`"),
        (
            lambda: OptimWrapper(sgd(), clip_grad={"type": "x", "a": 1}),
            ValueError,
            'type of clip_grad should be "norm"',
        ),
        (lambda: OptimWrapper(sgd(), accumulative_counts=0), AssertionError, "_accumulative_counts at least"),
        (lambda: OptimWrapperDict(a=1), AssertionError, "`OptimWrapperDict` only accept"),
        (lambda: OptimWrapperDict(a=OptimWrapper(sgd())).step(), NotImplementedError, "`step` should be called"),
        (lambda: OptimWrapperDict(a=OptimWrapper(sgd()))["b"], AssertionError, "Cannot find b"),
        (lambda: BaseModel(), TypeError, "abstract"),
        (lambda: ImgDataPreprocessor(mean=[1], std=None), AssertionError, "both None or tuple"),
        (lambda: autocast(device_type="x"), ValueError, "User specified autocast device_type must be"),
        (lambda: load_from_pavi("folder/file.pth"), AssertionError, "pavi://"),
        (lambda: ConfigDict().update({}, {}), TypeError, "only accept one positional argument"),
        (lambda: Config(filename="missing.py"), FileNotFoundError, "does not exist"),
        (lambda: Config({"a": 1}).dump("file.txt"), TypeError, "Unsupported format: txt"),
        (lambda: PARAM_SCHEDULERS.build("x"), AssertionError, "cfg should be a dict"),
        (lambda: _get_package_and_cfg_path("mmdet"), ValueError, "mmdet::folder"),
    ],
)
def test_errors_are_of_the_class_and_say_the_words_that_users_catch(make: Any, error: Any, says: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert says in str(raised.value)


def test_early_stopping_without_its_metric_warns() -> None:
    hook = EarlyStoppingHook(monitor="acc", rule="greater")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hook.after_val_epoch(mock.Mock(), {"loss": 1.0})
    assert "Skip early stopping process" in str(caught[0].message) and "`monitor` (acc)" in str(caught[0].message)


def test_checkpoint_loaders_are_known_by_their_names() -> None:
    schemes = {
        "https://a/b": "http",
        "torchvision://a": "torchvision",
        "openmmlab://a": "openmmlab",
        "x:s3://a": "ceph",
    }
    for uri, name in {**schemes, "mmcls://a": "mmcls", "pavi://a": "pavi", "a/b.pth": "local"}.items():
        assert CheckpointLoader._get_checkpoint_loader(uri).__name__ == f"load_from_{name}"


def test_backends_of_the_user_are_found_by_name_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    class Echo(BaseStorageBackend):
        def get(self, filepath: str) -> str:
            return filepath

        def get_text(self, filepath: str, encoding: str = "utf-8") -> str:
            return filepath

    monkeypatch.delitem(backends, "echo", raising=False)
    register_backend("echo", Echo, prefixes="echo")
    assert get("echo://x") == get("echo://x", backend_args={"backend": "echo"}) == "echo://x"
    with pytest.raises(ValueError, match="force=True"):
        register_backend("echo", Echo)
    del backends["echo"], prefix_to_backends["echo"]
    assert {"json", "yaml", "pkl"} <= set(file_handlers)


def test_clients_are_made_once_and_know_their_backend(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert FileClient("disk") is FileClient("disk") and FileClient("disk").allow_symlink
    assert FileClient.infer_client(uri=str(tmp_path)).get_text(tmp_path / "a.json") == '{"a": 1}'
    with pytest.raises(ValueError, match="Backend hadoop is not supported"):
        FileClient("hadoop")


def test_configs_of_installed_packages_are_looked_up(tmp_path: Path) -> None:
    assert _get_package_and_cfg_path("mmseg::folder/file.py") == ("mmsegmentation", "folder/file.py")
    with pytest.raises(FileNotFoundError):
        _get_external_cfg_base_path(str(tmp_path), "folder/file.py")
    (tmp_path / "c.py").write_text("_base_ = 'mmyolo::folder/file.py'\n")
    with pytest.raises(ImportError, match=r"c\.py:1: .*'mmyolo', which is not installed; pip install mmyolo"):
        Config.fromfile(tmp_path / "c.py")
    (tmp_path / "c.py").write_text("# a slip\n_base_ = 'mmpretrian::folder/file.py'\n")
    with pytest.raises(ImportError, match=r"c\.py:2: .*'mmpretrian'.*; did you mean 'mmpretrain'\?"):
        Config.fromfile(tmp_path / "c.py")


def test_two_names_of_one_base_are_one_object(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("optim = dict(lr=1)\n")
    (tmp_path / "c.py").write_text(
        "from mmengine.config import read_base\nwith read_base():\n    from .base import *\n"
        "    from .base import optim as same\noptim.lr = 3\n"
    )
    assert Config.fromfile(tmp_path / "c.py").same.lr == 3


def test_the_commit_comes_from_a_command_that_can_be_replaced() -> None:
    with mock.patch("mmengine.utils.version_utils._minimal_ext_cmd", lambda cmd: b"abcdef"):
        assert get_git_hash(digits=3) == "abc"


def test_a_deprecated_function_says_so_in_its_docstring() -> None:
    def old() -> None:
        """Do it.

        And more.
        """

    text = deprecated_function("0.2", "0.3", "use new")(old).__doc__ or ""
    assert text.startswith(
        ".. deprecated:: 0.2\n    Deprecated and will be removed in version 0.3.\n    Please use new."
    )
    assert text.endswith("\n\n\n    Do it.\n\n    And more.\n")


def test_histories_and_datasets_check_what_they_are_given(tmp_path: Path) -> None:
    assert HistoryBuffer(max_length=3).max_length == 3
    (tmp_path / "a.json").write_text('{"metainfo": {}, "data_list": [{"img_path": "a"}]}')
    with pytest.raises(AssertionError, match="out of dataset length"):
        BaseDataset(str(tmp_path / "a.json"), data_prefix={"img_path": ""}).get_subset(5)
    assert Visualizer().get_backend("none") is None


def test_merging_changes_no_dict_that_others_hold() -> None:
    shared = ConfigDict(lr=1)
    config = ConfigDict(first=shared, second=shared)
    config.merge({"first": {"lr": 2, "momentum": 0.9}, "new": {"_delete_": True, "a": 1}})
    assert shared == {"lr": 1} and config.second == {"lr": 1}
    assert config.first == {"lr": 2, "momentum": 0.9} and config.new == {"a": 1}


def test_what_is_outdated_or_left_out_is_warned_of(tmp_path: Path) -> None:
    runner = make(tmp_path)
    with pytest.warns(DeprecationWarning, match="backend_args"):
        runner.save_checkpoint(str(tmp_path), "a.pth", {"backend": "disk"}, save_optimizer=False)
    with pytest.warns(UserWarning, match="exceeds the max_length"):
        HistoryBuffer([1, 2], [1, 1], max_length=1)
    with pytest.warns(UserWarning, match="more than 2 std"):
        trunc_normal_(torch.empty(2), mean=9)
