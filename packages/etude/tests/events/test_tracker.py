"""Tests of :mod:`etude.events.trackers.tracker`."""

from __future__ import annotations

import json
import threading

from etude.events.record import Events
from etude.events.trackers import outbox
from etude.events.trackers.tracker import Job, best_checkpoint
from tests.events.support import Collect


def test_the_end_says_once_what_it_waits_for_and_trackers_end_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "SILENCE", 0.05)
    gate, both, said = threading.Event(), threading.Barrier(2), []

    class Slow(Collect):
        def open(self, job: Job) -> str:
            gate.wait(300)
            return super().open(job)

        def finish(self):
            both.wait(300)  # one after the other they would wait for ever

    def say(text):
        said.append(text)
        gate.set()

    events = Events([Slow(tmp_path, system=False), Slow(tmp_path, system=False)])
    events.writers[1]._outbox.name = "other"
    events.write({"loss": 1.0}, step=1, epoch=1, split="train")
    events.close(say)
    assert said == ["waiting for collect (still opening, 60 s at most), other (still opening, 60 s at most)"]
    assert [writer.got for writer in events.writers] == [[(1, {"train/loss": 1.0})]] * 2


def test_the_best_checkpoint_is_found(tmp_path):
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7)):
        folder = tmp_path / "checkpoints" / f"step-{step:09}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"metrics": {"accuracy": accuracy}}))
    assert best_checkpoint(tmp_path, {"checkpoint.best": "accuracy"}).name == "step-000000002"
    assert best_checkpoint(tmp_path, {}).name == "step-000000003"
    assert best_checkpoint(tmp_path / "none", {}) is None
