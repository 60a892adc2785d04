"""A model's step that torch refuses: the labels, the step and the model are told, never a fault of the engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etude.cli import main

PARTS = """
import torch
from mmcls.datasets import DATASETS
from mmcls.models import BACKBONES

BACKBONES.register_module(name='FlatOfFaults', module=torch.nn.Flatten, force=True)

@DATASETS.register_module(force=True)
class DataOfFaults(torch.utils.data.Dataset):
    CLASSES = ('a', 'b', 'c')
    def __init__(self, keys=('img', 'gt_label'), grows=False, size=3):
        self.keys, self.grows, self.size, self.drawn = keys, grows, size, 0
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        self.drawn += 1
        width = 5 if self.grows and self.drawn > 2 else 4
        sample = dict(img=torch.ones(width), gt_label=torch.tensor(index))
        return {key: sample[key] for key in self.keys}
"""
CONFIG = """\
custom_imports = dict(imports=['parts_of_faults'])
model = dict(
    type='ImageClassifier', backbone=dict(type='FlatOfFaults'),
    head=dict(type='LinearClsHead', num_classes=3, in_channels=4))
data = dict(samples_per_gpu=1, workers_per_gpu=0, train=dict(type='DataOfFaults'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict()
lr_config = dict(policy='fixed')
runner = dict(type='EpochBasedRunner', max_epochs=1)
checkpoint_config = dict(interval=1)
log_config = None
workflow = [('train', 1)]
resume_from = load_from = None
log_level = 'ERROR'
dist_params = dict(backend='gloo')
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the config and the module that it imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "parts_of_faults", raising=False)
    Path("parts_of_faults.py").write_text(PARTS)
    Path("labels.py").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.head.num_classes=2", "labels of the batch go from 2 to 2, and num_classes is 2 (override 'model.head."),
        (
            "data.train.keys=(img,)",
            "step 1: the batch has no gt_label, it holds img; the last transforms of data.train",
        ),
        ("data.train.grows=True", "model ImageClassifier, step 3: RuntimeError: mat1 and mat2 shapes cannot"),
    ],
)
def test_a_step_that_torch_refuses_is_the_models(
    folder: Path, capsys: pytest.CaptureFixture[str], change: str, told: str
) -> None:
    code = main(["train", "labels.py", "--work-dir", "out", "--seed", "1", "--no-validate", "--cfg-options", change])
    said = capsys.readouterr().err
    assert code == 3 and told in said and "fault of the engine" not in said, said


def test_an_empty_training_set_is_a_fault_of_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", "labels.py", "--no-validate", "--cfg-options", "data.train.size=0"])
    assert code == 5 and "data.train (labels.py:5) has no samples" in capsys.readouterr().err
    assert not (folder / "work_dirs").exists()
