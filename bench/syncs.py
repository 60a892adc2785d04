"""Tensor values read by Python per step between log lines (each is a wait for the device on an accelerator).

    python bench/syncs.py [--steps 200]

Counts ``aten._local_scalar_dense`` while the built-in example trains.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

import etude
from etude.build import build
from etude.building.options import Options
from etude.core.hook import FunctionHook
from etude.core.loop import fit

CONFIG = Path(__file__).parent.parent / "examples/native/digits.yaml"


class Reads(TorchDispatchMode):
    """Counts how often a tensor's value became a Python number, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in str(func):
            self.count += 1
        return func(*args, **(kwargs or {}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    plan, _ = etude.load_plan(
        CONFIG,
        [
            f"+train.steps={args.steps}",
            "~train.epochs",
            "log.every=50step",
            "train.validate=1000ep",
            "checkpoint=false",
        ],
    )
    reads = Reads()
    by_step: dict[int, int] = {}

    def note(run: etude.Run) -> None:
        by_step[run.done] = reads.count
        reads.count = 0

    run = build(plan, Options(quiet=True))
    hook = FunctionHook(note, "after_step")
    hook.priority = 1000
    run.hooks.add(hook)
    with tempfile.TemporaryDirectory(), reads:
        fit(run)
    between = {step: count for step, count in by_step.items() if step % 50}
    print(f"steps between log lines: {len(between)}, values read in them: {sum(between.values())}")
    print(
        f"steps with a log line:   {len(by_step) - len(between)}, values read in them: {sum(by_step.values()) - sum(between.values())}"
    )


if __name__ == "__main__":
    main()
