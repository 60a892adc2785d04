from __future__ import annotations

import pytest

from etude.registry import TABLES


@pytest.fixture
def own_registries(monkeypatch):
    """What a page registers is forgotten afterwards; what other tests registered is not seen."""
    from etude import builtins

    for word, table in TABLES.items():
        monkeypatch.setattr(table, "_entries", dict(builtins.ENTRIES[word]))
