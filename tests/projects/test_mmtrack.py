"""MMTracking 0.14.0 with MMDetection 2.28.2 on Étude: its own networks train on tiny data, and `etude test` measures them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.projects import tiny
from tests.projects.checkout import losses
from tests.projects.conftest import Projects

CONFIGS = Path(__file__).parent / "mmtrack"
PINS = ("mmtrack-0.14.0", "mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0", "opencv", "torchvision-0.15.2")

pytestmark = pytest.mark.pins(*PINS)


@pytest.fixture
def checkout(projects: Projects) -> Projects:
    root = projects.cwd
    for name in ("tools", "configs"):
        (root / name).symlink_to(projects.folders[0] / "mmtrack/.mim" / name)
    for config in CONFIGS.glob("*.py"):
        (root / config.name).write_text(config.read_text())
    return projects


def test_a_re_identification_network_trains(checkout: Projects):
    tiny.write_people(checkout.cwd / "data/MOT17/reid", pictures=1)
    done = checkout.etude("train", "reid.py", "--seed", "1", "--work-dir", "out", "evaluation.interval=9")
    assert done.returncode == 0, done.stderr
    found = losses(checkout.cwd / "out")
    assert len(found) == 16 and found[-1] < found[0]


def test_a_video_detector_trains_by_the_script_of_the_project(checkout: Projects):
    tiny.write_videos(checkout.cwd / "data/ILSVRC")
    done = checkout.etude("exec", "tools/train.py", "selsa.py", "--seed", "1", "--work-dir", "out")
    assert done.returncode == 0, done.stderr
    assert len(losses(checkout.cwd / "out")) == 8
    assert "bbox_mAP_50" in _validation(checkout.cwd / "out")


def test_a_siamese_tracker_trains_and_is_measured(checkout: Projects):
    tiny.write_videos(checkout.cwd / "data/ILSVRC")
    tiny.write_track(checkout.cwd / "data/lasot")
    done = checkout.etude("train", "siamese.py", "--seed", "1", "--work-dir", "out")
    assert done.returncode == 0, done.stderr
    assert len(losses(checkout.cwd / "out")) == 4
    done = checkout.etude("test", "siamese.py", "out/epoch_2.pth", "--out", "found.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((checkout.cwd / "found.json").read_text())
    assert found == {key: _validation(checkout.cwd / "out")[key] for key in found} != {}
    assert done.stdout.startswith("success  ")  # progress bars and what data sets print go elsewhere


def _validation(folder: Path) -> dict[str, Any]:
    """Return the last line of validation in a run's log."""
    lines = [json.loads(line) for file in folder.glob("*.log.json") for line in file.read_text().splitlines()]
    return [line for line in lines if line.get("mode") == "val"][-1]


OP = """\
import torch
from mmcv.ops import RoIPool

pool = RoIPool(2)
print("built")
pool(torch.zeros(1, 1, 8, 8), torch.tensor([[0.0, 0, 0, 4, 4]]))
"""


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_an_op_that_exists_nowhere_is_an_error_when_it_is_called(projects: Projects):
    (projects.cwd / "script.py").write_text(OP)
    done = projects.etude("exec", "script.py")
    assert done.returncode == 2, done.stderr
    assert "built" in done.stdout
    assert "the op 'roi_pool_forward' of mmcv.ops needs compiled code" in done.stderr
    assert "pip install mmcv==1.7.2" in done.stderr
