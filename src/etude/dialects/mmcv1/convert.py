"""mmcv 1.x config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1 import lower as lowering
from etude.dialects.openmm.raw import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import PRIORITIES, Plan

PARTS = "etude.dialects.mmcv1.live.converted"


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    plan = lowering.lower(tree)
    _require_convertible(tree)
    notes: list[str] = []
    config: dict[str, Any] = {
        "name": plan.name,
        "imports": [PARTS, *plan.imports],
        "model": {"type": "mmcv1.Model", "config": hidden(tree.values["model"], "model")},
        "data": {"train": _data(tree, plan)},
        "optim": _optimizer(tree),
        "update": _update(tree),
        "train": _training(tree, plan, notes),
        "log": {"every": f"{_interval(tree)}step"},
        "checkpoint": _checkpoint(tree),
    }
    schedule = _schedule(tree)
    if schedule is not None:
        config["schedule"] = {"lr": [schedule]}
    hooks = [
        *([] if schedule is not None else _policy(tree, "lr_config")),
        *_policy(tree, "momentum_config"),
        *_custom(tree),
    ]
    if hooks:
        config["hooks"] = hooks
    if tree.get("load_from"):
        config["init_from"] = tree.get("load_from")
    _note_the_rest(tree, notes)
    return config, notes


def _require_convertible(tree: Tree) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[str, str]] = []
    if tree.get("fp16") is not None:
        wrong.append(("fp16", "mmcv's loss scaling"))
    if (tree.get("optimizer_config") or {}).get("type", "OptimizerHook") != "OptimizerHook":
        wrong.append(("optimizer_config", "an optimizer hook of its own"))
    if "type" not in (tree.get("optimizer") or {}):
        wrong.append(("optimizer", "several optimizers"))
    if set(tree.get("optimizer", "paramwise_cfg") or {}) - {
        "custom_keys",
        "norm_decay_mult",
        "bias_lr_mult",
        "bias_decay_mult",
    }:
        wrong.append(("optimizer", "these paramwise rules"))
    if tree.get("optimizer", "constructor") not in (None, "DefaultOptimizerConstructor"):
        wrong.append(("optimizer", "an optimizer constructor of its own"))
    if not _is_plain_workflow(tree):
        wrong.append(("workflow", "this workflow"))
    if wrong:
        raise ConfigError(
            [
                Finding(str(tree.place(key)), f"{what} cannot be converted; `etude train` runs it as it is")
                for key, what in wrong
            ]
        )


def _is_plain_workflow(tree: Tree) -> bool:
    """Epochs of training, and at most one of validation after so many of them."""
    flow = [tuple(entry) for entry in tree.get("workflow") or [("train", 1)]]
    modes = [mode for mode, _ in flow]
    return modes == ["train"] or (
        modes == ["train", "val"] and flow[1][1] == 1 and "max_iters" not in tree.get("runner", default={})
    )


def _data(tree: Tree, plan: Plan) -> dict[str, Any]:
    loader = plan.data["train"]
    data: dict[str, Any] = {
        "dataset": {"type": "mmcv1.Dataset", "config": hidden(tree.values["data"]["train"], "data.train")},
        "batch_size": loader.batch_size,
        "workers": loader.workers,
        "collate": {"type": "mmcv1.Collate", "samples": loader.batch_size},
        "shuffle": False,
    }
    if loader.shuffle:
        flow = tree.get("workflow") or [("train", 1)]
        data["sampler"] = {
            "type": "mmcv1.Order",
            "evaluate_every": _evaluations(tree),
            "validate_every": flow[0][1] if len(flow) == 2 else 0,
        }
    return data


def _evaluations(tree: Tree) -> int:
    """After every how many epochs the original evaluates; 0: never."""
    if tree.get("data", "val") is None or not tree.get("evaluation", "by_epoch", default=True):
        return 0
    return int(tree.get("evaluation", "interval", default=1))


def _optimizer(tree: Tree) -> dict[str, Any]:
    given = tree.values["optimizer"]
    optimizer = {key: _plain(value) for key, value in given.items() if key not in ("paramwise_cfg", "constructor")}
    rules = dict(given.get("paramwise_cfg") or {})
    keys = rules.get("custom_keys") or {}
    groups = [
        {"match": f"*{key}*", **{name: value for name, value in keys[key].items() if name in ("lr_mult", "decay_mult")}}
        for key in sorted(sorted(keys), key=len, reverse=True)
    ]
    if "norm_decay_mult" in rules:
        groups.append({"kind": "norm", "decay_mult": rules["norm_decay_mult"]})
    bias = {f"{name}_mult": rules[f"bias_{name}_mult"] for name in ("lr", "decay") if f"bias_{name}_mult" in rules}
    if bias:
        groups.append({"kind": "bias", **bias})
    return {**optimizer, **as_torch_does(str(given["type"])), **({"groups": groups} if groups else {})}


def _update(tree: Tree) -> dict[str, Any]:
    clip = tree.get("optimizer_config", "grad_clip")
    return {"type": "mmcv1.TrainStep", **({"grad_clip": dict(clip)} if clip else {})}


def _training(tree: Tree, plan: Plan, notes: list[str]) -> dict[str, Any]:
    if tree.get("seed") is None:
        notes.append("the config has no seed, so the original draws one; this one takes 0")
    length = {"epochs": plan.train.epochs} if plan.train.steps is None else {"steps": plan.train.steps}
    return {**length, "seed": plan.train.seed, "deterministic": plan.train.deterministic}


def _interval(tree: Tree) -> int:
    return int(tree.get("log_config", "interval", default=10))


def _checkpoint(tree: Tree) -> Any:
    given = tree.get("checkpoint_config")
    if not isinstance(given, Mapping):
        return False
    unit = "ep" if given.get("by_epoch", True) else "step"
    most = given.get("max_keep_ckpts", -1)
    return {"every": f"{max(int(given.get('interval', 1)), 1)}{unit}", "keep": most if most > 0 else None}


def _schedule(tree: Tree) -> dict[str, Any] | None:
    """A policy that a native curve says with the same bits; None where the policy itself has to do it."""
    given = dict(tree.get("lr_config") or {})
    if given.pop("policy", None) not in ("step", "Step") or set(given) - {"step", "gamma"}:
        return None
    steps, gamma = given["step"], given.get("gamma", 0.1)
    if isinstance(steps, int):
        return {"type": "Step", "every": f"{steps}ep", "gamma": gamma}
    return {"type": "MultiStep", "at": [f"{step}ep" for step in steps], "gamma": gamma}


def _policy(tree: Tree, key: str) -> list[dict[str, Any]]:
    given = dict(tree.get(key) or {})
    if not given:
        return []
    suffix, priority = ("LrUpdaterHook", "VERY_HIGH") if key == "lr_config" else ("MomentumUpdaterHook", "HIGH")
    policy = given.pop("policy", "")
    kind = given.pop("type", None) or (policy.title() if policy == policy.lower() else policy) + suffix
    return [_hook(tree, {"type": kind, **given}, key, PRIORITIES[priority])]


def _custom(tree: Tree) -> list[dict[str, Any]]:
    hooks = []
    for index, given in enumerate(tree.get("custom_hooks") or []):
        config = dict(given)
        priority = config.pop("priority", "NORMAL")
        value = priority if isinstance(priority, int) else PRIORITIES[str(priority).upper()]
        hooks.append(_hook(tree, config, f"custom_hooks.{index}", value))
    return hooks


def _hook(tree: Tree, config: dict[str, Any], path: str, priority: int) -> dict[str, Any]:
    hook = {"type": "mmcv1.Hook", "config": hidden(config, path), "priority": priority}
    by_steps = tree.get("runner", "type") == "IterBasedRunner"
    return {**hook, "epochs": False} if by_steps else hook


def _note_the_rest(tree: Tree, notes: list[str]) -> None:
    if "groups" in _optimizer(tree):
        notes.append("rules of `optim.groups` that fit no parameter are mistakes here: drop those that training names")
    if len(tree.get("workflow") or []) == 2:
        notes.append("the validation epochs of the workflow are left out: they change no weight")
    if tree.get("data", "val") is not None:
        notes.append("evaluation is left out: it changes no weight; give `data.val` and `metrics` to have it")
    loggers = [hook.get("type") for hook in tree.get("log_config", "hooks", default=[]) or []]
    for name in loggers:
        if name != "TextLoggerHook":
            notes.append(f"{name} is left out: name a writer under `log.to`")
    if tree.get("resume_from"):
        notes.append("resume_from is left out: a checkpoint of mmcv can start weights (`init_from`), not go on")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
