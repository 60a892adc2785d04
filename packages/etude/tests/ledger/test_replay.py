"""Any step can be run again, bitwise as the ledger has it; the ledger of a run that was killed is that of a calm one."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.building.options import Options
from etude.cli import main
from etude.errors import UserError
from etude.ledger import rows
from etude.ledger.replay import replay, worst_step

CONFIG = """
model: {{type: MLP, sizes: [64, 16, 10], dropout: 0.2}}
loss: CrossEntropyLoss
data:
  train: {{dataset: {{type: Digits, split: train}}, batch_size: 128, shuffle: true, workers: {workers}}}
  val: {{dataset: {{type: Digits, split: val}}, batch_size: 256}}
optim: {{type: {optimizer}, lr: {lr}{clip}}}
schedule: {{lr: Cosine}}
train: {{epochs: 3, validate: 1ep, accumulate: {accumulate}, precision: {precision}}}
metrics: [Accuracy]
hooks: [{{type: EMA, momentum: 0.1}}]
checkpoint: {{every: {every}, keep: null}}
log: {{every: 5step}}
"""
USUAL: dict[str, Any] = {
    "workers": 0, "optimizer": "AdamW", "lr": 0.01, "clip": ", clip_norm: 1.0", "accumulate": 1, "precision": "fp32",
    "every": "10step",
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def write(name: str = "config.yaml", **changes: Any) -> str:
        Path(name).write_text(CONFIG.format(**USUAL | changes))
        return name

    return write


def train(path: str, folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etude", "train", path, "-q", "--folder", folder, *words]
    return subprocess.run(command, capture_output=True, text=True)


def digest_of(folder: str) -> str:
    parts = [f"{path}:{path.read_bytes()!r}" for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def test_a_killed_run_has_the_ledger_of_a_calm_one_and_every_step_can_be_replayed(config: Any) -> None:
    path = config(workers=2, every="7step")
    assert train(path, "calm").returncode == 0
    assert train(path, "cut", "--chaos", "kill@step=18").returncode == -9
    assert len(rows.read("cut")) < len(rows.read("calm"))
    assert train(path, "cut", "--resume").returncode == 0
    assert Path("cut/ledger.bin").read_bytes() == Path("calm/ledger.bin").read_bytes()
    before = digest_of("cut")
    for step in random.Random(0).sample(range(1, 37), 4):
        found = replay("cut", step)
        assert found.different is None and found.step == step, found
        assert found.loss == rows.read("cut")["loss"][step - 1]
        assert len(found.ids) == len(found.sample_losses or ())
    assert digest_of("cut") == before


@pytest.mark.parametrize(
    "changes",
    [{"accumulate": 3}, {"precision": "bf16"}, {"optimizer": "SGD", "lr": 0.1, "clip": ""}, {"every": "1ep"}],
)  # fmt: skip
def test_steps_come_out_bitwise_identical(config: Any, changes: dict[str, Any]) -> None:
    etude.train(config(**changes), options=Options(folder=Path("run"), quiet=True))
    for step in (1, 17, 36):
        assert replay("run", step).different is None


def test_a_step_is_shown_with_samples_modules_and_values(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    etude.train(config(), options=Options(folder=Path("run"), quiet=True))
    assert main(["replay", "run", "--steps", "11..13", "--save", "step.pt"]) == 0
    shown = capsys.readouterr().out
    assert "3 steps run again from step-000000010: bitwise as in the ledger" in shown
    assert "step 11" in shown and "step 12" in shown and "step 10 " not in shown
    assert "layers.0" in shown and "Linear" in shown and "largest losses first" in shown
    saved = torch.load("step.pt")
    assert saved["step"] == 13 and len(saved["ids"]) == 128 == len(saved["batch"][0])
    assert set(saved["gradients"]) == {name for name, _ in etude.load("run").named_parameters()}


def test_a_run_that_diverged_says_how_to_look_and_the_step_is_shown(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(optimizer="SGD", lr=1.0e30, clip="")
    assert main(["train", path, "-q", "--folder", "run"]) == 4
    assert "`etude replay run --until-spike` shows it" in capsys.readouterr().err
    assert main(["replay", "run", "--until-spike"]) == 0
    shown = capsys.readouterr().out
    assert "was the first with a value that is not finite" in shown and "loss     nan" in shown


def test_a_step_that_comes_out_differently_is_named(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.py").write_text(
        "import os, torch\nfrom etude import MODELS\n@MODELS.register\nclass Own(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.line = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x):\n        return self.line(x) * float(os.environ.get('SCALE', 1))\n"
    )
    model = "model: {type: MLP, sizes: [64, 16, 10], dropout: 0.2}"
    text = Path(config()).read_text().replace(model, "imports: [own.py]\nmodel: {type: Own}")
    Path("own.yaml").write_text(text)
    assert train("own.yaml", "run").returncode == 0
    monkeypatch.setenv("SCALE", "1.5")
    command = [sys.executable, "-m", "etude", "replay", "run", "--step", "25"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "step 21 came out differently: the loss was" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "37"], "has no step 37; its ledger has steps 1 to 36"),
        (["--step", "0"], "has no step 0"),
        (["--steps", "9..3"], "write two steps, as 100..120"),
        (["--step", "3", "--save", "no/where.pt"], "cannot be written"),
    ],
)
def test_mistakes_are_named(config: Any, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    etude.train(config(), options=Options(folder=Path("run"), quiet=True))
    assert main(["replay", "run", *words]) == 2
    assert message in capsys.readouterr().err


def test_no_ledger_is_kept_where_none_is_wanted(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    etude.train(config(), ["ledger=false"], options=Options(folder=Path("run"), quiet=True))
    assert not Path("run/ledger.bin").exists()
    assert main(["replay", "run", "--step", "3"]) == 2
    assert "`ledger: false`" in capsys.readouterr().err


def test_a_ledger_of_another_run_is_not_continued(config: Any) -> None:
    path = config()
    etude.train(path, ["train.epochs=1"], options=Options(folder=Path("run"), quiet=True))
    Path("run/ledger.bin").write_bytes(rows.HEADER + b"\7" * 32 * 30)
    with pytest.warns(UserWarning, match="not the one that the checkpoint was made with"):
        etude.train(path, ["train.epochs=2"], options=Options(folder=Path("run"), quiet=True, resume=""))
    assert rows.read("run")["step"][0] == 13
    with pytest.raises(UserError, match="steps 13 to 24"):
        replay("run", 5)


def test_a_trainer_keeps_a_ledger(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.randn(20, 4), torch.randint(0, 2, (20,)))
    for wanted in (True, False):
        folder = tmp_path / str(wanted)
        trainer = etude.Trainer(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss(),
            folder=folder, quiet=True, ledger=wanted,
        )  # fmt: skip
        trainer.fit(data, epochs=2, batch_size=5)
        assert (folder / rows.FILE).exists() is wanted
    assert len(rows.read(tmp_path / "True")) == 8
    with pytest.raises(UserError, match="was not trained from a config"):
        replay(tmp_path / "True", 3)


def test_a_run_of_several_processes_is_refused(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    etude.train(config(), ["train.epochs=1"], options=Options(folder=Path("run"), quiet=True))
    facts = json.loads(Path("run/env.json").read_text())
    Path("run/env.json").write_text(json.dumps(facts | {"flags": {"processes": 2}}))
    assert main(["replay", "run", "--step", "3"]) == 2
    assert "was trained by 2 processes" in capsys.readouterr().err


def test_the_worst_step_is_the_first_bad_loss_or_the_largest_jump() -> None:
    import numpy as np

    losses = np.linspace(2, 1, 60) + 0.01 * np.sin(np.arange(60))
    losses[41] = 5.0
    assert worst_step(rows.made(1, losses, losses, [None] * 60, 0)) == 42
    losses[50] = np.nan
    assert worst_step(rows.made(1, losses, losses, [None] * 60, 0)) == 51
