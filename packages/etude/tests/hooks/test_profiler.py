"""Tests of :mod:`etude.hooks.profiler`."""

from __future__ import annotations

import warnings

import pytest
import torch

from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.profiler import Profiler
from tests.hooks.conftest import small_run


@pytest.mark.parametrize(("first", "steps", "works"), [(1, 1, True), (0, 1, False), (1, 0, False), (-1, 3, False)])
def test_profiler_traces_from_the_first_step_on(first, steps, works):
    if works:
        assert Profiler(first, steps).first == first
    else:
        with pytest.raises(ConfigError, match="first and steps must be at least 1"):
            Profiler(first, steps)


def test_profiler_leaves_a_trace_in_the_folder(tmp_path):
    fit(small_run([Profiler(first=2, steps=2)], folder=tmp_path))
    assert (tmp_path / "profile" / "trace.json").stat().st_size > 100
    assert "aten::" in (tmp_path / "profile" / "table.txt").read_text()
    fit(small_run([Profiler(first=7, steps=50)], folder=tmp_path / "short"))
    with pytest.raises(ConfigError):
        Profiler(first=0)


def test_a_profile_is_a_trace_that_perfetto_reads(tmp_path):
    """The JSON of Chrome's trace events: complete events have a time, a length, a process and a thread."""
    import json

    import etude
    from etude.data import Digits
    from etude.hooks.profiler import Profiler

    model = torch.nn.Linear(64, 10)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.CrossEntropyLoss()
    profiler = Profiler(first=2, steps=2)
    trainer = etude.Trainer(model, optimizer=optimizer, loss=loss, hooks=[profiler], folder=tmp_path, quiet=True)
    trainer.fit(Digits("train"), steps=6, batch_size=16)
    trace = json.loads((tmp_path / "profile/trace.json").read_text())
    events = trace["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} <= set("XMsftBEinbeC")
    assert all(event["dur"] >= 0 and event["ts"] >= 0 and {"pid", "tid", "name"} <= set(event) for event in complete)
    assert {"ProfilerStep#1", "ProfilerStep#2", "aten::linear"} <= {event["name"] for event in complete}
    assert "aten::addmm" in (tmp_path / "profile/table.txt").read_text()


def test_a_profile_without_a_folder_is_written_nowhere(elsewhere):
    run = small_run([hook := Profiler(first=1, steps=1)])
    fit(run)
    assert hook._traced and hook._profile is None


@pytest.mark.parametrize(("error", "exit_code", "told"), [(None, 0, 1), (ValueError(), 0, 0), (None, 143, 0)])
def test_a_profiler_that_never_began_says_so_unless_the_run_was_cut_off(error, exit_code, told):
    run = small_run()
    run.error, run.exit_code = error, exit_code
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Profiler(first=100).after_train(run)
    assert len(seen) == told
    for options in ({"first": 0}, {"steps": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            Profiler(**options)
    Profiler(first=1, steps=1)
