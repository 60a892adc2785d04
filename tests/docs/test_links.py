"""Pages can be reached, and what they link to exists."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ALL_PAGES, ROOT, name_of


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_page_stands_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in ALL_PAGES if page.name != "README.md"]
    assert [page for page in pages if page not in navigation] == []
