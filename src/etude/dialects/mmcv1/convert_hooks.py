"""The hooks of an mmcv 1.x config in a native one: policies, the optimizer's, users' own, averages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1.convert_data import Data
from etude.dialects.mmcv1.listing import HOOKS
from etude.dialects.openmm.escaped_types import hidden
from etude.plan import PRIORITIES

#: The part that configs with a late average import beside the others.
AVERAGE_PART = "etude.dialects.mmcv1.live.converted.average"
#: Where the native engine evaluates.
_EVALUATES_AT = 70


def update(tree: Tree, data: Data) -> dict[str, Any]:
    """``model.train_step`` and what follows it: the optimizer's hook in native words, by itself, or nothing at all."""
    step: dict[str, Any] = {"type": "mmcv1.TrainStep"}
    given = optimizer_hook(tree, data)
    if given is None:
        return {**step, "steps": False}
    if given["type"] == "OptimizerHook" and not set(given) - {"type", "grad_clip"}:
        clip = given.get("grad_clip")
        return {**step, **({"grad_clip": dict(clip)} if clip is not None else {})}
    return {**step, "hook": hidden(given, "optimizer_config")}


def optimizer_hook(tree: Tree, data: Data) -> dict[str, Any] | None:
    """The hook that a single process uses, as the train function of the project makes it."""
    given, fp16 = tree.get("optimizer_config"), tree.get("fp16")
    if given is None and (fp16 is None or data.tracks):
        return None
    usual = {"type": "OptimizerHook" if fp16 is None else "Fp16OptimizerHook"}
    hook: dict[str, Any] = {**usual, **dict(given or {})}
    if fp16 is not None:
        hook |= dict(fp16) if data.tracks else {"loss_scale": fp16["loss_scale"]}
    half = "Fp16" in str(hook["type"]) if data.tracks else fp16 is not None
    return {**hook, "distributed": False} if half else hook


def schedule(tree: Tree, data: Data) -> dict[str, Any] | None:
    """A policy that a native curve says with the same bits; None where the policy itself has to do it."""
    given = dict(tree.get("lr_config") or {})
    if given.pop("policy", None) not in ("step", "Step") or set(given) - {"step", "gamma"}:
        return None
    if "type" not in tree.values["optimizer"]:
        return None
    steps, gamma, unit = given["step"], given.get("gamma", 0.1), "step" if data.by_steps else "ep"
    if isinstance(steps, int):
        return {"type": "Step", "every": f"{steps}{unit}", "gamma": gamma}
    return {"type": "MultiStep", "at": [f"{step}{unit}" for step in steps], "gamma": gamma}


def policy(tree: Tree, data: Data, key: str) -> list[dict[str, Any]]:
    given = dict(tree.get(key) or {})
    if not given:
        return []
    suffix, priority = ("LrUpdaterHook", "VERY_HIGH") if key == "lr_config" else ("MomentumUpdaterHook", "HIGH")
    name = given.pop("policy", "")
    kind = given.pop("type", None) or (name.title() if name == name.lower() else name) + suffix
    if data.by_steps and key == "lr_config":
        given.setdefault("by_epoch", False)
    return [_hook(data, {"type": kind, **given}, key, PRIORITIES[priority])]


def custom(tree: Tree, data: Data) -> list[dict[str, Any]]:
    """Users' hooks in the order in which they act, at priorities that keep it around the native evaluation."""
    hooks = [dict(given) for given in tree.get("custom_hooks") or []]
    ranked = [
        (number(hook.pop("priority", "NORMAL")), index, hook) for index, hook in enumerate(hooks) if not is_logger(hook)
    ]
    return [
        _hook(data, hook, f"custom_hooks.{index}", _placed(priority, data), late=_is_late_average(tree, data, index))
        for priority, index, hook in sorted(ranked, key=lambda entry: entry[:2])
    ]


def _placed(priority: int, data: Data) -> int:
    """MMClassification evaluates after all hooks of priority LOW; MMTracking before those of priority NORMAL, or of LOW
    where it trains a part."""
    if data.tracks:
        first = PRIORITIES["LOW" if data.trains_a_part else "NORMAL"]
        return max(priority, _EVALUATES_AT + 1) if priority >= first else priority
    return _EVALUATES_AT - 1 if priority == PRIORITIES["LOW"] else priority


def _hook(data: Data, config: dict[str, Any], path: str, priority: int, *, late: bool = False) -> dict[str, Any]:
    kind = "mmcv1.Average" if late else "mmcv1.Hook"
    hook = {"type": kind, "config": hidden(config, path), "priority": priority}
    return {**hook, "epochs": False} if data.by_steps else hook


def _is_late_average(tree: Tree, data: Data, index: int) -> bool:
    """Whether the original saves the raw weights as the model, because it does so before an average is swapped in."""
    hook, saves = tree.get("custom_hooks")[index], tree.get("checkpoint_config")
    if not str(hook.get("type")).endswith("EMAHook") or data.by_steps or not isinstance(saves, Mapping):
        return False
    late = number(hook.get("priority", "NORMAL")) >= PRIORITIES["NORMAL"]
    return late or not saves.get("by_epoch", True)


def is_logger(hook: Mapping[str, Any]) -> bool:
    """Whether a hook of mmcv's or MMClassification's writes what the native engine records itself."""
    name = str(hook.get("type"))
    return name in HOOKS and name.endswith(("LoggerHook", "WandbHook"))


def number(priority: Any) -> int:
    return priority if isinstance(priority, int) else PRIORITIES[str(priority).upper()]
