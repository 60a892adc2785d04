"""Configs of a project that Étude does not know: its ``tools/train.py`` builds the run that ``etude train`` trains."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import zygote
from tests.places import SOURCES

PACKAGE = """\
import random

import mmcv
import torch
from mmcv.runner import build_optimizer, build_runner
from mmcv.utils import Registry, get_logger

SHAPES, CLOUDS = Registry("shape"), Registry("cloud")


@SHAPES.register_module()
class Line(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(2, width)

    def train_step(self, data, optimizer, **kwargs):
        loss = self.inner(data).pow(2).mean() * random.random()
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data))


@CLOUDS.register_module()
class Points(torch.utils.data.Dataset):
    def __init__(self, count, noise):
        self.points = torch.rand(count, 2) * noise

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index]


def teach(shape, cloud, cfg):
    loader = torch.utils.data.DataLoader(cloud, 2, shuffle=True)
    logger = get_logger("shapes", cfg.log_file)
    runner = build_runner(
        dict(type="IterBasedRunner", max_iters=cfg.total_iters),
        dict(model=shape, optimizer=build_optimizer(shape, cfg.optimizers), work_dir=cfg.work_dir, logger=logger,
             meta=dict(seed=cfg.seed)),
    )
    runner.register_training_hooks(cfg.lr_config, dict(), cfg.checkpoint_config, cfg.log_config)
    if cfg.resume_from:
        runner.resume(cfg.resume_from)
    runner.run([loader], cfg.workflow)
    torch.rand(1)
"""
SCRIPT = """\
import argparse
import os
import random

import torch
from mmcv import Config, mkdir_or_exist
from shapes import CLOUDS, SHAPES, teach

parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--work-dir")
parser.add_argument("--seed", type=int)
args = parser.parse_args()
cfg = Config.fromfile(args.config)
cfg.work_dir, cfg.seed = args.work_dir, args.seed
mkdir_or_exist(cfg.work_dir)
cfg.log_file = os.path.join(cfg.work_dir, "own.log")
random.seed(args.seed)
torch.manual_seed(args.seed)
if __name__ == "__main__":
    teach(SHAPES.build(cfg.model), CLOUDS.build(cfg.data.train), cfg)
    print("the script went on")
"""
CONFIG = """\
model = dict(type='Line', width=4)
data = dict(train=dict(type='Points', count=8, noise=0.1))
optimizers = dict(type='SGD', lr=0.1)
total_iters = 6
lr_config = dict(policy='step', step=[3], by_epoch=False)
checkpoint_config = dict(by_epoch=False, interval=3)
log_config = dict(interval=1, hooks=[dict(type='TextLoggerHook', by_epoch=False)])
workflow = [('train', 1)]
load_from = resume_from = None
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the project ``shapes``, with a config in it."""
    for file, text in (
        ("shapes/__init__.py", PACKAGE), ("tools/train.py", SCRIPT), ("configs/line.py", CONFIG),
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def etude(folder: Path, *words: str, code: int = 0) -> str:
    paths = os.pathsep.join(map(str, (folder, *SOURCES)))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = zygote.run("-m", "etude", *words, cwd=folder, env=env)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def result(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the weights after the last step, and the lines of the log without times."""
    saved = torch.load(folder / "iter_6.pth", weights_only=False)
    (log,) = folder.glob("*.log.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [{key: line[key] for key in ("iter", "lr", "loss")} for line in lines if "mode" in line]
    return saved["state_dict"], told


def test_etude_train_ends_in_the_bits_of_the_script(checkout: Path) -> None:
    etude(checkout, "train", "configs/line.py", "--seed", "3", "--work-dir", "ours", "-q")
    told = etude(checkout, "exec", "tools/train.py", "configs/line.py", "--seed", "3", "--work-dir", "theirs")

    (ours, log), (theirs, other) = result(checkout / "ours"), result(checkout / "theirs")
    assert "the script went on" in told
    assert len(log) == 6 and log == other
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)
    assert len(list((checkout / "ours").glob("own.log"))) == 1


def test_a_run_of_a_script_resumes(checkout: Path) -> None:
    etude(checkout, "train", "configs/line.py", "--seed", "3", "--work-dir", "whole", "-q")
    etude(
        checkout, "train", "configs/line.py", "--work-dir", "half", "--resume-from", "whole/iter_3.pth", "--seed", "3"
    )

    (whole, _), (half, log) = result(checkout / "whole"), result(checkout / "half")
    assert [line["iter"] for line in log] == [4, 5, 6]
    assert all(torch.equal(whole[name], half[name]) for name in whole | half)


def test_a_config_elsewhere_names_its_project_by_a_flag_or_by_the_names_in_it(checkout: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    (elsewhere / "line.py").write_text(CONFIG)
    etude(checkout, "train", "mine/line.py", "--seed", "3", "--work-dir", "a", "-q")
    etude(checkout, "train", "mine/line.py", "--seed", "3", "--work-dir", "b", "--project", "shapes", "-q")

    assert all(torch.equal(one, other) for one, other in zip(result(checkout / "a")[0].values(),
                                                            result(checkout / "b")[0].values(), strict=True))  # fmt: skip


def test_check_reads_the_project_and_is_sure_of_nothing_that_only_its_script_knows(checkout: Path) -> None:
    assert "no mistakes found" in etude(checkout, "check", "configs/line.py")
    assert "unknown key optimizr" in etude(checkout, "check", "configs/line.py", "optimizr=1")
    said = etude(checkout, "check", "configs/line.py", "model.type=Lin", code=2)
    assert "no model is called 'Lin'; did you mean 'Line'?" in said


def test_a_project_without_a_script_is_told_what_to_type(checkout: Path) -> None:
    (checkout / "tools/train.py").unlink()
    told = etude(checkout, "train", "configs/line.py", "--seed", "3", code=2)

    assert "shapes, whose config this is, has no tools/train.py" in told
    assert "etude exec SCRIPT CONFIG" in told


def test_a_script_that_refuses_its_arguments_or_never_trains_is_named(checkout: Path) -> None:
    script = checkout / "tools/train.py"
    script.write_text(
        SCRIPT.replace('parser.add_argument("--seed"', 'parser.add_argument("--needed", required=True, help="--seed"')
    )
    assert "tools/train.py ended with 2 instead of training" in etude(checkout, "train", "configs/line.py", code=2)
    script.write_text(SCRIPT.replace('if __name__ == "__main__"', "if False"))
    told = etude(checkout, "train", "configs/line.py", "--seed", "3", code=2)
    assert "tools/train.py ended without training: no runner of mmcv was started" in told


def test_no_check_trains_what_check_refuses(checkout: Path) -> None:
    (checkout / "configs/slip.py").write_text(CONFIG + "custom_hooks = [dict(type='EMAHok')]\n")
    words = ("train", "configs/slip.py", "--seed", "3", "--work-dir", "out")
    assert "did you mean 'EMAHook'?" in etude(checkout, *words, code=2)
    assert "no hook is called 'EMAHok'" in etude(checkout, *words, "--no-check")
    assert (checkout / "out/iter_6.pth").is_file()
