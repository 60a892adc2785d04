"""The public names are listed once, and loaded when they are first used."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import etude
from tests.docs.blocks import PAGES, program


@pytest.mark.parametrize("name", etude.__all__)
def test_a_public_name_is_there(name):
    assert getattr(etude, name) is not None
    assert name in dir(etude)


@pytest.mark.parametrize("collects", [True, False])
def test_loading_a_name_leaves_the_garbage_collector_as_it_was(collects, monkeypatch):
    monkeypatch.delitem(vars(etude), "Trainer", raising=False)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert etude.Trainer
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_there_are_not_many_more_than_a_reader_can_keep_in_mind():
    assert len(etude.__all__) == len(set(etude.__all__)) <= 26


@pytest.mark.parametrize("name", [name for name in etude.__all__ if not name.startswith("__")])
def test_a_public_name_is_used_in_a_program_of_the_docs(name):
    """Those programs run: tests/docs/test_pages.py."""
    used = re.compile(rf"\betude\.{name}\b|^from etude import .*\b{name}\b", re.MULTILINE)
    assert any(used.search(program(page)) for page in PAGES)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(etude.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname or alias.name for node in block.body for alias in getattr(node, "names", [])}
    assert seen == set(etude.__all__) - {"__version__"}


def test_a_name_that_is_not_there_is_answered_as_python_does():
    with pytest.raises(AttributeError, match="no attribute 'Traner'"):
        etude.Traner


def test_importing_the_package_waits_with_torch():
    code = "import sys, etude; etude.Plan, etude.HOOKS, etude.ConfigError; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_package_says_that_it_is_typed():
    assert (Path(etude.__file__).parent / "py.typed").is_file()
