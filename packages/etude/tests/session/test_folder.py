"""A run's folder: below its root whatever it is called, and for its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from etude.cli import main
from etude.errors import ConfigError
from etude.session.folder import new_folder, safe_name

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 1, threads: 1}
"""
ODD = ["../../x", "/etc/x", "a/b", "a\0b", "-rf", "x" * 300, "a\nb", "\x1b[2Jx", ".hidden", "~/x", "$(x)", "Ж y"]


@pytest.mark.parametrize("name", ODD)
def test_any_name_is_one_component_below_the_root(tmp_path: Path, name: str) -> None:
    safe = safe_name(name)
    folder = new_folder(tmp_path / "runs", name)
    assert folder.parent.parent == tmp_path / "runs" and folder.resolve().is_relative_to(tmp_path / "runs")
    assert len(safe) <= 100 and not safe.startswith(("-", ".")) and safe.isprintable() and "/" not in safe


@pytest.mark.parametrize("name", ["", "..", "...", "/", "con", "NUL", "-"])
def test_a_name_of_which_nothing_is_left_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a run"):
        safe_name(name)


def test_a_run_stays_below_its_root_and_belongs_to_its_owner(workdir: Path) -> None:
    Path("c.yaml").write_text(CONFIG)
    before = os.umask(0)
    try:
        assert main(["train", "c.yaml", "+name=../../elsewhere", "-q"]) == 0
    finally:
        os.umask(before)
    assert not (workdir.parent / "elsewhere").exists()
    (run,) = Path("runs/elsewhere").iterdir()
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
