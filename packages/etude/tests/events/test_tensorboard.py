"""Tests of :mod:`etude.events.trackers.tensorboard`."""

from __future__ import annotations

import numpy as np

from etude.events.trackers.tensorboard import EventFiles, TensorBoard
from tests.events.support import numbered


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
    writer.write(numbered(10, loss=0.5, media=media))
    writer.write(numbered(10, "val", accuracy=0.75))
    writer.close()
    tags = shown(tmp_path).Tags()
    assert set(tags["scalars"]) == {"train/loss", "val/accuracy"}
    assert tags["images"] == ["digit"] and tags["histograms"] == ["weights"] and tags["tensors"]


def test_tensorboard_hides_what_came_after_a_checkpoint(tmp_path, monkeypatch):
    from tensorboard.summary.writer import event_file_writer as files

    # The count in the names of files: in the order of names, 10 comes before 9.
    monkeypatch.setattr(files, "_global_uid", files.AtomicCounter(9))
    writer = TensorBoard(tmp_path)
    writer.write(numbered(10, loss=0.5))
    state = writer.state_dict()
    writer.write(numbered(20, loss=9.0))
    writer.load_state_dict(state)
    writer.write(numbered(20, loss=0.25))
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
