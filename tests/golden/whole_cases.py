"""A fixture for all replayers that fails a case with words that its replayer passes over."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.golden.goldens import Case


@pytest.fixture(autouse=True)
def whole_case(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    if isinstance(case, Case) and case.unknown():
        said = f"the replayer does not know what these words of the case mean: {case.unknown()}"
        if case.unread():
            pytest.fail(said)
        warnings.warn(said, stacklevel=1)  # a text may be a remark of whoever recorded the case
