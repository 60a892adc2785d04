"""Names of the originals, of the version that a project accepts, and of older numpy: what real projects import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.projects import fetch
from tests.projects.conftest import Projects

HERE = Path(__file__).parent
PROJECT = """\
import mmcv

{lines}
assert mmcv.version_info[:2] <= (1, 7), mmcv.version_info
FOUND = mmcv.__version__
"""


@pytest.mark.pins("mmengine-needs", "mmcv-lite-2.2.0", "mmengine-0.10.7", "opencv")
@pytest.mark.parametrize(("pin", "package"), [("mmcv-1.7.2", "mmcv"), ("mmengine-0.10.7", "mmengine")])
def test_what_the_originals_have_is_served_or_listed_with_a_reason(projects: Projects, pin: str, package: str) -> None:
    done = projects.run(str(HERE / "compare_names.py"), str(fetch.fetch(pin) / package), package)

    assert done.returncode == 0, done.stderr
    listed = json.loads((HERE / "missing_names.json").read_text())[package]
    assert set(done.stdout.split()) - {name for names in listed.values() for name in names} == set()


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ("mmcv_maximum_version = '1.7.0'", "1.7.0"),
        ("MMCV_MAX = '1.5.0'\nassert mmcv.__version__ < MMCV_MAX", "1.4.8"),
        ("mmcv_maximum_version = '1.9.0'", "1.7.2"),
        ("maximum_version = '1.4.0'", "1.7.2"),
    ],
)
def test_mmcv_has_the_newest_version_that_the_project_accepts(projects: Projects, lines: str, version: str) -> None:
    package = projects.cwd / "mmthings"
    package.mkdir()
    (package / "__init__.py").write_text(PROJECT.format(lines=lines))
    code = "import etude.compat; etude.compat.install(); import mmcv, mmthings; print(mmthings.FOUND, mmcv.__version__)"

    assert projects.run("-c", code).stdout.split() == [version, "1.7.2"]


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_a_setting_says_which_version_mmcv_is(projects: Projects) -> None:
    projects = Projects(projects.folders, projects.cwd, {"ETUDE_MMCV_VERSION": "1.4.0"})
    code = "import etude.compat; etude.compat.install(); import mmcv; print(mmcv.__version__, mmcv.version_info)"

    assert projects.run("-c", code).stdout == "1.4.0 (1, 4, 0)\n"


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_mmcv_has_its_packages_and_file_and_a_function_that_is_called_like_its_module(projects: Projects) -> None:
    code = """
import etude.compat; etude.compat.install()
import mmcv
print(mmcv.image.imread.__name__, mmcv.video.VideoReader.__name__, mmcv.arraymisc.quantize.__name__)
print(mmcv.visualization.imshow.__name__, mmcv.__file__)
from mmcv.cnn import fuse_conv_bn
from mmcv.cnn.utils import fuse_conv_bn as same
import mmcv.cnn.utils.fuse_conv_bn
from torch import nn
print(fuse_conv_bn is same is mmcv.cnn.fuse_conv_bn, type(fuse_conv_bn(nn.Sequential(nn.Conv2d(1, 1, 1)))).__name__)
"""
    done = projects.run("-c", code)

    assert done.stdout.split()[:4] == ["imread", "VideoReader", "quantize", "imshow"], done.stderr
    assert done.stdout.split()[4:] == [str(projects.folders[0] / "mmcv/__init__.py"), "True", "Sequential"]


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_dropped_names_of_numpy_come_back_with_one_warning(projects: Projects) -> None:
    code = """
import etude.compat; etude.compat.install()
import random, numpy as np, mmcv
version = mmcv.__version__
print(np.asfarray([1, 2]).dtype, np.int is int, np.bool8(1), np.float(2), hasattr(np, "no_such_name"))
random.seed(np.int64(3)); first = random.random(); random.seed(3); print(first == random.random())
"""
    done = projects.run("-c", code)

    assert done.stdout.split() == ["float64", "True", "True", "2.0", "False", "True"], done.stderr
    assert done.stderr.count("no longer has") == 1
    assert "uses np.asfarray" in done.stderr
