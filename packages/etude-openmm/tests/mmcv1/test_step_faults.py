"""A model's step that torch refuses: the step and the model are named, never a fault of the engine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from etude.cli import main

PARTS = """
import torch
from mmcls.datasets import DATASETS
from mmcls.models import CLASSIFIERS

@CLASSIFIERS.register_module(force=True)
class NetOfFaults(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
    def train_step(self, data, optimizer=None):
        loss = torch.nn.functional.cross_entropy(self(data['img']), data['gt_label'])
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data['img']))

@DATASETS.register_module(force=True)
class DataOfFaults(torch.utils.data.Dataset):
    CLASSES = ('a', 'b', 'c')
    def __init__(self, grows=False, size=3):
        self.grows, self.size, self.drawn = grows, size, 0
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        self.drawn += 1
        width = 5 if self.grows and self.drawn > 2 else 4
        return dict(img=torch.ones(width), gt_label=torch.tensor(index))
"""
CONFIG = """\
custom_imports = dict(imports=['parts_of_faults'])
model = dict(type='NetOfFaults')
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


def test_a_step_that_torch_refuses_is_the_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = "data.train.grows=True"
    code = main(["train", "labels.py", "--work-dir", "out", "--seed", "1", "--no-validate", "--cfg-options", change])
    said = capsys.readouterr().err
    assert code == 3 and "fault of the engine" not in said, said
    assert re.search(r"parts_of_faults.py:11: RuntimeError: (addmm: )?mat1 and mat2 shapes cannot be multiplied", said)


def test_an_empty_training_set_is_a_fault_of_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", "labels.py", "--no-validate", "--cfg-options", "data.train.size=0"])
    assert code == 5 and "data.train (labels.py:3) has no samples" in capsys.readouterr().err
    assert not (folder / "work_dirs").exists()
