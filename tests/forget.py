"""Registries as they were before a test imported files of its own."""

from __future__ import annotations

from collections.abc import Iterator

from etude import registry


def forgotten_files() -> Iterator[None]:
    """Afterwards, what the test's own files registered is gone again."""
    yield
    for table in registry.TABLES.values():
        for name, entry in list(table._entries.items()):
            if getattr(entry, "__module__", "") in registry._FILES:
                del table._entries[name]
