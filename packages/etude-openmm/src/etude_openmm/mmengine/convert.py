"""Drafts a native config from one of MMEngine; see :mod:`etude.dialects.draft`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.plan import Plan
from etude_openmm.mmengine.lower import lower
from etude_openmm.shared.convert import OpenDraft

_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}
#: Schedulers of the learning rate → their arguments in the draft.
_TIMES = ("by_epoch", "begin", "end", "type", "T_max", "convert_to_iter_based", "total_iters")


def convert(tree: Tree) -> OpenDraft:
    """Return the draft."""
    plan = lower(tree)
    draft = OpenDraft(tree, plan.name)
    draft.config["model"] = draft.part("model")
    for split in ("train", "val"):
        if split in plan.data:
            _loader(draft, plan, split)
    wrapper = "optim_wrapper"
    draft.optimizer((wrapper, "optimizer"), (wrapper, "paramwise_cfg"), (wrapper, "clip_grad"))
    unit = "ep" if plan.train.steps is None else "step"
    _schedule(draft, plan)
    for key in ("max_epochs", "max_iters", "by_epoch", "type"):
        draft.take("train_cfg", key)
    draft.take("randomness", "seed")
    draft.take("optimizer")  # a variable that optim_wrapper repeats
    draft.put("train", epochs=plan.train.epochs, steps=plan.train.steps, seed=plan.train.seed)
    draft.put("train", accumulate=draft.take(wrapper, "accumulative_counts"))
    if draft.take(wrapper, "type") == "AmpOptimWrapper":
        draft.put("train", precision=_PRECISIONS.get(str(draft.take(wrapper, "dtype")), "fp16"))
    if "val" in plan.data:
        draft.put("train", validate=f"{draft.take('train_cfg', 'val_interval', default=1)}{unit}")
        draft.notes.append("metrics: name yours; val_evaluator's work on the data samples of MMEngine")
    saving = ("default_hooks", "checkpoint")
    if isinstance(tree.get(*saving), Mapping):
        draft.take(*saving, "type")
        every, keep = (draft.take(*saving, key) for key in ("interval", "max_keep_ckpts"))
        draft.put("checkpoint", every=f"{every or 1}{unit}", keep=keep if keep and keep > 0 else None)
        if isinstance(tree.get(*saving, "save_best"), str) and tree.get(*saving, "save_best") != "auto":
            mode = {"less": "min", "greater": "max"}.get(str(draft.take(*saving, "rule")))
            draft.put("checkpoint", best=draft.take(*saving, "save_best"), mode=mode)
    if tree.get("default_hooks", "logger", "interval") is not None:
        draft.take("default_hooks", "logger", "type")
        draft.put("log", every=f"{draft.take('default_hooks', 'logger', 'interval')}step")
    if tree.get("load_from"):
        draft.config["init_from"] = draft.take("load_from")
    draft.hooks("custom_hooks")
    return draft


def _loader(draft: OpenDraft, plan: Plan, split: str) -> None:
    section, known = f"{split}_dataloader", plan.data[split]
    for key in ("batch_size", "num_workers", "drop_last"):
        draft.take(section, key)
    if draft.tree.get(section, "sampler", "type") == "DefaultSampler":
        draft.take(section, "sampler")
    batches: dict[str, Any] = {
        "batch_size": known.batch_size,
        "workers": known.workers,
        "shuffle": bool(known.shuffle),
        "drop_last": known.drop_last,
    }
    draft.put("data", **{split: draft.loader(section, "dataset", target=draft.name(section, "dataset"), **batches)})


def _schedule(draft: OpenDraft, plan: Plan) -> None:
    given = draft.tree.get("param_scheduler")
    listed = given if isinstance(given, list | tuple) else [given] if isinstance(given, Mapping) else []
    whole = {"ep": plan.train.epochs, "step": plan.train.steps}
    phases = []
    for one in listed:
        unit = "ep" if one.get("by_epoch", True) else "step"
        curve = _curve(draft, one, unit)
        if not curve:
            return  # one without a direct form leaves the whole list to its reader
        until = {"until": f"{one['end']}{unit}"} if one.get("end") not in (None, whole[unit]) else {}
        by = {"by": "epoch"} if unit == "ep" and not one.get("convert_to_iter_based") else {}
        phases.append({**curve, **until, **by})
    for number, one in enumerate(listed):
        place = ("param_scheduler", number) if isinstance(given, list | tuple) else ("param_scheduler",)
        for key in one:
            draft.take(*place, key)
    if phases:
        draft.put("schedule", lr=phases)
        draft.notes.append("schedule: MMEngine reaches a scheduler's last value one epoch or step before its `end`")


def _curve(draft: OpenDraft, given: Mapping[str, Any], unit: str) -> dict[str, Any]:
    gamma, base = given.get("gamma", 0.1), draft.tree.get("optim_wrapper", "optimizer", "lr")
    least = given.get("eta_min_ratio") or draft.factor(given.get("eta_min"), base)
    curves: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "LinearLR": (
            {"type": "Linear", "from": given.get("start_factor", 1 / 3), "to": given.get("end_factor", 1.0)},
            ("start_factor", "end_factor"),
        ),
        "ConstantLR": ({"type": "Constant", "factor": given.get("factor", 1 / 3)}, ("factor",)),
        "CosineAnnealingLR": ({"type": "Cosine", "to": least}, ("eta_min", "eta_min_ratio")),
        "PolyLR": ({"type": "Poly", "power": given.get("power", 1.0), "to": least}, ("power", "eta_min")),
        "ExponentialLR": ({"type": "Exponential", "gamma": gamma, "every": f"1{unit}"}, ("gamma",)),
        "StepLR": (
            {"type": "Step", "every": f"{given.get('step_size')}{unit}", "gamma": gamma},
            ("step_size", "gamma"),
        ),
        "MultiStepLR": (
            {"type": "MultiStep", "at": [f"{one}{unit}" for one in given.get("milestones") or ()], "gamma": gamma},
            ("milestones", "gamma"),
        ),
    }
    curve, arguments = curves.get(str(given.get("type")), ({}, ()))
    return curve if set(given) <= {*_TIMES, *arguments} else {}
