"""Runs the real projects in child processes, on the pinned wheels that :mod:`tests.projects.fetch` installs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import zygote
from tests.places import SOURCES
from tests.projects import fetch


@dataclass(frozen=True)
class Projects:
    """Real packages on the path of child processes, and a folder for them to work in.

    ``imports``, as ``import`` takes it, are imported once for all children of this pytest process that share the folders.
    """

    folders: tuple[Path, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    imports: str = ""

    def run(self, *command: str, cwd: Path | None = None, fresh: bool = False) -> subprocess.CompletedProcess[str]:
        """Run ``python command…``; a script, ``-m module`` or ``-c code``. ``fresh``: in an interpreter without torch."""
        paths = os.pathsep.join(map(str, (*self.folders, *SOURCES)))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **self.env}
        if fresh:
            words = [sys.executable, *command]
            return subprocess.run(words, cwd=cwd or self.cwd, env=env, capture_output=True, text=True, check=False)
        return zygote.run(*command, cwd=cwd or self.cwd, env=env, after=self._imports())

    def _imports(self) -> zygote.Imports:
        if not self.imports:
            return zygote.Imports()
        path = tuple(str(folder) for folder in (*self.folders, *SOURCES) if folder != self.cwd)
        return zygote.Imports(path, f"import etude.compat\netude.compat.install()\nimport {self.imports}")

    def etude(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``etude words…``."""
        return self.run("-m", "etude", *words, cwd=cwd)


def fetched(names: Sequence[str]) -> tuple[Path, ...]:
    """Return the folders of the pins called ``names``, installed now if ``make projects`` has not done it."""
    fetch.CACHE.mkdir(parents=True, exist_ok=True)
    with open(fetch.CACHE / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return tuple(fetch.fetch(name) for name in names)
        except (subprocess.CalledProcessError, urllib.error.URLError):
            pytest.skip("the wheels of the real projects cannot be downloaded here: run `make projects`")


@pytest.fixture
def projects(request: pytest.FixtureRequest, tmp_path: Path) -> Projects:
    """The packages that ``@pytest.mark.pins("mmcls-0.25.0", …)`` names."""
    marker = request.node.get_closest_marker("pins")
    assert marker is not None, "say which packages the test needs: @pytest.mark.pins(…)"
    return Projects(fetched(marker.args), tmp_path)
