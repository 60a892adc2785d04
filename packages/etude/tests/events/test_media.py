from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from etude.events.media import Media, as_picture, bars, media_files, png, table_text
from etude.events.record import Events, Record


def record(step, *media):
    return Record(step, 0, "train", {}, 0.0, media)


def test_files_are_kept_by_name_and_the_oldest_go(tmp_path):
    media = Media(tmp_path, keep=2)
    for step in (1, 2, 3):
        media.write(record(step, ("image", "a/../b", np.ones((4, 4, 3))), ("text", "note", f"hello {step}")))
    media.write(record(3, ("histogram", "w", torch.arange(4.0)), ("table", "t", table_text([{"n": 1}]))))
    assert [(kind, name, step) for kind, name, step, _ in media_files(tmp_path)] == [
        ("histogram", "w", 3),
        ("image", "a-..-b", 2),
        ("image", "a-..-b", 3),
        ("table", "t", 3),
        ("text", "note", 2),
        ("text", "note", 3),
    ]
    assert (tmp_path / "media" / "note-000000003.txt").read_text() == "hello 3"
    assert json.loads((tmp_path / "media" / "w-000000003.hist.json").read_text())["counts"] == [1, 1, 1, 1]


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4), (3, 5, 7)])
def test_a_png_reads_back_as_the_same_picture(shape):
    picture = as_picture(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    with Image.open(io.BytesIO(png(picture))) as read:
        assert np.array_equal(np.asarray(read), picture)


def test_a_histogram_counts_values_that_are_not_finite_apart():
    found = bars(torch.tensor([0.0, 1.0, math.nan, math.inf]))
    assert sum(found["counts"]) == 2 and found["strange"] == 2
    assert bars(np.array([]))["counts"] == [0]


def test_tables_of_rows_columns_and_strange_values():
    assert json.loads(table_text({"a": [1, math.nan], "b": [torch.tensor(2.0), None]})) == {
        "columns": ["a", "b"],
        "rows": [[1, 2.0], ["nan", None]],
    }
    assert json.loads(table_text([{"a": 1}, {"b": 2}]))["rows"] == [[1, None], [None, 2]]


def test_an_unknown_kind_of_medium_is_refused():
    with pytest.raises(ValueError, match="'picture' is not one of image, histogram, table, text"):
        Events().put_media("picture", "x", np.zeros((2, 2)))
