"""The pages made from the sources say what the sources say."""

from __future__ import annotations

import importlib.util

import pytest

import etude
from etude import builtins
from tests.docs.blocks import ROOT

SPEC = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
MAKER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MAKER)


@pytest.mark.parametrize("name", MAKER.PAGES)
def test_a_made_page_is_up_to_date(name, own_registries):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == MAKER.PAGES[name](), (
        "run: python docs/make_reference.py"
    )


def test_every_public_name_is_in_the_api():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in etude.__all__ if not name.startswith("__") and f"`etude.{name}`" not in page] == []


def test_every_component_is_in_the_reference():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = [name for word, entries in builtins.ENTRIES.items() if word != "builders" for name in entries]
    assert [name for name in names if f"`{name}`" not in page] == []
