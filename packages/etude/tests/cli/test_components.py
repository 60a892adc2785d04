"""``etude list``: what can be named in a config."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli import main


def test_components_of_a_kind_come_with_signature_origin_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "optimizers"]) == 0
    rows = {row.split("\t")[1].partition("(")[0]: row.split("\t") for row in capsys.readouterr().out.splitlines()}
    word, signature, origin, doc = rows["SGD"]
    assert (word, origin) == ("optimizers", "torch.optim:SGD")
    assert "momentum: float = 0" in signature
    assert doc == ""  # torch has its own pages
    assert rows["LARS"][3] == "SGD with momentum."


def test_all_kinds_are_listed_without_importing_torch() -> None:
    code = "import sys; from etude.cli import main; main(['list']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    words = {line.split("\t")[0] for line in done.stdout.splitlines()}
    assert {"losses", "optimizers", "schedules", "datasets"} <= words


def test_what_a_config_imports_is_listed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text('from etude import MODELS\n@MODELS.register\nclass Own:\n    """Mine."""\n')
    Path("a.yaml").write_text("imports: own.py\n")
    assert main(["list", "models", "--config", "a.yaml"]) == 0
    assert "models\tOwn()\town:Own\tMine." in capsys.readouterr().out.splitlines()


def test_a_terminal_gets_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["list", "losses"]) == 0
    out = capsys.readouterr().out
    assert "losses (" in out
    assert "CrossEntropyLoss" in out
    assert "\t" not in out


def test_an_unknown_kind_is_answered_with_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "optimisers"]) == 2
    assert "did you mean 'optimizers'?" in capsys.readouterr().err
