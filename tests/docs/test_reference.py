"""The pages made from the sources say what the sources say."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch

import etude
from etude import builtins
from tests.docs.blocks import ROOT

SPEC = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
MAKER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MAKER)


@pytest.mark.parametrize("name", MAKER.PAGES)
def test_a_made_page_is_up_to_date(name, own_registries):
    committed, made = (ROOT / "docs" / name).read_text(encoding="utf-8"), MAKER.PAGES[name]()
    if re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1] != release(
        torch.__version__
    ):
        # The arguments of torch's own components are those of the version that the project is built with.
        committed, made = without_torch(committed), without_torch(made)
    assert committed == made, "run: python docs/make_reference.py"


def release(version):
    return version.partition("+")[0]


def without_torch(page):
    return [line for line in page.splitlines() if "see ``torch." not in line]


def test_every_public_name_is_in_the_api():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in etude.__all__ if not name.startswith("__") and f"`etude.{name}`" not in page] == []


def test_every_component_is_in_the_reference():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = [name for word, entries in builtins.ENTRIES.items() if word != "builders" for name in entries]
    assert [name for name in names if f"`{name}`" not in page] == []
