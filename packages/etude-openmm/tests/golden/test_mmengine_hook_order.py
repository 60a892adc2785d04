"""Which hooks act in which order, and what they see of the counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden.goldens import params
from tests.golden.mmengine import toys
from tests.golden.mmengine.toys import Hook

FALLBACKS = ("_before_epoch", "_after_epoch", "_before_iter", "_after_iter")


def recorder(spec: dict[str, Any], trace: list[str]) -> Hook:
    """A hook that notes every point it comes to, or those it is told to."""
    points = FALLBACKS if spec.get("generic") else spec.get("points", Hook.stages)

    def method(point: str) -> Any:
        def note(self: Hook, runner: Any, *args: Any, **kwargs: Any) -> None:
            words = [f"{spec['name']}.{point}"]
            if not isinstance(runner._train_loop, dict):
                words += [f"e{runner.epoch}", f"i{runner.iter}"]
            if "batch_idx" in kwargs:
                words.append(f"b{kwargs['batch_idx']}")
            if "mode" in kwargs:
                words.append(kwargs["mode"])
            elif point == "after_train_iter":
                words.append("o=" + ",".join(kwargs["outputs"]))
            elif point in ("after_val_epoch", "after_test_epoch"):
                words.append("m=" + ",".join(kwargs["metrics"]))
            trace.append(" ".join(words))
            if point == spec.get("stop_at") and runner.iter >= spec.get("stop_iter", 0):
                runner.train_loop.stop_training = True

        return note

    return type(spec["name"], (Hook,), {point: method(point) for point in points})()


@pytest.mark.parametrize("case", params("mmengine", "hook_order"))
def test_hooks_act_in_the_recorded_order(case: dict[str, Any], tmp_path: Path) -> None:
    trace: list[str] = []
    script = case.get("metrics") or [{"acc": 0.5}]
    arguments: dict[str, Any] = {}
    if case["val"]:
        arguments |= toys.validation(script, batches=case["val_batches"])
    if case["test"]:
        tested = toys.validation(script, batches=case["val_batches"])
        arguments |= {key.replace("val_", "test_", 1): value for key, value in tested.items()}
    runner = toys.runner(
        tmp_path,
        model=toys.ToyNet(),
        train_dataloader=toys.loader(toys.ToyData(2 * case["iters_per_epoch"])),
        train_cfg=toys.train_cfg(case["train_cfg"]),
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
        default_hooks=case["default_hooks"],
        **arguments,
    )
    for spec in case["hooks"]:
        runner.register_hook(recorder(spec, trace), priority=spec["priority"])
    for verb in case["call"].split("+"):
        getattr(runner, verb)()

    expect = case["expect"]
    assert [[type(hook).__name__, hook.priority] for hook in runner.hooks] == expect["order"]
    stages = {stage: _active(runner, stage) for stage in Hook.stages}
    assert {stage: names for stage, names in stages.items() if names} == expect["stages"]
    assert trace == expect["trace"]
    if expect["final"] is not None:
        assert {"epoch": runner.epoch, "iter": runner.iter} == expect["final"]


def _active(runner: Any, stage: str) -> list[str]:
    return [type(hook).__name__ for hook in runner.hooks if stage in hook.get_triggered_stages()]
