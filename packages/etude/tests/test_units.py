from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.units import Amount, parse


@pytest.mark.parametrize(
    ("text", "amount"),
    [("3ep", Amount(3, "epoch")), ("500step", Amount(500, "step")), ("2h", Amount(7200, "second")), ("0.5ep", Amount(0.5, "epoch")), (20, Amount(20, "step")), (" 10 min ", Amount(600, "second"))],
)  # fmt: skip
def test_amounts_are_read_as_people_write_them(text, amount):
    assert parse(text) == amount


@pytest.mark.parametrize("text", ["0ep", -1, "3 parsecs", "ep", True, "1.5step", ""])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ConfigError):
        parse(text)


@given(st.integers(1, 10**6), st.sampled_from(["ep", "step", "s"]))
def test_writing_an_amount_and_reading_it_gives_the_same(value, unit):
    amount = parse(f"{value}{unit}")
    assert parse(str(amount)) == amount


def test_epochs_become_steps_only_where_the_data_has_a_length():
    assert parse("1.5ep").steps(10) == 15
    with pytest.raises(ConfigError, match="length"):
        parse("2ep").steps(None)
    with pytest.raises(ConfigError, match="time"):
        parse("2h").steps(10)
