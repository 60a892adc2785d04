"""Fails a replayer that passes over what its case says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden.goldens import Case


@pytest.fixture(autouse=True)
def whole_case(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    if isinstance(case, Case):
        assert not case.unknown(), f"the replayer does not know what these words of the case mean: {case.unknown()}"
