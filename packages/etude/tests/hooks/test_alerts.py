from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import pytest

from etude.events.console import Console
from etude.events.jsonl import Jsonl
from etude.events.record import Record
from etude.hooks import alerts
from etude.hooks.alerts import Alerts
from tests.hooks.conftest import Keep, small_run

USUAL = [2.0, 2.1, 1.9, 2.0, 1.95, 2.05, 1.9, 2.0, 1.9, 1.8]


def told(hook: Alerts, losses: list[float], folder: Path) -> list[dict[str, object]]:
    """The events of a run that logs these losses, one a step."""
    run = small_run([hook])
    run.events.writers = [Jsonl(folder / "metrics.jsonl"), Jsonl(folder / "timing.jsonl", timing=True)]
    hook.before_train(run)
    for step, loss in enumerate(losses, 1):
        hook.before_step(run)
        run.step, run.stage = step - 1, "after_step"
        run.events.write({"loss": loss}, step=step, epoch=0, split="train")
        hook.after_step(run)
    run.events.close()
    lines = [line for name in ("metrics", "timing") for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return [record for line in lines if (record := json.loads(line))["split"] == "event"]


def test_a_loss_that_jumps_is_an_event_and_no_stop(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"the loss has jumped to 9 at step 11; 1\.\d+ was usual"):
        events = told(Alerts(), [*USUAL, 9.0, 1.9, 1.8], tmp_path)
    assert events == [{"step": 11, "epoch": 0, "split": "event", "loss_spike": 9.0}]


def test_a_second_training_with_the_same_hook_is_listened_to_as_well(tmp_path: Path) -> None:
    hook = Alerts()
    told(hook, USUAL, tmp_path)
    with pytest.warns(UserWarning, match="jumped to 9 at step 2"):
        told(hook, [1.9, 9.0], tmp_path)


@pytest.mark.parametrize(
    "losses", [USUAL * 3, [0.0] * 30, [9.0, 1.0] * 5, [3.0, 1.0] * 20, [10.0 / n for n in range(1, 40)]]
)
def test_losses_as_they_usually_are_raise_no_alarm(tmp_path: Path, losses: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert told(Alerts(), losses, tmp_path) == []


def test_losses_of_validation_are_not_compared_with_those_of_training() -> None:
    heard: list[float] = []
    ear = alerts.Ear(heard.append)
    for split, values in (("train", {"loss": 2.0}), ("val", {"loss": 9.0}), ("train", {"lr": 0.1})):
        ear.write(Record(1, 0, split, values, 0.0))
    assert heard == [2.0]


def test_the_console_leaves_to_the_warning_what_only_the_clock_says(capsys: pytest.CaptureFixture[str]) -> None:
    for values in ({"time/slow_step": 7.0}, {"loss_spike": 9.0}):
        Console().write(Record(12, 0, "event", values, 0.0))
    assert capsys.readouterr().err == "epoch 1  step 12  event: loss_spike 9.0000\n"


def test_what_was_usual_survives_a_resume(tmp_path: Path) -> None:
    first, second = Alerts(), Alerts()
    told(first, USUAL, tmp_path)
    second.load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match="jumped to 9 at step 2"):
        told(second, [1.9, 9.0], tmp_path)


def test_a_slow_step_is_an_event_beside_what_training_determines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([tick for step in range(12) for tick in (10.0 * step, 10.0 * step + (7.0 if step == 11 else 0.1))])
    monkeypatch.setattr(alerts, "perf_counter", lambda: next(clock))
    with pytest.warns(UserWarning, match=r"step 12 took 7 s; 0\.1 s were usual"):
        (event,) = told(Alerts(), [2.0] * 12, tmp_path)
    assert event["time/slow_step"] == 7.0 and "event" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize("settle", [2, 4])
def test_a_loss_is_compared_after_as_many_as_settle(settle):
    run, keep = small_run(), Keep()
    run.events.writers.append(keep)
    hook = Alerts(deviations=0.0, settle=settle)
    hook.before_train(run), hook.before_train(run)
    assert len(run.events.writers) == 2
    for step in range(settle):
        run.events.write({"loss": 1.0}, step=step, epoch=0, split="train")
    assert hook.seen == settle and (hook.mean, hook.variance) == (1.0, 0.0)
    run.events.write({"loss": 1.1}, step=settle, epoch=0, split="train")
    with pytest.warns(UserWarning, match="the loss has jumped to 2 at step 0; 1.0"):
        run.events.write({"loss": 2.0}, step=settle, epoch=0, split="train")
    assert [record.values for record in keep.records if record.split == "event"] == [{"loss_spike": 2.0}]


def test_usual_losses_are_a_mean_and_a_variance_and_leave_out_what_is_not_finite():
    run, hook = small_run(), Alerts(settle=100)
    hook.before_train(run)
    for loss in (1.0, 3.0, math.nan, math.inf):
        run.events.write({"loss": loss}, step=1, epoch=0, split="train")
    assert (hook.mean, hook.variance, hook.seen) == (2.0, 1.0, 2)
    for _ in range(18):
        run.events.write({"loss": 2.0}, step=1, epoch=0, split="train")
    run.events.write({"loss": 12.0}, step=1, epoch=0, split="train")
    assert hook.mean == pytest.approx(3.0)


def test_a_step_is_slow_from_a_second_and_many_times_the_usual_on(monkeypatch):
    run, keep, now = small_run(), Keep(), [0.0]
    run.events.writers.append(keep)
    monkeypatch.setattr("etude.hooks.alerts.perf_counter", lambda: now[0])
    hook = Alerts(times=4.0, settle=2)

    def step(seconds: float) -> None:
        hook.before_step(run)
        now[0] += seconds
        hook.after_step(run)

    for seconds in (0.125, 0.125, 1.0, 0.5):
        step(seconds)
    assert not keep.records
    with pytest.warns(UserWarning, match="step 0 took 50 s; 0.4"):
        step(50.0)
    assert [record.values for record in keep.records] == [{"time/slow_step": 50.0}]
