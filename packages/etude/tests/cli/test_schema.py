"""``etude schema``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import main


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "optim" in printed["else"]["properties"]


def test_the_same_can_be_read_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# The native config")


def test_a_foreign_dialect_tells_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--dialect", "mmengine"]) == 0
    assert "optim_wrapper" in json.loads(capsys.readouterr().out)["properties"]
    assert main(["schema", "--dialect", "mmengin"]) == 2
    assert "did you mean 'mmengine'?" in capsys.readouterr().err


def test_the_dialect_is_that_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hooks_of_schema.py").write_text(
        "from mmcv.runner import HOOKS, Hook\n\n@HOOKS.register_module()\nclass Bell(Hook):\n"
        "    def __init__(self, times=1): ...\n"
    )
    (tmp_path / "c.py").write_text(
        "custom_imports = dict(imports=['hooks_of_schema'])\nlr_config = dict(policy='step', step=[2])\n"
        "checkpoint_config = dict(interval=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "--config", "c.py"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["title"] == "mmcv 1.x config"
    cases = {case["if"]["properties"]["type"]["const"]: case["then"] for case in printed["$defs"]["HOOKS"]["allOf"]}
    assert cases["Bell"]["properties"]["times"] == {"default": 1}
