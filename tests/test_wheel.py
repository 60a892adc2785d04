"""The wheel holds everything that a run needs: it is built, installed into an empty folder and trains the example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import REPOSITORY


@pytest.mark.thorough  # `make release` tries the wheel, too
def test_the_wheel_trains_the_example_without_the_repository(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, REPOSITORY / "packages" / "etude"],
        check=True,
    )
    (wheel,) = tmp_path.glob("etude-*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", installed, wheel], check=True)
    example = (REPOSITORY / "examples" / "native" / "digits.yaml").read_text()
    (tmp_path / "digits.yaml").write_text(example)
    code = (
        "import sys, etude; from etude.cli import main; "
        "assert etude.__file__.startswith(sys.argv[1]), etude.__file__; sys.exit(main(sys.argv[2:]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(installed), "train", "digits.yaml", "--fast-dev-run"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "best    accuracy" in ran.stdout + ran.stderr
