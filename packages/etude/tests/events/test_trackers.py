"""Trackers: real packages, and trackers that hang, fail and are too slow."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from etude import WRITERS
from etude.errors import MissingExtra
from etude.events.system import System
from etude.events.trackers import outbox
from tests.cli.commands import CONFIG, Commands
from tests.events.support import Collect, record
from tests.places import REPOSITORY

TRACKED = CONFIG.replace(
    "log: {every: 3step}",
    "log: {every: 3step, to: [jsonl, {type: wandb, mode: offline}, {type: mlflow, checkpoint: true}]}",
)


def test_records_come_in_order_and_the_id_is_kept_for_a_resume(tmp_path):
    (tmp_path / "plan.yaml").write_text("optim: {lr: 0.1}\n")
    first = Collect(tmp_path, system=False)
    for step in (1, 2, 3):
        first.write(record(step))
    first.close()
    assert [step for step, _ in first.got] == [1, 2, 3] and first.got[0][1] == {"train/loss": 1.0}
    assert first.jobs[0].plan == {"optim.lr": 0.1} and first.jobs[0].known_as == ""
    second = Collect(tmp_path)
    second.write(record(4))
    second.close()
    assert second.jobs[0].known_as == "id-1" and "system/process_megabytes" in second.got[0][1]


def test_a_round_that_takes_long_is_flushed_on_the_way(tmp_path, monkeypatch):
    """Images may be slow to send; values that a service gathers must not wait for all of them."""
    monkeypatch.setattr(outbox, "ROUND", 0.01)
    seen = []

    class Gathers(Collect):
        def scalars(self, values, step):
            super().scalars(values, step)
            time.sleep(0.02)

        def flush(self):
            seen.append(len(self.got))

    gate = threading.Event()
    slow = Gathers(tmp_path, gate, system=False)
    for step in range(1, 6):
        slow.write(record(step))
    gate.set()
    slow.close()
    assert seen[:5] == [1, 2, 3, 4, 5] or seen[:6] == [0, 1, 2, 3, 4, 5]  # opening may take a round by itself


def test_a_tracker_that_is_too_slow_drops_and_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "WAITING", 10)
    gate = threading.Event()
    slow = Collect(tmp_path, gate)
    with pytest.warns(UserWarning, match="collect is too slow: records are dropped"):
        for step in range(1, 51):
            slow.write(record(step))
    assert slow._outbox.dropped >= 39
    gate.set()
    with pytest.warns(UserWarning, match=f"collect: {slow._outbox.dropped} records were dropped"):
        slow.close()
    assert len(slow.got) + slow._outbox.dropped == 50


def test_a_tracker_that_hangs_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "PATIENCE", 0.2)
    gate = threading.Event()
    hanging = Collect(tmp_path, gate)
    for step in range(1, 6):
        hanging.write(record(step))
    with pytest.warns(UserWarning, match="collect does not answer; 4 records were not sent"):
        hanging.close()
    gate.set()


def test_a_tracker_that_had_nothing_to_do_for_long_is_not_taken_for_one_that_hangs(tmp_path, monkeypatch, recwarn):
    passed = 0.0
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr(outbox, "time", clock)
    idle = Collect(tmp_path, system=False)
    idle.write(record(1))
    heard = idle._outbox.ask(lambda: idle._outbox._heard)
    while idle._outbox._heard == heard:  # until the end of the round, which is behind its last call
        time.sleep(0.01)
    passed = 10 * outbox.OPENING
    idle.write(record(2))
    idle.close()
    assert [step for step, _ in idle.got] == [1, 2] and not recwarn.list


def test_a_tracker_that_fails_is_switched_off_with_one_warning(tmp_path):
    broken = Collect(tmp_path, fail_at=1)
    broken.write(record(1))
    broken._outbox._thread.join(60)
    with pytest.warns(
        UserWarning, match="switched off; training continues: ConnectionError: the network is gone"
    ) as said:
        broken.write(record(2))
        broken.write(record(3))
        broken.close()
    assert sum("switched off" in str(one.message) for one in said) == 1 and broken._outbox.dropped == 2


@pytest.mark.parametrize(("name", "remedy"), [("wandb", "pip install 'etude[tracking]'"), ("aim", "pip install aim")])
def test_a_missing_package_is_answered_before_training(workdir, monkeypatch, name, remedy):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=re.escape(f"writing to {name} needs the package {name!r}: {remedy}")):
        WRITERS.get(name)(workdir)


def test_list_knows_every_writer_of_the_docs(capfd):
    page = (REPOSITORY / "docs" / "trackers.md").read_text()
    named = [name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    listed = Commands(capfd)("list", "writers").out
    assert len(named) == 11 and all(re.search(rf"\b{name}\(folder", listed) for name in named)


def test_system_values_are_percentages_and_megabytes():
    values = System().read()
    assert values["system/process_megabytes"] > 1 and 0 <= values["system/memory_percent"] <= 100


def test_wandb_offline_and_mlflow_get_a_real_run_and_continue_it(capfd, workdir, monkeypatch):
    monkeypatch.setattr(outbox, "OPENING", 300.0)
    monkeypatch.setattr(outbox, "PATIENCE", 120.0)
    (workdir / "c.yaml").write_text(TRACKED)
    command = Commands(capfd)
    said = command("train", "c.yaml", "--folder", "r")
    assert said.code == 0 and "not sent" not in said.err and "failed" not in said.err, said.err
    known = json.loads(Path("r/trackers.json").read_text())
    assert set(known) == {"wandb", "mlflow"} and list(Path("r/wandb").glob("offline-run-*/run-*.wandb"))
    rows = (
        sqlite3.connect("mlflow.db")
        .execute("select key, step, value from metrics where key = 'val/accuracy' order by step")
        .fetchall()
    )
    mine = [json.loads(line) for line in Path("r/metrics.jsonl").read_text().splitlines()]
    assert [(step, value) for _, step, value in rows] == [
        (row["step"], row["accuracy"]) for row in mine if row["split"] == "val"
    ]
    params = dict(sqlite3.connect("mlflow.db").execute("select key, value from params").fetchall())
    assert params["optim.lr"] == "0.001"
    assert list(Path("mlartifacts").rglob("model.safetensors"))
    said = command("train", "c.yaml", "train.epochs=3", "--folder", "r", "--resume", "--allow-change", "train.epochs")
    assert said.code == 0, said.err
    assert json.loads(Path("r/trackers.json").read_text()) == known
    assert sqlite3.connect("mlflow.db").execute("select count(*) from runs").fetchone() == (1,)
    assert Path("r/records.jsonl").read_bytes() == Path("r/metrics.jsonl").read_bytes()
