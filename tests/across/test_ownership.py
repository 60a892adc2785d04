"""The rule of ownership: which of Étude, an original and a folder of the user answers to an import name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etude import dialects
from etude.config import no_code
from etude.dialects import ownership
from tests import zygote

INSTALL = "import etude.compat; etude.compat.install()\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def original_mmengine(root: Path) -> Path:
    return write(root, {
        "mmengine/__init__.py": "REAL = True\n", "mmengine/version.py": "__version__ = '0.10.7'\n",
        "mmengine/runner/__init__.py": "raise RuntimeError('the original runs')\n", "mmengine/runner/runner.py": "",
    })  # fmt: skip


def original_mmcv(root: Path, version: str) -> Path:
    return write(root, {
        "mmcv/__init__.py": "REAL = True\n", "mmcv/version.py": f"__version__ = {version!r}\n",
        "mmcv/cnn/bricks/conv_module.py": "", "mmcv/transforms/__init__.py": "class BaseTransform: ...\n",
    })  # fmt: skip


def run(code: str, *paths: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    lines = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    (cwd / "script.py").write_text(lines + code)
    return zygote.run("script.py", cwd=cwd)


def test_an_original_is_told_by_its_marks(tmp_path, monkeypatch):
    write(tmp_path / "users", {"mmcv/__init__.py": "", "mmcv/mine.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "users"))
    assert ownership.user_folders("mmcv") == [str(tmp_path / "users" / "mmcv")]
    original_mmcv(tmp_path / "site", "2.2.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert ownership.original("mmcv") == str(tmp_path / "site" / "mmcv")
    assert ownership.version("mmcv") == "2.2.0" and ownership.generation("mmcv") == 2
    assert ownership.user_folders("mmcv") == [str(tmp_path / "users" / "mmcv")]
    assert ownership.original_folders("mmcv.cnn") == [str(tmp_path / "site" / "mmcv" / "cnn")]


def test_etude_owns_mmengine_although_the_original_is_installed(tmp_path):
    code = (
        INSTALL + "import mmengine, mmengine.registry; print(hasattr(mmengine, 'REAL'), type(mmengine.registry.MODELS))"
    )
    said = run(code, original_mmengine(tmp_path / "site"), cwd=tmp_path)
    assert said.stdout.split(" ", 1)[0] == "False" and "etude_openmm." in said.stdout, said.stderr


def test_a_users_folder_beside_an_original_is_still_the_users(tmp_path):
    site = original_mmengine(tmp_path / "site")
    write(tmp_path, {"mmengine/hooks/mine.py": "X = 7\n"})
    said = run(INSTALL + "import mmengine.hooks.mine as m; print(m.X)", site, cwd=tmp_path)
    assert said.stdout == "7\n", said.stderr


def test_an_original_that_was_imported_before_is_refused(tmp_path):
    said = run("import mmengine\n" + INSTALL, original_mmengine(tmp_path / "site"), cwd=tmp_path)
    assert "mmengine has been imported from" in said.stderr
    assert "call etude.compat.install() before" in said.stderr


def test_a_project_that_is_there_wins_over_the_stand_in(tmp_path):
    site = write(tmp_path / "site", {"mmcls/__init__.py": "REAL = True\n", "mmcls/version.py": "__version__ = '9.9'\n"})
    said = run(INSTALL + "import mmcls; print(mmcls.REAL, mmcls.__file__)", site, cwd=tmp_path)
    assert said.stdout.startswith("True "), said.stderr


def test_the_project_checked_out_in_the_current_folder_wins_over_an_installed_one(tmp_path, monkeypatch):
    files = {"mmcls/__init__.py": "", "mmcls/version.py": "__version__ = '0.25.0'\n"}
    monkeypatch.syspath_prepend(str(write(tmp_path / "site", files)))
    monkeypatch.chdir(tmp_path)
    ownership.enter_checkout()
    assert ownership.original("mmcls") == str(tmp_path / "site" / "mmcls") and str(tmp_path) not in sys.path
    write(tmp_path, files)
    (tmp_path / "c.json").write_text('{"model": {"type": "ImageClassifier"}, "data": {"samples_per_gpu": 2}}')
    with no_code.forbidden():
        dialects.read("c.json")
    assert ownership.original("mmcls") == str(tmp_path / "site" / "mmcls")
    dialects.read("c.json")
    assert ownership.original("mmcls") == str(tmp_path / "mmcls")


def test_a_folder_with_an_init_file_but_without_marks_is_the_users(tmp_path):
    write(tmp_path, {"mmcls/__init__.py": "", "mmcls/mine.py": "from mmcls.models import BACKBONES\nX = 7\n"})
    said = run(INSTALL + "import mmcls.mine as m; print(m.X)", cwd=tmp_path)
    assert said.stdout == "7\n", said.stderr


@pytest.mark.parametrize(
    ("code", "real"),
    [
        ("import mmengine, mmcv", True),
        ("import mmcv, mmengine", True),
        ("from mmcv.transforms import BaseTransform; import mmcv", True),
        ("import mmcv", False),
        ("from mmcv.runner import HOOKS; import mmcv", False),
    ],
)
def test_mmcv_is_of_the_generation_that_its_first_importer_expects(tmp_path, code, real):
    write(tmp_path, {"mine.py": f"{code.replace('; ', chr(10))}\nprint(hasattr(mmcv, 'REAL'))\n"})
    said = run(INSTALL + "import mine", original_mmcv(tmp_path / "site", "2.2.0"), cwd=tmp_path)
    assert said.stdout == f"{real}\n", said.stderr


def test_an_mmcv_of_the_old_generation_is_refused_to_new_code(tmp_path):
    said = run(INSTALL + "import mmengine, mmcv", original_mmcv(tmp_path / "site", "1.7.2"), cwd=tmp_path)
    assert "written for mmcv 2.x, but mmcv 1.7.2 is installed" in said.stderr and "mmcv-lite" in said.stderr


def test_an_mmcv_of_the_generation_before_gives_no_layers(tmp_path):
    before = {"mmcv/__init__.py": "import mmcv._ext\n", "mmcv/version.py": "__version__ = '0.4.4'\n"}
    code = INSTALL + "from mmcv.runner import HOOKS\nprint('engine')\nfrom mmcv.cnn import ConvModule\n"
    said = run(code, write(tmp_path / "site", before), cwd=tmp_path)
    assert said.stdout == "engine\n"
    assert f"mmcv 0.4.4 at {tmp_path}/site/mmcv is too old: pip install mmcv-lite" in said.stderr
