"""Recorded values: kept as they are until a writer is due."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch

from etude.checkpoint.encode import decode, encode
from etude.events.console import Console, format_record, number
from etude.events.csv import Csv
from etude.events.jsonl import Jsonl
from etude.events.record import MANY, Events, Record
from etude.units import duration


class Kept:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None: ...


class Full(Kept):
    def write(self, record: Record) -> None:
        raise OSError(28, "No space left on device")


def test_values_between_two_lines_are_averaged_and_last_ones_kept():
    kept = Kept()
    events = Events([kept])
    for value in (1.0, torch.tensor(3.0), torch.tensor(2.0, requires_grad=True)):
        events.put("loss", value)
        events.put("lr", value, last=True)
    record = events.flush(step=3, epoch=0)
    assert record.values == {"loss": 2.0, "lr": 2.0} and kept.records == [record]
    assert events.latest == record.values and events.flush(step=4, epoch=0).values == {}


def test_a_value_that_is_not_finite_stays_visible():
    events = Events()
    events.put("loss", 1.0)
    events.put("loss", math.nan)
    assert math.isnan(events.flush(step=1, epoch=0).values["loss"])


def test_pictures_go_with_the_next_record_only():
    kept = Kept()
    events = Events([kept])
    events.put_media("text", "note", "hello")
    events.flush(step=1, epoch=0)
    events.flush(step=2, epoch=0)
    assert [record.media for record in kept.records] == [(("text", "note", "hello"),), ()]


def test_pictures_of_the_last_epoch_are_written_at_the_end_and_are_what_they_were(tmp_path, capsys):
    kept, weight = Kept(), torch.zeros(2)
    events = Events([kept, Csv(tmp_path), Jsonl(tmp_path / "metrics.jsonl"), Console()])
    events.put("loss", 1.0)
    events.flush(step=7, epoch=1)
    events.put_media("histogram", "weight", weight)
    weight += 1
    events.close()
    assert [(record.step, len(record.media)) for record in kept.records] == [(7, 0), (7, 1)]
    assert kept.records[1].media[0][2].tolist() == [0, 0]
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 2 and capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def test_pictures_keep_the_step_they_were_put_at_and_none_is_lost():
    kept, now = Kept(), (23, 0)
    events = Events([kept], moment=lambda: now)
    events.put_media("image", "sample", torch.zeros(2, 2, 3))
    events.put_media("image", "sample", torch.ones(2, 2, 3))
    now = (40, 1)
    events.write({"accuracy": 0.5}, step=30, epoch=1, split="val")
    events.put_media("text", "sample", "now")
    events.flush(step=40, epoch=1)
    events.put_media("text", "sample", "then")
    events.close()
    found = [(r.step, r.epoch, r.split, [name for _, name, _ in r.media]) for r in kept.records]
    assert found == [
        (23, 0, "train", ["sample", "sample/2"]), (30, 1, "val", []), (40, 1, "train", ["sample"]),
        (40, 1, "train", ["sample/2"]),
    ]  # fmt: skip


def test_pictures_that_wait_survive_in_the_state():
    kept, events = Kept(), Events(moment=lambda: (23, 0))
    assert "media" not in events.state_dict()  # a run without media has the state it always had
    events.put_media("image", "sample", torch.ones(2, 2, 3))
    events.put_media("histogram", "weights", [1.0, 2.0])
    events.put_media("text", "note", "hello")
    part = encode("events", events.state_dict())
    again = Events([kept], moment=lambda: (23, 0))
    again.load_state_dict(decode(json.loads(json.dumps(part.tree)), part.tensors))
    again.put_media("text", "note", "again")
    again.flush(step=40, epoch=0)
    image, histogram, *texts = kept.records[0].media
    assert kept.records[0].step == 23 and [record.step for record in kept.records] == [23, 40]
    assert image[2].sum() == 12 and list(histogram[2]) == [1.0, 2.0]
    assert texts == [("text", "note", "hello"), ("text", "note/2", "again")]


def test_a_writer_that_cannot_write_is_switched_off_and_the_others_go_on():
    kept = Kept()
    events = Events([Full(), kept])
    with pytest.warns(UserWarning, match="Full cannot write .*training continues"):
        events.flush(step=1, epoch=0)
    events.flush(step=2, epoch=0)
    assert [record.step for record in kept.records] == [1, 2] and events.writers == [kept]


def test_a_writer_of_ones_own_that_is_broken_does_not_stop_training():
    class Odd(Kept):
        def write(self, record: Record) -> None:
            raise KeyError("loss")

    class Stuck(Kept):
        def close(self) -> None:
            raise ValueError("half open")

    kept = Kept()
    events = Events([Odd(), Stuck(), kept])
    with pytest.warns(UserWarning, match=r"Odd cannot write .*test_record\.py:\d+: KeyError: 'loss'.*switched off"):
        events.flush(step=1, epoch=0)
    events.flush(step=2, epoch=0)
    with pytest.warns(UserWarning, match=r"Stuck cannot be closed .*ValueError: half open"):
        events.close()
    assert [record.step for record in kept.records] == [1, 2]


def test_what_was_put_and_not_written_survives_in_the_state():
    events = Events()
    events.put("loss", torch.tensor(1.0))
    again = Events()
    again.load_state_dict(events.state_dict())
    again.put("loss", 2.0)
    assert again.flush(step=2, epoch=0).values == {"loss": 1.5}


@pytest.mark.parametrize("kinds", [[torch.tensor], [float], [torch.tensor, float]], ids=["tensors", "floats", "both"])
def test_many_values_are_kept_in_rows_and_are_the_same_numbers(kinds):
    events, again = Events(), Events()
    for index in range(2 * MANY + 3):
        events.put("loss", kinds[index % len(kinds)](index / 8))
    assert len(events._pending["loss"]) == 3
    again.load_state_dict(events.state_dict())
    assert again.state_dict()["pending"] == events.state_dict()["pending"]
    again.put("loss", torch.tensor(0.25))
    count = 2 * MANY + 3
    assert events.flush(step=1, epoch=0).values == {"loss": sum(range(count)) / 8 / count}
    assert again.flush(step=2, epoch=0).values == {"loss": (sum(range(count)) / 8 + 0.25) / (count + 1)}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.43125, "0.4313"), (0.0, "0.0000"), (1e-5, "1.00e-05"), (123456.0, "1.23e+05"), (math.nan, "nan")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "0:07"), (62, "1:02"), (3723, "1:02:03")])
def test_times_are_short(seconds, text):
    assert duration(seconds) == text


def test_a_line_says_where_the_run_stands_and_how_long_it_takes():
    values = {"loss": 0.5, "throughput/steps_per_second": 10.0, "memory/resident": 1.0}
    where = {"epochs": 20, "steps": 460}
    assert (
        format_record(Record(60, 2, "train", values, 0.0), where)
        == "epoch  3/20  step  60/460  loss 0.5000  10 steps/s  0:40 left"
    )
    assert format_record(Record(60, 2, "val", {"loss": 0.5}, 0.0), {}) == "epoch 3  step 60  val: loss 0.5000"


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    stream = io.StringIO()
    console = Console(stream=stream, log=tmp_path / "log.txt")
    console.say("a\x1b[31mb")
    console.close()
    assert "\x1b" not in stream.getvalue() + (tmp_path / "log.txt").read_text()
