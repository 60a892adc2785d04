"""``etude schema``."""

from __future__ import annotations

import json

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


def test_a_dialect_without_a_schema_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--dialect", "mmcv1"]) == 2
    assert "there is no schema of 'mmcv1' configs" in capsys.readouterr().err
