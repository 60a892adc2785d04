"""MMTracking 0.14.0 with MMDetection 2.28.2 on Étude: their own networks train on tiny data, and are measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import sampling
from tests.projects import tiny
from tests.projects.checkout import THREE_WAYS, assert_as_recorded, lay_out_tracking, losses
from tests.projects.conftest import Projects

PINS = ("mmtrack-0.14.0", "mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0", "opencv")  # and no torchvision
OPTIONS = ("--seed", "1", "--work-dir", "out")

pytestmark = pytest.mark.pins(*PINS)


@pytest.fixture
def checkout(projects: Projects) -> Projects:
    lay_out_tracking(projects.cwd, *projects.folders[:2])
    return projects


@pytest.fixture
def ready(checkout: Projects) -> Projects:
    """The same, where the slow imports are done."""
    return replace(checkout, imports="mmdet.apis, mmtrack.apis, mmtrack.datasets, mmtrack.models")


OWN_SCRIPT = THREE_WAYS.format(
    imports="from mmdet.apis import set_random_seed, train_detector\n"
    "from mmtrack.datasets import build_dataset\n"
    "from mmtrack.models import build_reid",
    lines="    model = build_reid(cfg.model.reid)\n"
    "    model.init_weights()\n"
    "    train_detector(model, [build_dataset(cfg.data.train)], cfg)",
)


def test_a_re_identification_network_ends_in_the_bits_of_the_original_by_train_exec_and_an_own_script(
    ready: Projects,
):
    """The next test trains by ``etude train``, too; with ``make test-all`` this one does."""
    ways = ["train", "exec", "own"] if sampling.ALL else ["exec", "own"]
    (ready.cwd / "own.py").write_text(OWN_SCRIPT)
    done = replace(ready, env={"WAYS": " ".join(ways)}).run(
        "own.py", "reid.py", "tools/train.py", "--no-validate", "--cfg-options", "device=cpu"
    )
    assert done.returncode == 0, done.stderr
    for way in ways:
        assert_as_recorded("reid", ready.cwd / way)


def test_a_detector_ends_in_the_bits_of_the_original_and_is_measured(checkout: Projects, ready: Projects):
    """With ``make test-all`` it does the imports itself, as a first test of MMClassification always does."""
    done = (checkout if sampling.ALL else ready).etude("train", "retinanet.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("retinanet", checkout.cwd / "out")
    done = ready.etude("test", "retinanet.py", "out/epoch_2.pth", "--out", "found.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((checkout.cwd / "found.json").read_text())
    measured = _validation(checkout.cwd / "out")
    assert found["bbox_mAP"] == measured["bbox_mAP"] and "bbox_mAP_50" in found


@pytest.mark.thorough  # a detector is trained above
def test_a_detector_whose_hooks_change_data_and_losses_ends_in_the_bits_of_the_original(ready: Projects):
    done = ready.etude("train", "yolox.py", "--no-validate", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("yolox", ready.cwd / "out")


def test_a_video_detector_trains_by_the_script_of_the_project(ready: Projects):
    done = ready.etude("exec", "tools/train.py", "selsa.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert len(losses(ready.cwd / "out")) == 8
    assert "bbox_mAP_50" in _validation(ready.cwd / "out")


def test_a_siamese_tracker_ends_in_the_bits_of_the_original_and_is_measured(ready: Projects):
    done = ready.etude("train", "siamese.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("siamese", ready.cwd / "out")
    done = ready.etude("test", "siamese.py", "out/epoch_2.pth", "--out", "found.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((ready.cwd / "found.json").read_text())
    assert found == {key: _validation(ready.cwd / "out")[key] for key in found} != {}
    assert done.stdout.startswith("success  ")  # progress bars and what data sets print go elsewhere


#: Configs of further trackers, and how many losses they log. The last two take long: with `make test-all`.
OTHERS = {"faster_rcnn": 4} | ({"qdtrack": 4, "fgfa": 8} if sampling.ALL else {})


@pytest.mark.parametrize("name", OTHERS)
def test_the_trainable_parts_of_other_trackers_train(ready: Projects, name: str):
    done = ready.etude("train", f"{name}.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert len(losses(ready.cwd / "out")) == OTHERS[name]


def test_code_for_an_older_numpy_is_reported_with_the_releases_that_take_it(ready: Projects):
    """STARK's pipeline takes the root of an array with one element, which numpy 2.4 refuses."""
    tiny.write_videos(ready.cwd / "data/long", frames=20)
    done = ready.etude("train", "stark.py", *OPTIONS)
    if done.returncode:
        assert "transforms.py:" in done.stderr and "pip install 'numpy<2.4'" in done.stderr, done.stderr
    else:
        assert len(losses(ready.cwd / "out")) == 2


def _validation(folder: Path) -> dict[str, Any]:
    """Return the last line of validation in a run's log."""
    lines = [json.loads(line) for file in folder.glob("*.log.json") for line in file.read_text().splitlines()]
    return [line for line in lines if line.get("mode") == "val"][-1]


NORMALIZE = """\
import warnings
import torch
warnings.simplefilter("ignore")
from torchvision.transforms.functional import normalize as theirs
from etude_openmm.mmcv1.live.overlay.ops import normalize

picture, values = torch.rand(3, 8, 8), dict(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
assert torch.equal(normalize(picture, **values), theirs(picture, **values))
"""


@pytest.mark.thorough  # an old torchvision takes long to import
@pytest.mark.pins("torchvision-0.15.2")
def test_the_function_of_torchvision_that_stark_tests_with_gives_the_same_bits_without_it(projects: Projects):
    done = projects.run("-c", NORMALIZE)
    assert done.returncode == 0, done.stderr


OP = """\
import torch
from mmcv.ops import PSAMask

mask = PSAMask("collect", (3, 3))
print("built")
mask(torch.zeros(1, 9, 8, 8))
"""


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_an_op_that_exists_nowhere_is_an_error_when_it_is_called(projects: Projects):
    (projects.cwd / "script.py").write_text(OP)
    done = projects.etude("exec", "script.py")
    assert done.returncode == 2, done.stderr
    assert "built" in done.stdout
    assert "the op 'psamask_forward' of mmcv.ops needs compiled code" in done.stderr
    assert "pip install mmcv==1.7.2" in done.stderr
