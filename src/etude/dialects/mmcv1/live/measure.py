"""``etude test``: a model of mmcv 1.x on its test data, measured by the data set's own ``evaluate``."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.mmcv1.live.build import build
from etude.dialects.mmcv1.live.hooks.evaluation import EvalHook
from etude.errors import ConfigError
from etude.plan import Plan

if TYPE_CHECKING:
    from etude.build import Options


def measure(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    """Evaluate a run on ``split`` in place of the validation data."""
    source: dict[str, Any] = copy.deepcopy(dict(plan.source))
    data = source["data"]
    data["val"] = data[split]
    if f"{split}_dataloader" in data:
        data["val_dataloader"] = data[f"{split}_dataloader"]
    source |= {"load_from": checkpoint, "resume_from": None}
    with contextlib.redirect_stdout(sys.stderr):  # for what data sets and progress bars print beside the results
        return _found(plan, options, source)


def _found(plan: Plan, options: Options, source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let the hook evaluate now as it would in a run, by its project's own loop over the data, and save nothing."""
    runner: Any = build(dataclasses.replace(plan, source=source), options).runner
    hook: Any = next((hook for hook in runner.hooks if isinstance(hook, EvalHook)), None)
    if hook is None:
        raise ConfigError("the config has no `evaluation`, which says what to measure", at=str(plan.model.at))
    found: dict[str, Any] = {}

    def evaluate(runner: Any, results: Any) -> None:
        found.update(hook.dataloader.dataset.evaluate(results, logger=runner.logger, **hook.eval_kwargs))

    hook.start, hook.interval, hook.save_best, hook.evaluate = None, 1, None, evaluate
    hook._do_evaluate(runner)
    return found
