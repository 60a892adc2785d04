"""Signatures are cached in the user's folder, used only while their sources are unchanged, and never needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude.inspection import signature_cache
from etude.inspection import signatures as scan

CODE = (
    "import json, sys; from etude.inspection import signature_cache as cache, signatures as scan\n"
    "target = sys.argv[1]; found = cache.cached(target)\n"
    "print(json.dumps([str(found), scan.parse.cache_info().misses, 'torch' in sys.modules]))"
)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def ask(target: str, env: dict[str, str], code: str = CODE) -> list[Any]:
    done = subprocess.run([sys.executable, "-c", code, target], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def the_file(home: dict[str, str]) -> Path:
    (found,) = Path(home["XDG_CACHE_HOME"]).glob("etude/signatures-*.json")
    return found


def test_a_second_command_reads_no_source(home: dict[str, str]) -> None:
    for target in ("torch.optim:AdamW", "etude.schedules.curves:Cosine"):
        first, second = ask(target, home), ask(target, home)
        assert first[1] > 0 and second[1] == 0
        assert first[0] == second[0] != "None"
        assert first[2] is second[2] is False


def test_a_cached_signature_is_the_scanned_one(home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    targets = ["torch.nn:CrossEntropyLoss", "torch.optim:SGD", "etude.hooks.ema:Ema", "etude.optim.lamb:LAMB"]
    for target in targets:
        ask(target, home)
    entries = json.loads(the_file(home).read_text())
    assert set(targets) <= set(entries)
    for target in targets:
        read = signature_cache._from_json(entries[target]["signature"])
        live = scan.signature(target)
        assert live is not None and read is not None
        assert (read.parameters, read.bases, read.is_class) == (live.parameters, live.bases, live.is_class)


@pytest.mark.parametrize(
    "damage",
    [
        "", "[]", "{", "null", '{"torch.optim:SGD": 3}', '{"torch.optim:SGD": {"files": {}, "signature": {"bases": []}}}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_cache_only_costs_time(home: dict[str, str], damage: str) -> None:
    whole = ask("torch.optim:SGD", home)
    the_file(home).write_text(damage)
    assert ask("torch.optim:SGD", home)[0] == whole[0]
    assert ask("torch.optim:SGD", home)[0] == whole[0]


def test_a_folder_that_cannot_be_made_only_costs_time(tmp_path: Path, home: dict[str, str]) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "momentum" in ask("torch.optim:SGD", home)[0]


def test_a_changed_source_is_read_anew(tmp_path: Path, home: dict[str, str]) -> None:
    package = tmp_path / "own_engine"
    package.mkdir()
    source = package / "__init__.py"
    source.write_text("class Net:\n    def __init__(self, width): ...\n")
    code = "from etude.errors.own_code import add_package; add_package('own_engine')\n" + CODE
    env = {**home, "PYTHONPATH": str(tmp_path)}
    assert ask("own_engine:Net", env, code)[0] == "(width)"
    source.write_text("class Net:\n    def __init__(self, width, depth): ...\n")
    assert ask("own_engine:Net", env, code)[0] == "(width, depth)"


def test_components_of_other_packages_are_not_cached() -> None:
    assert signature_cache.cached("json:JSONDecoder") is None


def test_another_copy_of_the_package_has_another_cache(monkeypatch):
    before = signature_cache.path()
    monkeypatch.setattr(signature_cache, "__file__", "/elsewhere/etude/inspection/signature_cache.py")
    assert signature_cache.path() != before
