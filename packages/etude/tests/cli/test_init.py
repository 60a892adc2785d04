from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import zygote


@pytest.mark.thorough  # runs pytest in a new process
def test_a_new_project_checks_trains_and_passes_its_own_test(command):
    said = command("init", "mine/first")
    assert said.code == 0 and "cd mine/first" in said.out
    os.chdir("mine/first")
    assert sorted(os.listdir()) == ["config.yaml", "parts.py", "test_project.py"]
    assert command("check", "config.yaml").code == 0
    said = command("train", "config.yaml", "train.epochs=2")
    assert said.code == 0 and "hello, world: 46 steps to go" in said.out and "best    accuracy" in said.err
    done = zygote.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py")
    assert done.returncode == 0, done.stdout


def test_what_exists_is_never_overwritten(command):
    Path("p").mkdir()
    Path("p/parts.py").write_text("mine")
    said = command("init", "p")
    assert said.code == 2 and "parts.py" in said.err
    assert Path("p/parts.py").read_text() == "mine" and os.listdir("p") == ["parts.py"]


def test_a_folder_that_cannot_be_made_is_told(command):
    said = command("init", "c.yaml/inside")
    assert said.code == 2 and "c.yaml/inside" in said.err
