"""What a notebook shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import etude
from etude.data import Digits
from etude.errors import MissingExtra, UserError
from etude.events.history import MOST, History, LiveCurves
from etude.events.record import Record
from tests.cli.commands import CONFIG


@pytest.fixture
def run(workdir):
    model = torch.nn.Linear(64, 10)
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss(), quiet=True
    )
    return trainer.fit(Digits("train"), val=Digits("val"), epochs=3, batch_size=256, log="2step")


def test_run_plot_gives_a_figure(run):
    figure = run.plot()
    assert {trace.name for trace in figure.data} == {"train/loss", "val/loss"}
    assert len(run.plot("train/lr").data[0].x) > 3
    assert run.plot("throughput/steps_per_second").data  # named as in the folder of a run
    with pytest.raises(UserError, match="no curve 'train/lss'; did you mean 'train/loss'"):
        run.plot("train/lss")


def test_without_plotly_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtra, match=r"etude\[report\]"):
        run.plot()


def test_rich_representations_escape_names(run, workdir):
    assert "Linear" in run._repr_html_() and "val" not in run._repr_html_().split("loss")[0]
    Path("c.yaml").write_text(CONFIG + "name: <b>x\n")
    plan, _ = etude.load_plan("c.yaml")
    assert "&lt;b&gt;x" in plan._repr_html_() and "AdamW" in plan._repr_html_()


def test_history_stays_small_and_keeps_its_ends():
    history = History()
    for step in range(3 * MOST):
        history.write(Record(step, 0, "train", {"loss": float(step)}, 0.0))
    points = history.curves["train/loss"]
    assert len(points) <= MOST and points[0] == (0, 0) and points[-1][0] == 3 * MOST - 1
    assert points == sorted(points)


def test_live_curves_are_an_svg(monkeypatch):
    live = LiveCurves(total=40)
    monkeypatch.setattr(live, "_show", lambda force: None)
    for step in range(5):
        live.write(Record(step, 0, "train", {"loss": 1.0 / (step + 1), "lr": 0.1}, 0.0))
    assert (
        "<svg" in live.html()
        and "<progress" in live.html()
        and "train/loss" in live.html()
        and "train/lr" not in live.html()
    )
    assert live.html().count("<polyline") == 1
    live.write(Record(5, 0, "train", {"loss": float("nan")}, 0.0))
    live.write(Record(6, 0, "train", {"loss": 0.5}, 0.0))
    assert live.html().count("<polyline") == 2  # with a gap between them
