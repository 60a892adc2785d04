"""``etude test``: a model of mmcv 1.x on its test data, measured by the data set's own ``evaluate``."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from etude.dialects.mmcv1.live.build import build
from etude.dialects.mmcv1.live.hooks.evaluation import EvalHook
from etude.errors import ConfigError
from etude.plan import Plan

if TYPE_CHECKING:
    from etude.build import Options


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    """What the evaluation of a run would find, on ``split`` in place of the validation data."""
    source: dict[str, Any] = copy.deepcopy(dict(plan.source))
    data = source["data"]
    data["val"] = data[split]
    if f"{split}_dataloader" in data:
        data["val_dataloader"] = data[f"{split}_dataloader"]
    source |= {"load_from": checkpoint, "resume_from": None}
    runner: Any = build(dataclasses.replace(plan, source=source), options).runner
    hook = next((hook for hook in runner.hooks if isinstance(hook, EvalHook)), None)
    if hook is None:
        raise ConfigError("the config has no `evaluation`, which says what to measure", at=str(plan.model.at))
    results, dataset = hook.test_fn(runner.model, hook.dataloader), cast(Any, hook.dataloader.dataset)
    found: Mapping[str, Any] = dataset.evaluate(results, logger=runner.logger, **hook.eval_kwargs)
    return found
