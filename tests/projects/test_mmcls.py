"""MMClassification 0.25.0 on Étude: `etude train` gives the bits of the original engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.projects.checkout import lay_out, machine, result
from tests.projects.conftest import Projects

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
PINS = ("mmcls-0.25.0", "mmcv-lite-2.2.0", "mmengine-0.10.7", "opencv")
OPTIONS = ("--seed", "1", "--work-dir", "out")


@pytest.fixture
def checkout(projects: Projects) -> Projects:
    lay_out(projects.cwd, projects.folders[0])
    return projects


def assert_as_recorded(name: str, folder: Path) -> None:
    found, wanted = result(folder), RECORDED[name]
    assert found["losses"] == pytest.approx(wanted["losses"], rel=1e-3)
    if machine() == RECORDED["machine"]:  # other kernels round otherwise
        assert found == wanted


@pytest.mark.pins(*PINS)
@pytest.mark.parametrize("name", ["vit"])
def test_etude_train_gives_the_bits_of_the_original(checkout: Projects, name: str):
    done = checkout.etude("train", f"{name}.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded(name, checkout.cwd / "out")


@pytest.mark.pins("mmcls-0.25.0", "opencv")
def test_without_an_mmcv_on_disk_the_message_names_mmcv_lite(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "pip install mmcv-lite" in done.stderr
    assert not (checkout.cwd / "out").exists()


@pytest.mark.pins("mmcls-0.25.0", "mmcv-lite-2.2.0")
def test_a_broken_import_is_reported_with_its_own_file(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "No module named 'cv2'" in done.stderr and "pip install opencv-python-headless" in done.stderr
