"""``etude test``: the runner's ``test()`` on weights of a file, as the downstream test scripts do it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.mmengine.live.build import build
from etude.plan import Plan

if TYPE_CHECKING:
    from etude.build import Options


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    """The metrics on the test data, or on what validation would see in its place: no hook then keeps a best file."""
    source = dict(plan.source)
    if split == "val":
        fp16 = bool((source.get("val_cfg") or {}).get("fp16", False))
        source |= {
            "test_dataloader": source["val_dataloader"],
            "test_evaluator": source["val_evaluator"],
            "test_cfg": {"fp16": fp16},
        }
    source |= {"load_from": checkpoint, "resume": False}
    run = build(dataclasses.replace(plan, source=source), options)
    runner: Any = run.runner
    return runner.test()  # type: ignore[no-any-return]
