"""Small helpers of MMEngine that projects and their tests use: files, timers, pictures, the environment."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmdb
import numpy as np
import pytest
import torch

from tests.mmengine import toy  # isort: skip  # noqa: F401  (serves the names below)
import mmengine
from mmengine.fileio import HTTPBackend, LocalBackend, copyfile, copytree, get, get_file_backend
from mmengine.fileio.handlers.json_handler import set_default
from mmengine.utils import check_time, requires_package
from mmengine.utils.dl_utils import collect_env, tensor2imgs
from mmengine.utils.timer import _g_timers


@pytest.mark.parametrize("kind", [str, Path])
def test_a_copy_is_named_as_it_was_asked_for(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a.txt").write_text("a")
    target, folder = kind(tmp_path / "b.txt"), kind(tmp_path / "to")
    assert copyfile(kind(tmp_path / "from" / "a.txt"), target) == target
    assert copytree(kind(tmp_path / "from"), folder) == folder
    assert LocalBackend().copyfile(target, folder) == str(tmp_path / "to" / "b.txt")


def test_files_are_read_from_a_database(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "files")) as made, made.begin(write=True) as transaction:
        transaction.put(b"a.png", b"bytes of a")
    args = {"backend": "lmdb", "db_path": str(tmp_path / "files")}
    assert get("a.png", backend_args=args) == b"bytes of a"
    backend = get_file_backend(backend_args=args)
    assert backend.get("a.png") == b"bytes of a"
    assert pickle.loads(pickle.dumps(backend)).get("a.png") == b"bytes of a"
    with pytest.raises(FileNotFoundError, match="has no 'b.png'"):
        backend.get("b.png")


def test_addresses_are_opened_by_a_function_that_can_be_replaced() -> None:
    with patch("mmengine.fileio.backends.http_backend.urlopen") as opened:
        opened.return_value.read.return_value = b"text"
        assert HTTPBackend().get_text("http://somewhere/a.txt") == "text"


def test_what_json_cannot_say_is_turned_into_lists_and_numbers() -> None:
    assert set_default({1}) == [1]
    assert set_default(np.arange(2)) == [0, 1]
    with pytest.raises(TypeError, match="unsupported for json dump"):
        set_default(object())


def test_a_missing_package_is_printed_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    @requires_package("no_such_package")
    def function() -> None: ...

    with pytest.raises(RuntimeError, match="Prerequisites not meet"):
        function()
    assert capsys.readouterr().out == (
        'Prerequisites "no_such_package" are required in method "function" but not found, please install them first.\n'
    )


def test_timers_are_known_by_their_ids() -> None:
    check_time("a timer of this test")
    assert "a timer of this test" in _g_timers


def test_a_batch_is_turned_back_into_pictures() -> None:
    batch = torch.rand(2, 3, 4, 5)
    pictures = tensor2imgs((batch - 0.5) / 2, mean=(0.5,) * 3, std=(2.0,) * 3)
    assert [picture.shape for picture in pictures] == [(4, 5, 3)] * 2
    assert np.allclose(pictures[1][..., ::-1], batch[1].permute(1, 2, 0).numpy(), atol=1e-6)
    assert tensor2imgs(torch.zeros(1, 1, 2, 2), to_bgr=False)[0].shape == (2, 2, 1)
    with pytest.raises(AssertionError):
        tensor2imgs(torch.zeros(1, 2, 2, 2))


def test_the_environment_names_the_version_that_is_kept() -> None:
    found = collect_env()
    assert found["MMEngine"] == mmengine.__version__
    assert {"sys.platform", "Python", "CUDA available", "PyTorch", "PyTorch compiling details", "OpenCV", "GCC"} <= set(
        found
    )
