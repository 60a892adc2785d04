"""Drafts a native config from one of LiBai or detectron2; see :mod:`etude.dialects.draft`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from etude.config.tree import Tree
from etude.dialects.draft import HOW_MODELS_ARE_CALLED, Draft
from etude.plan import Plan
from etude_libai import lower as lowering
from etude_libai.checks.calls import MARKS
from etude_libai.lazy.extra import dict_config, omegaconf, without_tuples
from etude_libai.lazy.targets import target_name

_CURVES = {
    "WarmupCosineLR": "Cosine",
    "WarmupCosineAnnealingLR": "Cosine",
    "WarmupPolynomialLR": "Poly",
    "WarmupExponentialLR": "Exponential",
    "WarmupStepLR": "Step",
}


def convert(tree: Tree) -> Draft:
    """Return the draft."""
    plan, tree = lowering.lower(tree), _resolved(tree)
    draft = Draft(tree, plan.name, marks=MARKS)
    draft.notes.append(HOW_MODELS_ARE_CALLED)
    draft.config["model"] = _called(draft, "model")
    if lowering.is_detectron2(tree.values):
        key, length = "optimizer", ("train", "max_iter")
        draft.notes.append("data: write a dataset that maps the dicts of detectron2 to batches")
    else:
        key, length = "optim", ("train", "train_iter")
        for split in ("train", "test"):
            _loader(draft, plan, split)
        _schedule(draft, plan)
    _optimizer(draft, key)
    for path in (length, ("train", "seed"), ("train", "output_dir"), ("train", "train_epoch")):
        draft.take(*path)
    draft.config["folder"] = plan.folder
    many = draft.take("train", "num_accumulation_steps")
    draft.put("train", epochs=plan.train.epochs, steps=plan.train.steps, seed=plan.train.seed)
    draft.put("train", accumulate=many if many and many > 1 else None)
    saving = ("train", "checkpointer")
    every, keep = draft.take(*saving, "period", default=5000), draft.take(*saving, "max_to_keep")
    draft.put("checkpoint", every=f"{int(every)}step", keep=keep)
    if tree.get("train", "log_period") is not None:
        draft.put("log", every=f"{int(draft.take('train', 'log_period'))}step")
    if plan.init_from:
        draft.config["init_from"] = str(plan.init_from["path"])
        draft.take("train", "load_weight")
        draft.take("train", "init_checkpoint")
    return draft


def _called(draft: Draft, *path: str | int) -> dict[str, Any]:
    """Return the lazy call at ``path`` as a component of that name."""
    target = draft.tree.get(*path, "_target_")
    return draft.component(*path, target=target_name(target) if target is not None else "", leave_out=("params",))


def _loader(draft: Draft, plan: Plan, split: str) -> None:
    path: tuple[str | int, ...] = ("dataloader", split)
    given = draft.tree.get(*path)
    if isinstance(given, list | tuple) and given:
        path, given = (*path, 0), given[0]
    if split not in plan.data or not isinstance(given, Mapping):
        return
    inside = (*path, "dataset")
    if isinstance(given.get("dataset"), list | tuple):
        inside = (*inside, 0)
    known = plan.data[split]
    for key in ("_target_", "num_workers"):
        draft.take(*path, key)
    draft.take("train", f"{split}_micro_batch_size")
    shuffle = bool(draft.take(*path, "sampler", "shuffle", default=split == "train"))
    target = draft.tree.get(*inside, "_target_")
    made = draft.loader(
        *inside,
        target=target_name(target) if target is not None else "",
        batch_size=known.batch_size,
        workers=known.workers,
        shuffle=shuffle,
    )
    draft.put("data", **{"val" if split == "test" else split: made})


def _optimizer(draft: Draft, key: str) -> None:
    made = _called(draft, key)
    made["type"] = made["type"].rpartition(".")[2] if made["type"].startswith("oneflow.") else made["type"]
    made.pop("do_bias_correction", None)
    rules = (key, "params")
    if draft.tree.get(*rules, "clip_grad_max_norm") is not None:
        made["clip_norm"] = draft.take(*rules, "clip_grad_max_norm")
        draft.take(*rules, "clip_grad_norm_type")
        draft.notes.append("optim: LiBai clips each parameter group by itself; clip_norm clips all of them together")
    groups: list[dict[str, Any]] = []
    if draft.tree.get(*rules, "weight_decay_bias") is not None:  # first, because it is for biases of norms, too
        groups.append({"match": "*.bias", "weight_decay": draft.take(*rules, "weight_decay_bias")})
    if draft.tree.get(*rules, "weight_decay_norm") is not None:
        groups.append({"kind": "norm", "weight_decay": draft.take(*rules, "weight_decay_norm")})
    draft.take(*rules, "_target_")
    draft.config["optim"] = {**made, **({"groups": groups} if groups else {})}


def _schedule(draft: Draft, plan: Plan) -> None:
    path = ("train", "scheduler")
    given: Mapping[str, Any] = draft.tree.get(*path) or {}
    name = target_name(given["_target_"]).rpartition(".")[2] if "_target_" in given else ""
    if name not in _CURVES or given.get("cycle"):
        return
    base, gamma = float(draft.tree.get("optim", "lr") or 1.0), given.get("gamma", 0.1)
    arguments: dict[str, dict[str, Any]] = {
        "WarmupCosineLR": {"to": given.get("alpha", 0.0)},
        "WarmupCosineAnnealingLR": {"to": given.get("eta_min", 0.0) / base},
        "WarmupPolynomialLR": {"to": given.get("end_learning_rate", 1e-4) / base, "power": given.get("power", 1.0)},
        "WarmupExponentialLR": {"gamma": gamma, "every": "1step"},
        "WarmupStepLR": {"gamma": gamma, "every": f"{given.get('step_size')}step"},
    }
    phases = [{"type": _CURVES[name], **arguments[name]}]
    length = math.ceil((plan.train.steps or 0) * (draft.take("train", "warmup_ratio") or 0))
    if length:
        factor = given.get("warmup_factor", 0.0)
        constant = given.get("warmup_method", "linear") == "constant"
        first = {"type": "Constant", "factor": factor} if constant else {"type": "Linear", "from": factor, "to": 1.0}
        phases.insert(0, {**first, "until": f"{length}step"})
        draft.notes.append("schedule: LiBai's runs below the warm-up from step 0; here it begins after the warm-up")
    draft.take(*path)
    draft.put("schedule", lr=phases)


def _resolved(tree: Tree) -> Tree:
    """Resolve interpolations (``${..lr}``). A section that is known only when training begins stays as it is."""
    package, values = omegaconf(), dict(tree.values)
    config = dict_config(values)
    for key in tree.values:
        with suppress(package.errors.OmegaConfBaseException):
            node = config[key]
            if package.OmegaConf.is_config(node):
                values[key] = without_tuples(package.OmegaConf.to_container(node, resolve=True))
    return replace(tree, values=values)
