from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from etude.dialects import imports
from etude.errors import OutOfScope
from etude.errors.advice import release_hint, said_in_worker
from etude_openmm.mmcv1 import overlay as layers
from etude_openmm.mmengine import overlay
from tests import zygote


@pytest.fixture(autouse=True)
def served():
    imports.install()


def test_every_served_name_leads_somewhere():
    broken = []
    for module in imports.served_modules():
        if layers.is_layer(module):
            continue  # tests/projects has an mmcv on disk
        loaded = importlib.import_module(module)
        for name, target in imports._tables_for(module).modules[module].items():
            home = target.partition(":")[0]
            if overlay.is_layer(home) or home == "detectron2.config.compat":
                continue  # comes from the mmengine or detectron2 on disk
            try:
                getattr(loaded, name)
            except Exception as error:
                broken.append(f"{module}.{name}: {type(error).__name__}: {error}")
    assert not broken, "\n".join(broken)


def test_an_unknown_name_is_answered_with_the_near_one():
    import mcquic.utils.registry as served_module

    with pytest.raises(AttributeError, match="did you mean 'OptimizerRegistry'"):
        served_module.OptimiserRegistry


def test_so_it_is_by_from_import():
    with pytest.raises(ImportError, match=r"'mmcv.runner' \(served by Étude\) has no 'HOKS'; did you mean 'HOOKS'"):
        from mmcv.runner import HOKS  # noqa: F401
    assert not hasattr(importlib.import_module("mmcv.runner"), "HOKS")


def test_what_is_out_of_scope_says_so():
    with pytest.raises(OutOfScope, match="out of Étude's scope"):
        importlib.import_module("mcquic.service")


def test_a_patch_of_a_served_name_reaches_its_home_and_is_taken_back():
    from etude_mcquic.live import hooks

    original = hooks.splitHooks
    with mock.patch("mcquic.train.hooks.splitHooks", lambda *made: "patched"):
        assert hooks.getAllHooks([]) == "patched"
    assert hooks.splitHooks is original


def test_files_of_the_user_below_a_served_name_are_importable(workdir: Path, monkeypatch):
    (workdir / "mcquic" / "extra").mkdir(parents=True)
    (workdir / "mcquic" / "extra" / "mine.py").write_text("from mcquic.utils.registry import HookRegistry\nX = 3\n")
    monkeypatch.syspath_prepend(str(workdir))
    assert importlib.import_module("mcquic.extra.mine").X == 3


def test_the_init_file_of_a_folder_that_stands_for_a_served_package_is_run(workdir: Path, monkeypatch):
    folder = workdir / "mmcls" / "core" / "utils"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .mine import MINE\n")
    (folder / "mine.py").write_text("MINE = 7\n")
    monkeypatch.syspath_prepend(str(workdir))
    for name in [name for name in sys.modules if name.startswith("mmcls.core")]:
        monkeypatch.delitem(sys.modules, name)
    found = importlib.import_module("mmcls.core.utils")
    assert found.MINE == 7 and callable(found.allreduce_grads)
    for name in [name for name in sys.modules if name.startswith("mmcls.core")]:
        del sys.modules[name]


def test_a_patch_where_the_original_imports_a_name_reaches_the_code_behind():
    from etude_openmm.mmengine.live.hooks import checkpoint_hook

    original = checkpoint_hook.is_main_process
    with mock.patch("mmengine.hooks.checkpoint_hook.is_main_process", lambda: "patched"):
        assert checkpoint_hook.is_main_process() == "patched"
    assert checkpoint_hook.is_main_process is original


def test_a_folder_of_ones_own_does_not_hide_the_served_package(tmp_path):
    """A project with its parts in ``libai/`` has no such package installed; both are found."""
    (tmp_path / "libai").mkdir()
    (tmp_path / "libai" / "mine.py").write_text("value = 7\n")
    code = "import etude.compat as c; c.install(); import libai.mine; from libai.config import LazyCall; print(libai.mine.value)"
    said = zygote.run("-c", code, cwd=tmp_path)
    assert said.stdout.strip() == "7", said.stderr


def test_a_torchvision_that_does_not_fit_torch_is_named():
    if importlib.util.find_spec("torchvision") is not None:
        pytest.skip("the torchvision that is installed brings the operator")
    with pytest.raises(RuntimeError) as raised:  # what importing torchvision does when its compiled part did not load
        torch.library.register_fake("torchvision::nms", lambda *boxes: None)
    assert "this torchvision was built for another torch" in release_hint(str(raised.value))


@pytest.mark.parametrize(("name", "release"), [("in1d", "numpy<2.4"), ("float_of_old", "numpy<1.24")])
def test_the_release_of_numpy_that_had_a_name_is_named(name: str, release: str):
    assert f"'{release}'" in release_hint(f"module 'numpy' has no attribute {name!r}")


def test_the_release_of_pillow_that_makes_pictures_of_no_bits_is_named():
    """Pillow 13 and later raise this for ``ImageOps.posterize(image, 0)``, also in a data worker."""
    said = "ValueError: bits must be between or equal to 1 and 8"
    assert release_hint(said).startswith("; this code is for an older pillow: pip install 'pillow<13'")


@pytest.mark.parametrize(
    "said",
    [
        'Unavailable device "cpu"',
        "Only available for cuda or mlu or npu devices.",
        "Torch not compiled with CUDA enabled",
    ],
)
def test_projects_that_need_gpus_for_several_processes_are_told_so(said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert release_hint(said) == ""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "on CPUs train in one (no --nproc, no --launcher)" in release_hint(said)


def test_the_packages_are_those_of_the_tables():
    modules = imports.packages()
    for module in set(modules.values()):
        names = importlib.import_module(module)
        answered = {package for package, own in modules.items() if own == module}
        assert {name.partition(".")[0] for name in [*names.MODULES, *names.OUT_OF_SCOPE]} == answered


def test_what_a_data_worker_raised_is_said_without_torchs_traceback():
    def fail(index: int) -> None:
        raise FileNotFoundError(2, "No such file or directory", f"{index}.jpg")

    data = torch.utils.data.DataLoader([0], num_workers=1, collate_fn=lambda items: fail(items[0]))
    with pytest.raises(FileNotFoundError) as raised:
        list(data)
    assert said_in_worker(raised.value) == "[Errno 2] No such file or directory: '0.jpg' (in data worker 0)"
    assert said_in_worker(FileNotFoundError("gone")) == ""
