"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from tests.places import SOURCES

EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_examples() -> list[str]:
    files = [(source, path) for source in SOURCES for path in sorted(source.rglob("*.py"))]
    found = [path.relative_to(source) for source, path in files if EXAMPLE.search(path.read_text(encoding="utf-8"))]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found]


def test_there_are_examples_of_the_python_api():
    assert {"etude.api", "etude.trainer", "etude.registry", "etude.data.loader"} <= set(modules_with_examples())


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_run(name, workdir):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert outcome.attempted and not outcome.failed
