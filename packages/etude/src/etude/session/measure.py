"""Implements ``etude test``: builds a run, loads the weights of a checkpoint, and evaluates once."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch

from etude import dialects
from etude.build import build
from etude.building.options import Options
from etude.checkpoint import manifest
from etude.checkpoint.find import find, find_best
from etude.checkpoint.state import check_weights
from etude.checkpoint.store import Store
from etude.checkpoint.warm_start import init_from
from etude.core.hook import HookTable
from etude.core.loop import evaluate
from etude.core.run import Run, named_hooks
from etude.errors import ConfigError, printable
from etude.errors.spelling import suggest
from etude.fast_dataclass import replace
from etude.plan import Plan
from etude.session.last_words import relative


def measure(
    plan: Plan, options: Options, checkpoint: str, split: str = "", *, best: bool | str = False
) -> dict[str, float]:
    """Evaluate the weights of ``checkpoint`` once; return the results that are numbers.

    ``split`` is the test data by default, or the validation data where there is no other. All of it is measured, also
    where the training was limited to a few batches.
    """
    checkpoint = find_best(checkpoint, "" if best is True else best) if best else find(checkpoint)
    split = split or ("test" if "test" in plan.data else "val")
    if split not in plan.data:
        raise ConfigError(f"the config has no {split} data", at=plan.files[0], hint=suggest(split, plan.data))
    plan = replace(plan, train=replace(plan.train, limit_batches=None, overfit=None))
    found = dialects.of(plan).measure(plan, options, checkpoint, split, _native)
    return {str(name): float(value) for name, value in found.items() if _is_number(value)}


def _native(plan: Plan, options: Options, checkpoint: str, split: str) -> Mapping[str, Any]:
    run = build(plan, options)
    hooks, run.hooks = run.hooks, HookTable()
    if os.path.isfile(os.path.join(checkpoint, manifest.NAME)):
        _take(run, hooks, Store(os.path.dirname(os.path.abspath(checkpoint)), write=False).load(checkpoint).state)
    else:
        init_from(run.model, checkpoint, strict=True, trust=options.trust)
    if not options.quiet:
        averages = "".join(f", with the average of {hook.name}" for hook in run.hooks if getattr(hook, "average", 0))
        print(f"etude: {printable(relative(checkpoint))} on the {split} data{averages}", file=sys.stderr)
    return evaluate(run, run.data[split], run.evaluation)


def _take(run: Run, hooks: HookTable, state: Mapping[str, Any]) -> None:
    """Load the weights, and the hooks that replace them during an evaluation, such as an average."""
    check_weights(run.model, state["model"])
    run.model.load_state_dict(state["model"])
    for name, hook in named_hooks(hooks):
        part, load = state.get(f"hook.{name}"), getattr(hook, "load_state_dict", None)
        if part is not None and load is not None and "before_eval" in hook.calls():
            load(part)
            run.hooks.add(hook)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, torch.Tensor) and value.numel() == 1)
