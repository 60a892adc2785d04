"""Tests of :mod:`etude.events.csv`."""

from __future__ import annotations

import csv

import pytest

from etude.errors import ConfigError
from etude.events.csv import Csv
from tests.events.support import numbered


def rows(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_per_record_and_takes_new_columns(tmp_path):
    writer = Csv(tmp_path)
    writer.write(numbered(10, loss=0.5))
    writer.write(numbered(10, "val", loss=0.25, accuracy=0.75))
    writer.write(numbered(20, loss=0.125))
    table = rows(tmp_path / "metrics.csv")
    assert [row["step"] for row in table] == ["10", "10", "20"]
    assert table[1] == {"step": "10", "epoch": "1", "split": "val", "loss": "0.25", "accuracy": "0.75"}
    assert table[0]["accuracy"] == table[2]["accuracy"] == ""


def test_csv_forgets_what_came_after_a_checkpoint(tmp_path):
    writer = Csv(tmp_path)
    writer.write(numbered(10, loss=0.5))
    state = writer.state_dict()
    writer.write(numbered(20, loss=9.0))
    again = Csv(tmp_path)
    again.load_state_dict(state)
    again.write(numbered(20, loss=0.25))
    assert [row["loss"] for row in rows(tmp_path / "metrics.csv")] == ["0.5", "0.25"]
    with pytest.raises(ConfigError):
        Csv(tmp_path, "../elsewhere.csv")
