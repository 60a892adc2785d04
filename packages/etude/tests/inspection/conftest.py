from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from etude import registry
from etude.plan import Plan

Write = Callable[..., Path]
Planned = Callable[..., Plan]


@pytest.fixture(autouse=True)
def tables() -> None:
    registry.load_builtins()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the current folder, so that messages show its bare name."""
    monkeypatch.chdir(tmp_path)

    def writer(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return writer
