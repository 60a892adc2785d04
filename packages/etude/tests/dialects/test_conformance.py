"""A dialect of somebody else, built as a wheel and installed, passes the conformance suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOY = Path(__file__).parent / "toy"


def test_an_installed_dialect_of_somebody_else_passes_the_conformance_suite(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, TOY], check=True)
    (wheel,) = tmp_path.glob("etude_toy-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    shutil.copytree(TOY / "configs", tmp_path / "configs")
    shutil.copy(TOY / "conformance.py", tmp_path / "test_conformance.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, tmp_path / "test_conformance.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout
