"""The conformance suite on the toy dialect; run by ``test_conformance.py`` with the dialect installed from its wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from etude.testing.conformance import DialectConformance


class TestToy(DialectConformance):
    dialect = "toy"
    config = str(Path(__file__).parent / "configs" / "tiny.toy")
    mistakes = {"hiden = 8": "did you mean 'hidden'?", "epochs = many": "epochs"}


def test_its_import_names_are_served(tmp_path: Path) -> None:
    code = "import etude.compat; etude.compat.install(); from toyengine.hooks import Counter; print(Counter.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "etude_toy.hooks", done.stderr


def test_its_checkpoints_and_records_are_read(tmp_path: Path) -> None:
    torch.save({"dish": {"weight": torch.ones(2)}, "stirred": 12}, tmp_path / "toy_12.pth")
    (tmp_path / "toy.log").write_text('{"stirred": 12, "loss": 0.5}\n')
    words = [sys.executable, "-m", "etude"]
    listed = subprocess.run([*words, "ckpt", "ls", tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert "12" in listed.stdout, listed.stdout + listed.stderr
    shown = subprocess.run([*words, "show", tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert "loss" in shown.stdout and "toy" in shown.stdout, shown.stdout + shown.stderr
    convert = [*words, "ckpt", "convert", tmp_path / "toy_12.pth", tmp_path / "mmm.pth", "--to", "toy"]
    done = subprocess.run(convert, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.load(tmp_path / "mmm.pth")["stirred"] == 12
