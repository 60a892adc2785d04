"""``etude train config.py``, ``etude exec tools/train_net.py``, ``check`` and ``plan`` on a LiBai project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli import main
from tests import zygote
from tests.libai import project
from tests.libai.test_kill import files_of


def test_a_config_is_trained_as_the_train_script_does(config: Path) -> None:
    assert main(["train", str(config), "train.train_iter=6"]) == 0
    out = config.parent / "out"
    assert (out / "last_checkpoint").read_text() == "model_final"
    assert {"config.yaml", "metrics.json", "log.txt", "model_best", "plan.yaml"} <= {
        path.name for path in out.iterdir()
    }
    assert not (out / "config.yaml.pkl").exists()
    log = (out / "log.txt").read_text()
    assert "ERROR" not in log
    assert "Auto-scaling the config to train.train_iter=6" in log
    lines = [json.loads(line) for line in (out / "metrics.json").read_text().splitlines()]
    assert next(line["iteration"] for line in lines) == 3


def test_the_config_that_a_run_writes_down_trains_again(config: Path) -> None:
    assert main(["train", str(config), "train.train_iter=6"]) == 0
    assert main(["train", "out/config.yaml", "train.output_dir=again"]) == 0
    metrics = [
        [json.loads(line)["total_loss"] for line in Path(folder, "metrics.json").read_text().splitlines()]
        for folder in ("out", "again")
    ]
    assert metrics[0] == metrics[1]


@pytest.mark.thorough  # the same holds for detectron2 in test_detectron2_resume.py
def test_a_run_that_has_ended_is_left_alone_or_gone_on_with(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config)]) == 0
    before = files_of("out")
    project.forget_loggers()
    assert main(["train", str(config), "--resume"]) == 0
    assert (
        "out: training has finished after 12 iterations; a larger train.train_iter goes on" in capsys.readouterr().out
    )
    assert files_of("out") == before
    assert main(["exec", "tools/train_net.py", "--resume", "--config-file", "config.py"]) == 2  # as ever
    assert "model training has finished" in capsys.readouterr().err
    assert main(["train", str(config), "--resume", "train.train_iter=16"]) == 0
    lines = [json.loads(line)["iteration"] for line in Path("out/metrics.json").read_text().splitlines()]
    assert lines == [3, 7, 11, 15]
    (Path("out") / "model_final" / "trainer").unlink()  # as LiBai itself writes it
    assert main(["train", str(config), "--resume", "train.train_iter=20"]) == 2
    assert "model training has finished" in capsys.readouterr().err


def test_a_checkpoint_can_be_named_to_go_on_from(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config), "train.checkpointer.period=4"]) == 0
    before = Path("out/metrics.json").read_text()
    assert main(["train", str(config), "train.checkpointer.period=4", "--resume", "out/model_0000003"]) == 0
    assert "Starting training from iteration 4" in Path("out/log.txt").read_text()
    assert len(Path("out/metrics.json").read_text().splitlines()) == len(before.splitlines())
    assert main(["train", str(config), "--eval-only", "--resume", "out/model_0000003"]) == 0
    Path("out/model_0000003/optimizer").write_bytes(b"")
    assert main(["train", str(config), "--resume", "out/model_0000003"]) != 0
    assert "out/model_0000003: optimizer: the file is empty" in capsys.readouterr().err


def test_etude_test_measures_a_checkpoint_or_a_run(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config), "train.checkpointer.period=4", "train.evaluation.eval_period=4"]) == 0
    found = [float(value) for value in re.findall("copypaste: mse=(.+)", Path("out/log.txt").read_text())]
    before = files_of("out")
    project.forget_loggers()
    for words, wanted in (
        ([str(config), "out/model_0000003"], found[0]),
        ([str(config), "out"], found[-1]),
        (["out"], found[-1]),
        (["out", "--best"], min(found)),
    ):
        assert main(["test", *words, "--out", "results.json"]) == 0
        assert json.loads(Path("results.json").read_text()) == {"mse": pytest.approx(wanted)}
    assert files_of("out") == before
    assert "mse  " in capfd.readouterr().out
    assert main(["test", str(config), "out/model_0000099"]) != 0
    assert "out/model_0000099: no such file or checkpoint" in capfd.readouterr().err


SCALED = """
from enum import Enum
from line_parts import Points


class Scale(Enum):
    DOUBLE = 2.0


class Scaled(Points):
    def __init__(self, n, scale, broken=False):
        super().__init__(n)
        self.scale, self.broken = scale, broken

    def __getitem__(self, index):
        if self.broken or not isinstance(self.scale, Scale):
            raise TypeError("scale should be a Scale")
        return super().__getitem__(index)
"""


def test_etude_test_of_a_run_has_the_enumerations_of_its_config(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("scaled_parts.py").write_text(SCALED)
    lines = "from scaled_parts import Scale, Scaled\nscaled = LazyCall(Scaled)(n=10, scale=Scale.DOUBLE)\n"
    config.write_text(f"{config.read_text()}{lines}dataloader['test'][0].dataset = scaled\n")
    assert main(["train", str(config), "train.train_iter=4"]) == 0
    assert "scale: scaled_parts.Scale.DOUBLE" in Path("out/plan.yaml").read_text()
    project.forget_loggers()
    assert main(["test", "out"]) == 0
    capfd.readouterr()
    in_worker = ["dataloader.test.0.dataset.broken=True", "dataloader.test.0.num_workers=1"]
    assert main(["test", str(config), "out", *in_worker]) == 3
    assert "TypeError: scale should be a Scale (in data worker 0)" in capfd.readouterr().err


def test_the_old_script_runs_with_its_flags(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["exec", "tools/train_net.py", "--config-file", str(config)]
    assert main([*words, "train.train_iter=6", "train.checkpointer.period=2"]) == 0
    assert main([*words[:2], "--eval-only", "--resume", *words[2:]]) == 0
    assert "earlier run" not in Path("out/log.txt").read_text()
    assert main([*words, "train.train_iter=1", "train.evaluation.enabled=false"]) == 0
    assert "out holds an earlier run, up to model_final: this one begins anew" in Path("out/log.txt").read_text()
    assert "results {'mse'" in capfd.readouterr().out


def test_a_resume_by_the_command_line_goes_on(config: Path) -> None:
    assert main(["train", str(config), "train.train_iter=6", "train.checkpointer.period=3"]) == 0
    (config.parent / "out" / "last_checkpoint").write_text("model_0000002")
    assert main(["train", str(config), "train.train_iter=6", "--resume"]) == 0
    log = (config.parent / "out" / "log.txt").read_text()
    assert "Starting training from iteration 3" in log


def test_the_config_may_be_named_as_the_scripts_have_it(config: Path) -> None:
    assert main(["train", "--config-file", "config.py", "train.train_iter=1", "train.evaluation.enabled=false"]) == 0
    assert (config.parent / "out" / "last_checkpoint").read_text() == "model_final"


@pytest.mark.parametrize("flag", ["--limit-batches", "--overfit"])
def test_a_flag_about_epochs_is_refused(config: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "config.py", flag, "3"]) == 2
    assert f"{flag} does nothing in a libai config: it trains by iterations; write train.train_iter=3" in (
        capsys.readouterr().err
    )


def test_a_fast_dev_run_leaves_nothing_behind(config: Path) -> None:
    before = sorted(path.name for path in config.parent.iterdir())
    assert main(["train", str(config), "--fast-dev-run"]) == 0
    assert sorted(path.name for path in config.parent.iterdir() if path.name != "__pycache__") == before


def test_only_evaluating_trains_nothing(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config), "--eval-only"]) == 0
    assert "copypaste: mse=" in capfd.readouterr().out
    assert not (config.parent / "out" / "last_checkpoint").exists()


def test_mistakes_are_found_with_their_places(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        config.read_text().replace("train.log_period = 4", "train.log_perod = 4").replace("dropout=0.0", "dropuot=0.0")
    )
    config.write_text(text)
    assert main(["check", str(config), "train.dist.pipeline_parallel_size=2"]) == 2
    told = capsys.readouterr().out
    assert "unknown key train.log_perod; did you mean 'log_period'?" in told
    assert "takes no argument 'dropuot'; did you mean 'dropout'?" in told
    assert "train.dist.pipeline_parallel_size=2 needs train.dist.pipeline_num_layers" in told
    line = text.splitlines().index("train.log_perod = 4") + 1
    assert f"config.py:{line}: unknown key train.log_perod" in told


def test_a_config_without_mistakes_passes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(config)]) == 0
    assert "no mistakes found" in capsys.readouterr().out


def test_a_plan_builds_and_writes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(config)]) == 0
    assert "12 steps, batches of 4, no epochs" in capsys.readouterr().out
    assert main(["plan", str(config), "train.train_iter=0", "train.train_epoch=3"]) == 0
    assert "30 steps, 3 epochs, batches of 4\n" in capsys.readouterr().out
    assert not (config.parent / "out").exists()


def test_a_broken_config_is_one_line_with_its_place(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("from libai.config import LazyCall\n\nmodel = LazyCall(3)()\n")
    assert main(["check", str(config)]) == 2
    assert "config.py:3: TypeError: target of LazyCall must be a callable" in capsys.readouterr().out


def test_reading_a_config_needs_no_torch() -> None:
    code = (
        "import sys, etude_libai.lower, etude_libai.names, etude_libai.convert\n"
        "from etude_libai.lazy.load import get_config\n"
        "get_config('common/train.py')\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_signal_ends_after_the_step_with_a_checkpoint_to_resume_from(config: Path) -> None:
    text = config.read_text()
    killing = text + (
        "import os, signal\n"
        "class Killing(Line):\n"
        "    steps = 0\n"
        "    def forward(self, x, labels):\n"
        "        Killing.steps += self.training\n"
        "        if Killing.steps == 7 and self.training:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return super().forward(x, labels)\n"
        "model = LazyCall(Killing)()\n"
    )
    config.write_text(killing)
    assert main(["train", str(config)]) == 143
    assert (config.parent / "out" / "last_checkpoint").read_text() == "model_0000006"
    config.write_text(text)
    assert main(["train", str(config), "--resume"]) == 0
    assert main(["train", str(config), "train.output_dir=whole"]) == 0
    import torch

    ended, whole = (torch.load(config.parent / name / "model_final" / "model") for name in ("out", "whole"))
    assert all(torch.equal(ended[key], whole[key]) for key in whole)


def test_libai_trains_without_the_packages_of_detectron2(config: Path) -> None:
    """``pip install 'etude[libai]'`` brings neither fvcore nor iopath."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('fvcore', 'iopath', 'yacs')))\n"
        "import etude.cli\n"
        f"assert etude.cli.main(['train', {str(config)!r}, 'train.train_iter=2']) == 0\n"
        f"assert etude.cli.main(['test', {str(config)!r}, 'out/model_final']) == 0\n"
    )
    done = zygote.run("-c", code)
    assert done.returncode == 0, done.stderr
