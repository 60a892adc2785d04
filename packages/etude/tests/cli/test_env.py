from __future__ import annotations

import json

import torch

import etude


def test_versions_and_machine_are_told_and_no_secrets(command, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    said = command("env")
    assert said.code == 0
    assert torch.__version__ in said.out and "python" in said.out and "tensorboard" in said.out
    assert "hunter2" not in said.out
    assert "None" not in said.out and "[]" not in said.out


def test_the_same_as_json(command):
    facts = json.loads(command("env", "--json").out)
    assert facts["etude"] == etude.__version__ and facts["packages"]["numpy"]
