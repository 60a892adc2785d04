"""``bench/reach.py``, the table of what works, measures a project against its original engine and goes on where it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import REPOSITORY
from tests.projects.conftest import fetched


def reach(*words: str, home: Path) -> str:
    command = [sys.executable, str(REPOSITORY / "bench/reach.py"), *words, "--table", str(home / "table.md")]
    env = {**os.environ, "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough  # test_mmseg compares the two ways of Étude, in a few seconds
def test_a_project_trains_to_the_bits_of_its_original_engine(tmp_path: Path) -> None:
    fetched(("mmseg-0.30.0", "mmcv-lite-2.2.0", "opencv", "mmcv-1.7.2", "mmengine-needs", "torchvision-0.15.2"))
    assert "mmseg       steps     1 of 1" in reach("mmseg", "--column", "steps", home=tmp_path)
    assert "| mmseg 0.30.0 |  |  | 1 of 1 |  |" in (tmp_path / "table.md").read_text()
    assert "steps  " not in reach("mmseg", "--column", "steps", home=tmp_path), "a measured cell is kept"


def test_what_was_not_measured_is_left_empty(tmp_path: Path) -> None:
    reach("mmdet", "--column", "steps", home=tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert "| mmdet 2.28.2 |  |  | – |  |" in text and "| mmseg 0.30.0 |  |  |  |  |" in text
