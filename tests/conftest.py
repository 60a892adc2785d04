"""What all tests share: registries filled, and no run folders left in the working directory."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported: tests share the cores, also with children

import pytest

from etude import builtins


@pytest.fixture(scope="session", autouse=True)
def filled_registries():
    builtins.load()


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """An empty working directory of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
