"""What the tests of ``etude convert`` share: a project in a folder, and training a config in either form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from etude import api, compat
from etude.build import Options, build
from etude.cli import main


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch, *, module: str, parts: str, base: str) -> Path:
    """A project with one module of its own and ``base.py``, as the working directory."""
    compat.install()
    (folder / f"{module}.py").write_text(parts)
    (folder / "base.py").write_text(base)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
    return folder


def weights(config: str, folder: Path) -> dict[str, Any]:
    options = Options(folder=folder, quiet=True)
    if config.endswith(".yaml"):
        run = api.train(config, options=options)
    else:
        run = build(api.load_plan(config)[0], options)
        run.loop(run)
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def require_same_bits(folder: Path, changes: str) -> None:
    """``base.py`` with changes, trained as it is and converted."""
    (folder / "old.py").write_text("_base_ = './base.py'\n" + changes)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    old, new = weights("old.py", folder / "a"), weights("new.yaml", folder / "b")
    assert list(old) == list(new)
    for name in old:
        assert torch.equal(old[name], new[name]), name
