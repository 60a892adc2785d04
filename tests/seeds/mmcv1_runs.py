"""A small mmcv 1.x training that a snippet is put into."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from etude.api import train
from etude.building.options import Options
from etude.dialects import imports

imports.install()

#: What every config of that time has around the lines that a tutorial talks about.
BASE = """
custom_imports = dict(imports=['seed_parts'], allow_failed_imports=False)
model = dict(type='SeedNet')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='SeedData'), val=dict(type='SeedData'))
optimizer = dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=0.0001)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='step', step=[1])
runner = dict(type='EpochBasedRunner', max_epochs=2)
total_epochs = 2
checkpoint_config = dict(interval=1)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
evaluation = dict(interval=1)
workflow = [('train', 1)]
load_from = None
resume_from = None
seed = 0
a_value, b_value, c_value = 1, 2, 3
"""

PARTS = """
import torch
from mmcls.datasets import DATASETS
from mmcls.models import CLASSIFIERS
from mmcv.runner import BaseModule

KWARGS, RATES, MOMENTA = [], [], []

@DATASETS.register_module(force=True)
class SeedData(torch.utils.data.Dataset):
    CLASSES = ('a', 'b')
    def __init__(self, test_mode=False):
        pass
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return dict(x=torch.tensor([index / 20, 1.0]), y=torch.tensor([index % 2 * 1.0]))
    def evaluate(self, results, logger=None, **kwargs):
        KWARGS.append(kwargs)
        return {'accuracy_top-1': 50.0 + len(KWARGS)}

@CLASSIFIERS.register_module(force=True)
class SeedNet(BaseModule):
    def __init__(self, init_cfg=None):
        super().__init__(init_cfg)
        self.fc = torch.nn.Linear(2, 1)
    def forward(self, x, y=None, return_loss=True):
        out = self.fc(x)
        return ((out - y) ** 2).mean() if return_loss else list(out)
    def train_step(self, data, optimizer, **kwargs):
        if hasattr(optimizer, 'param_groups'):
            group = optimizer.param_groups[0]
            RATES.append(group['lr'])
            MOMENTA.append(group.get('momentum', group.get('betas', (None,))[0]))
        loss = self(**data)
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['x']))
    val_step = train_step
"""


class Project:
    """A folder of a user: files, and a config made of the base and a snippet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("seed_parts.py", PARTS)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def config(self, snippet: str, *, child: bool = False) -> Path:
        """The base followed by the snippet; ``child``: the snippet in a config that inherits from the base."""
        if not child:
            return self.write("config.py", BASE + snippet)
        self.write("base.py", BASE)
        return self.write("config.py", "_base_ = 'base.py'\n" + snippet)

    def train(self, snippet: str, *, folder: str = "out", child: bool = False, **extras: Any) -> Any:
        """Train the base with the snippet; the runner of the finished run."""
        parts: Any = sys.modules.get("seed_parts")
        for seen in (parts.KWARGS, parts.RATES, parts.MOMENTA) if parts else ():
            seen.clear()
        options = Options(folder=self.folder / folder, quiet=True, extras=extras)
        return train(self.config(snippet, child=child), options=options).runner

    @property
    def parts(self) -> Any:
        return sys.modules["seed_parts"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty project; names of earlier ones are forgotten, so that ``mmtrack/core/…`` is looked for here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [n for n in sys.modules if n.partition(".")[0] in ("seed_parts", "mmtrack", "mmcls")]:
        monkeypatch.delitem(sys.modules, name)
    yield Project(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("seed_parts", "mmtrack", "mmcls")]:
        sys.modules.pop(name)
