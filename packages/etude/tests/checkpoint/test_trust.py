"""Whether pickles may run code."""

from __future__ import annotations

import os

import pytest

from etude.checkpoint.storage import trust


@pytest.mark.parametrize(("value", "yes"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_trust_is_given_by_the_environment(monkeypatch: pytest.MonkeyPatch, value: str | None, yes: bool) -> None:
    monkeypatch.delenv(trust.NAME, raising=False)
    if value is not None:
        monkeypatch.setenv(trust.NAME, value)
    assert trust.is_given() is yes
    with trust.given():
        assert trust.is_given()
        with trust.given(False):
            assert trust.is_given()
    assert os.environ.get(trust.NAME) == value
    with trust.given(False):
        assert trust.is_given() is yes
    with pytest.raises(ValueError), trust.given():
        raise ValueError
    assert os.environ.get(trust.NAME) == value
