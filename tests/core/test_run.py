"""How a run shows itself."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from etude.core.run import Run


def test_a_run_shows_its_plan_or_that_it_is_a_run():
    run = Run(model=torch.nn.Linear(1, 1), update=None, loop=lambda run: None, total_steps=4)
    run.step, run.metrics = 2, {"accuracy": 0.123456}
    assert repr(run) == "<Run: Linear, step 2 of 4, accuracy 0.1235>"
    shown = run._repr_html_()
    assert "run" in shown and "2 of 4" in shown and "0.12346" in shown and "folder" not in shown
    run.plan = SimpleNamespace(name="digits")
    assert "digits" in run._repr_html_() and "digits" not in shown
