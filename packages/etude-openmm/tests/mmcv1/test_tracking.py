"""Configs of MMTracking: parts of a tracker trained alone, what its train function reads, and its own hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from etude.cli import main
from etude.errors import EtudeError

PARTS = """
from mmcv.runner import RUNNERS, EpochBasedRunner
from mmtrack.datasets import DATASETS
from mmtrack.models import MODELS
from tests.mmcv1.toys import Net, Noisy

@MODELS.register_module()
class PartOfTracker(Net):
    pass

@DATASETS.register_module()
class FramesOfTracker(Noisy):
    pass

@RUNNERS.register_module()
class LoudOfTracker(EpochBasedRunner):
    def run(self, *args, **kwargs):
        print("LOUD")
        super().run(*args, **kwargs)
"""
CONFIG = """\
custom_imports = dict(imports=['parts_of_tracker'], allow_failed_imports=False)
model = dict(type='PartOfTracker')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='FramesOfTracker'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='step', step=[1])
checkpoint_config = dict(interval=1)
log_config = dict(interval=3, hooks=[])
total_epochs = 1
seed = 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "parts_of_tracker", raising=False)
    (tmp_path / "parts_of_tracker.py").write_text(PARTS)
    return tmp_path


@pytest.mark.parametrize(("flag", "part"), [("USE_MMDET", "detector"), ("TRAIN_REID", "reid")])
def test_a_part_of_a_tracker_is_trained_alone(folder: Path, capsys: Any, flag: str, part: str) -> None:
    lines = f"{flag} = True\nmodel = dict({part}=dict(type='PartOfTracker'), tracker=dict(type='Elsewhere'))\n"
    lines += "del total_epochs\nrunner = dict(type='LoudOfTracker', max_epochs=1)\n"
    (folder / "c.py").write_text(CONFIG + lines)
    assert main(["check", "c.py"]) == 0
    assert "no mistakes found" in capsys.readouterr().out
    assert main(["train", "c.py", "--work-dir", "out", "--no-validate", "-q"]) == 0
    assert "LOUD" in capsys.readouterr().out and (folder / "out" / "epoch_1.pth").is_file()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("runner = dict(type='LoudOfTracker', max_epochs=1)", "does not read runner: EpochBasedRunner trains"),
        ("runner = dict(type='EpochBasedRunner', max_epochs=3)", "does not read runner: total_epochs = 1 counts"),
        ("del total_epochs", "MMTracking's train function needs `total_epochs`; write total_epochs = 12"),
    ],
)
def test_what_its_train_function_does_not_read_is_told(folder: Path, capsys: Any, lines: str, told: str) -> None:
    (folder / "c.py").write_text(f"{CONFIG}{lines}\n")
    assert main(["check", "c.py"]) == (2 if lines.startswith("del") else 0)
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("line", ["from mmtrack.models.mot import BaseMultiObjectTracker", "import mmtrack.models.sot"])
def test_networks_of_its_own_are_out_of_scope(line: str) -> None:
    with pytest.raises(EtudeError, match="out of Étude's scope: networks, trackers and motion models"):
        exec(line)
