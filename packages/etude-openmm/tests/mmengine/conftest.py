from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from etude_openmm.shared.registries.managers import DefaultScope


@pytest.fixture(autouse=True)
def no_scope_of_another_run() -> Iterator[None]:
    """A runner makes its scope the current one for the rest of the process; here each test begins without one.

    Weights that a test makes before any runner seeds them are the same in every order of tests.
    """
    torch.manual_seed(0)
    DefaultScope._instance_dict.clear()
    yield
    DefaultScope._instance_dict.clear()
