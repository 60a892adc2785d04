"""Drafts a native config from one of mmcv 1.x; see :mod:`etude.dialects.draft`."""

from __future__ import annotations

from typing import Any

from etude.config.tree import Tree
from etude.plan import Plan
from etude_openmm.mmcv1.lower import lower
from etude_openmm.shared.convert import OpenDraft

_WARMUPS = {"linear": "Linear", "exp": "Exponential", "constant": "Constant"}


def convert(tree: Tree) -> OpenDraft:
    """Return the draft."""
    plan = lower(tree)
    draft = OpenDraft(tree, plan.name)
    draft.config["model"] = draft.part("model")
    for split in ("train", "val"):
        if split in plan.data:
            _loader(draft, plan, split)
    draft.optimizer(("optimizer",), ("optimizer", "paramwise_cfg"), ("optimizer_config", "grad_clip"))
    unit = "ep" if plan.train.steps is None else "step"
    _schedule(draft, plan, unit)
    for key in (("runner", "max_epochs"), ("runner", "max_iters"), ("runner", "type"), ("total_epochs",), ("seed",)):
        draft.take(*key)
    draft.put("train", epochs=plan.train.epochs, steps=plan.train.steps, seed=plan.train.seed)
    draft.put("train", accumulate=draft.take("optimizer_config", "cumulative_iters"))
    if "val" in plan.data and tree.get("evaluation") is not None:
        draft.put("train", validate=f"{draft.take('evaluation', 'interval', default=1)}{unit}")
        draft.notes.append("metrics: name yours; `evaluation.metric` is an argument of the dataset's own evaluate()")
    if isinstance(tree.get("checkpoint_config"), dict):
        every, keep = (draft.take("checkpoint_config", key) for key in ("interval", "max_keep_ckpts"))
        draft.put("checkpoint", every=f"{every or 1}{unit}", keep=keep if keep and keep > 0 else None)
    if tree.get("log_config", "interval") is not None:
        draft.put("log", every=f"{draft.take('log_config', 'interval')}step")
    if tree.get("load_from"):
        draft.config["init_from"] = draft.take("load_from")
    draft.hooks("custom_hooks")
    return draft


def _loader(draft: OpenDraft, plan: Plan, split: str) -> None:
    known = plan.data[split]
    for key in ("samples_per_gpu", "workers_per_gpu"):
        draft.take("data", key)
        draft.take("data", f"{split}_dataloader", key)
    draft.put(
        "data",
        **{
            split: draft.loader(
                "data",
                split,
                target=draft.name("data", split),
                batch_size=known.batch_size,
                workers=known.workers,
                shuffle=bool(known.shuffle),
            )
        },
    )


def _schedule(draft: OpenDraft, plan: Plan, unit: str) -> None:
    given: dict[str, Any] = dict(draft.tree.get("lr_config") or {})
    policy = str(given.get("policy", "")).lower()
    each = unit if given.get("by_epoch", unit == "ep") else "step"
    gamma, step = given.get("gamma", 0.1), given.get("step")
    least = given.get("min_lr_ratio") or draft.factor(given.get("min_lr"), draft.tree.get("optimizer", "lr"))
    curves: dict[str, dict[str, Any]] = {
        "fixed": {"type": "Constant"},
        "cosineannealing": {"type": "Cosine", "to": least},
        "poly": {"type": "Poly", "power": given.get("power", 1.0), "to": least},
        "exp": {"type": "Exponential", "gamma": gamma, "every": f"1{each}"},
        "step": {"type": "Step", "every": f"{step}{each}", "gamma": gamma}
        if isinstance(step, int)
        else {"type": "MultiStep", "at": [f"{one}{each}" for one in step or ()], "gamma": gamma},
    }
    if policy not in curves:
        return
    for key in ("policy", "by_epoch", "gamma", "step", "min_lr_ratio", "min_lr", "power"):
        draft.take("lr_config", key)
    phases = [curves[policy]]
    if given.get("warmup") in _WARMUPS:
        kind, ratio = _WARMUPS[draft.take("lr_config", "warmup")], draft.take("lr_config", "warmup_ratio", default=0.1)
        by_epoch = draft.take("lr_config", "warmup_by_epoch")
        until = f"{draft.take('lr_config', 'warmup_iters', default=0)}{'ep' if by_epoch else 'step'}"
        ends = {"factor": ratio} if kind == "Constant" else {"from": ratio, "to": 1.0}
        phases.insert(0, {"type": kind, **ends, "until": until})
        draft.notes.append("schedule: mmcv multiplies warm-up and policy; here the policy begins after the warm-up")
    draft.put("schedule", lr=phases)
