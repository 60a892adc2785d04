"""Hostile inputs and files: refused in one message, or passed over, with the exit code that the docs promise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.security.hostile import CASES, fault, prepare, train
from tests.zygote import etude


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train(folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_what_was_made_to_break_it_does_not(name: str, workdir: Path, trained: Path) -> None:
    case = CASES[name]
    prepare(case, workdir, trained)
    done = etude(*case.command, env={**os.environ, **case.environment})
    assert fault(case, workdir, done.returncode, done.stdout + done.stderr) == ""
