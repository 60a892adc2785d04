"""Tests of :mod:`etude.events.trackers.outbox`."""

from __future__ import annotations

import threading
import time

import pytest

from etude.events.trackers import outbox
from tests import zygote
from tests.events.support import Collect, record


def test_records_are_gathered_and_sent_in_rounds_with_the_time_they_were_written_at(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "ROUND", 300.0)

    class Rounds(Collect):
        times, rounds = [], 0

        def scalars(self, values, step):
            super().scalars(values, step)
            self.times.append(outbox.put_time())

        def flush(self):
            self.rounds += 1

    gathering = Rounds(tmp_path, system=False)
    gathering.write(record(1))
    gathering._outbox.flush()
    before, rounds = time.time(), gathering.rounds
    for step in (2, 3, 4):
        gathering.write(record(step))
    after = time.time()
    assert [step for step, _ in gathering.got] == [1]
    gathering.close()
    assert [step for step, _ in gathering.got] == [1, 2, 3, 4] and gathering.rounds == rounds + 1
    assert before <= gathering.times[1] <= gathering.times[3] <= after


def test_a_service_that_has_sent_its_files_gets_no_more_patience_than_others(monkeypatch):
    monkeypatch.setattr(outbox, "OPENING", 0.2)
    box, stop = outbox.Outbox("stuck"), threading.Event()
    box.send(lambda: None, at_once=True)
    with pytest.warns(UserWarning, match="stuck does not answer; its last call did not end"):
        box.close(stop.wait)
    stop.set()


def test_the_end_is_bounded_although_every_call_returns_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "ENDING", 0.2)
    monkeypatch.setattr(outbox, "OPENING", 0.2)
    box, stop = outbox.Outbox("slow"), threading.Event()
    for _ in range(900):
        box.put(stop.wait, 0.05)
    with pytest.warns(UserWarning, match=r"slow does not answer; \d+ records were not sent"):
        box.close()
    stop.set()


def test_what_nobody_closed_is_sent_when_the_process_ends(tmp_path):
    code = """
from etude.events.trackers.outbox import Outbox
box = Outbox("service")
for number in range(3):
    box.put(print, "sent", number)
raise SystemExit(3)
"""
    done = zygote.run("-c", code)
    assert done.returncode == 3 and done.stdout.splitlines() == ["sent 0", "sent 1", "sent 2"]
