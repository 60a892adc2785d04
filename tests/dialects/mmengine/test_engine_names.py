"""Every name of the engine half can be imported, from the package and from its own module."""

from __future__ import annotations

import importlib

import pytest

from etude.dialects import imports
from etude.dialects.mmengine import names_engine
from etude.errors import OutOfScope

imports.install()


@pytest.mark.parametrize("module", sorted(names_engine.MODULES))
def test_a_module_gives_its_names(module: str) -> None:
    served = importlib.import_module(module)
    for name in names_engine.MODULES[module]:
        assert getattr(served, name) is not None


@pytest.mark.parametrize("registry", sorted(names_engine.REGISTERED))
def test_a_registry_finds_its_entries_by_name(registry: str) -> None:
    table = getattr(importlib.import_module("mmengine.registry"), registry)
    for name in names_engine.REGISTERED[registry]:
        assert table.get(name) is not None, name


def test_what_is_out_of_scope_says_what_to_use() -> None:
    with pytest.raises(OutOfScope, match="pip install mmengine"):
        importlib.import_module("mmengine._strategy.deepspeed")
