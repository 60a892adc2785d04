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


def test_a_foreign_dialect_tells_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--dialect", "mmengine"]) == 0
    assert "optim_wrapper" in json.loads(capsys.readouterr().out)["properties"]
    assert main(["schema", "--dialect", "mmengin"]) == 2
    assert "did you mean 'mmengine'?" in capsys.readouterr().err
