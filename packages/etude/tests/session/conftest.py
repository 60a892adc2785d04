"""Tests of sessions run in a folder of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(elsewhere: None) -> None:
    """Every test of this room."""
