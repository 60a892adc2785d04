"""CSV and TensorBoard files, also when a run goes back to a checkpoint."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from etude.errors import ConfigError
from etude.events.csv import Csv
from etude.events.record import Record
from etude.events.trackers.tensorboard import EventFiles, TensorBoard


def record(step: int, split: str = "train", media=(), **values: float) -> Record:
    return Record(step, step // 10, split, values, 1000.0 + step, media)


def rows(path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_per_record_and_takes_new_columns(tmp_path):
    writer = Csv(tmp_path)
    writer.write(record(10, loss=0.5))
    writer.write(record(10, "val", loss=0.25, accuracy=0.75))
    writer.write(record(20, loss=0.125))
    table = rows(tmp_path / "metrics.csv")
    assert [row["step"] for row in table] == ["10", "10", "20"]
    assert table[1] == {"step": "10", "epoch": "1", "split": "val", "loss": "0.25", "accuracy": "0.75"}
    assert table[0]["accuracy"] == table[2]["accuracy"] == ""


def test_csv_forgets_what_came_after_a_checkpoint(tmp_path):
    writer = Csv(tmp_path)
    writer.write(record(10, loss=0.5))
    state = writer.state_dict()
    writer.write(record(20, loss=9.0))
    again = Csv(tmp_path)
    again.load_state_dict(state)
    again.write(record(20, loss=0.25))
    assert [row["loss"] for row in rows(tmp_path / "metrics.csv")] == ["0.5", "0.25"]
    with pytest.raises(ConfigError):
        Csv(tmp_path, "../elsewhere.csv")


def shown(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard"), purge_orphaned_data=True)
    accumulator.Reload()
    return accumulator


def test_tensorboard_gets_scalars_images_histograms_and_texts(tmp_path):
    writer = TensorBoard(tmp_path)
    media = (
        ("image", "digit", np.zeros((8, 8, 3), dtype=np.uint8)),
        ("histogram", "weights", np.arange(5.0)),
        ("text", "note", "hello"),
    )
    writer.write(record(10, loss=0.5, media=media))
    writer.write(record(10, "val", accuracy=0.75))
    writer.close()
    tags = shown(tmp_path).Tags()
    assert set(tags["scalars"]) == {"train/loss", "val/accuracy"}
    assert tags["images"] == ["digit"] and tags["histograms"] == ["weights"] and tags["tensors"]


def test_tensorboard_hides_what_came_after_a_checkpoint(tmp_path, monkeypatch):
    from tensorboard.summary.writer import event_file_writer as files

    # The count in the names of files: in the order of names, 10 comes before 9.
    monkeypatch.setattr(files, "_global_uid", files.AtomicCounter(9))
    writer = TensorBoard(tmp_path)
    writer.write(record(10, loss=0.5))
    state = writer.state_dict()
    writer.write(record(20, loss=9.0))
    writer.load_state_dict(state)
    writer.write(record(20, loss=0.25))
    writer.close()
    assert [event.value for event in shown(tmp_path).Scalars("train/loss")] == [0.5, 0.25]


def test_event_files_stay_in_their_folder_when_the_program_changes_its_directory(workdir, monkeypatch):
    files = EventFiles()
    files.begin("events")
    (workdir / "elsewhere").mkdir()
    monkeypatch.chdir(workdir / "elsewhere")
    files.scalars({"loss": 1.0}, 1)
    files.finish()
    assert any(path.stat().st_size > 100 for path in (workdir / "events").iterdir())
    assert not (workdir / "elsewhere" / "events").exists()
