"""MMEngine config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmengine import lower as lowering
from etude.dialects.openmm.raw import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import Plan

PARTS = "etude.dialects.mmengine.live.converted"
#: Hooks of every run whose work the native engine does by itself, or that do not touch training.
_OURS = {
    "RuntimeInfoHook",
    "IterTimerHook",
    "DistSamplerSeedHook",
    "LoggerHook",
    "ParamSchedulerHook",
    "CheckpointHook",
}
#: Optimizers that this dialect runs fused, as the native engine does.
_FUSED = ("Adam", "AdamW")
_NATIVE_HOOKS = {"EmptyCacheHook": "EmptyCache", "SyncBuffersHook": "SyncBuffers"}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    plan = lowering.lower(tree)
    _require_convertible(tree, plan)
    notes: list[str] = []
    scope = tree.get("default_scope") or "mmengine"
    config: dict[str, Any] = {
        "name": plan.name,
        "imports": [PARTS, *plan.imports],
        "model": {
            "type": "mmengine.Model",
            "config": hidden(_model(tree), "model"),
            "scope": scope,
            "draws": int(plan.train.steps is not None),
        },
        "data": {"train": _data(tree, plan)},
        "optim": _optimizer(tree),
        "update": _update(tree),
        "train": _training(tree, plan, notes),
        "log": {"every": f"{tree.get('default_hooks', 'logger', 'interval', default=10)}step"},
        "checkpoint": _checkpoint(tree),
    }
    hooks = [*_schedulers(tree), *_custom(plan)]
    if hooks:
        config["hooks"] = hooks
    if tree.get("load_from") and not tree.get("resume"):
        config["init_from"] = tree.get("load_from")
    if "groups" in config["optim"]:
        notes.append("rules of `optim.groups` that fit no parameter are mistakes here: drop those that training names")
    if tree.get("val_dataloader") is not None:
        notes.append("validation is left out: it changes no weight; give `data.val` and `metrics` to have it")
    return config, notes


def _require_convertible(tree: Tree, plan: Plan) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[tuple[str | int, ...], str]] = []
    wrapper = str(tree.get("optim_wrapper", "type", default="OptimWrapper")).rpartition(".")[2]
    if wrapper != "OptimWrapper":
        wrong.append((("optim_wrapper",), f"{wrapper}"))
    if tree.get("optim_wrapper", "constructor") not in (None, "DefaultOptimWrapperConstructor"):
        wrong.append((("optim_wrapper", "constructor"), "an optim wrapper constructor of its own"))
    rules = tree.get("optim_wrapper", "paramwise_cfg") or {}
    if set(rules) - {"custom_keys", "norm_decay_mult", "bias_lr_mult", "bias_decay_mult", "bypass_duplicate"}:
        wrong.append((("optim_wrapper", "paramwise_cfg"), "these paramwise rules"))
    if not plan.loop.name.rpartition(".")[2].startswith(("EpochBasedTrainLoop", "IterBasedTrainLoop")):
        wrong.append((("train_cfg",), f"the loop {plan.loop.name}"))
    if isinstance(tree.get("param_scheduler"), Mapping) and "type" not in tree.get("param_scheduler"):
        wrong.append((("param_scheduler",), "schedulers by optimizer"))
    for index, hook in enumerate(tree.get("custom_hooks") or []):
        if str(hook.get("type")).rpartition(".")[2] not in _NATIVE_HOOKS:
            wrong.append((("custom_hooks", index), f"the hook {hook.get('type')}"))
    if wrong:
        raise ConfigError(
            [
                Finding(str(tree.place(*path)), f"{what} cannot be converted; `etude train` runs it as it is")
                for path, what in wrong
            ]
        )


def _model(tree: Tree) -> dict[str, Any]:
    given = dict(tree.values["model"])
    if tree.get("data_preprocessor") is not None:
        given.setdefault("data_preprocessor", tree.get("data_preprocessor"))
    return given


def _data(tree: Tree, plan: Plan) -> dict[str, Any]:
    given, loader = tree.values["train_dataloader"], plan.data["train"]
    data: dict[str, Any] = {
        "dataset": {"type": "mmengine.Dataset", "config": hidden(given["dataset"], "train_dataloader.dataset")},
        "batch_size": loader.batch_size,
        "workers": loader.workers,
        "shuffle": False,
        "drop_last": loader.drop_last,
        "collate": {
            "type": "mmengine.Collate",
            "config": hidden(given.get("collate_fn") or {"type": "pseudo_collate"}, "collate_fn"),
        },
    }
    if given.get("sampler") is not None:
        data["sampler"] = {
            "type": "mmengine.Sampler", "config": hidden(given["sampler"], "sampler"), "seed": plan.train.seed,
        }  # fmt: skip
    return data


def _optimizer(tree: Tree) -> dict[str, Any]:
    given = tree.values["optim_wrapper"]
    kind = str(given["optimizer"]["type"])
    optimizer = {**given["optimizer"], "type": kind}
    rules = given.get("paramwise_cfg") or {}
    keys = rules.get("custom_keys") or {}
    groups: list[dict[str, Any]] = [
        {"match": f"*{key}*", **keys[key]} for key in sorted(sorted(keys), key=len, reverse=True)
    ]
    if "norm_decay_mult" in rules:
        groups.append({"kind": "norm", "decay_mult": rules["norm_decay_mult"]})
    bias = {f"{name}_mult": rules[f"bias_{name}_mult"] for name in ("lr", "decay") if f"bias_{name}_mult" in rules}
    if bias:
        groups.append({"kind": "bias", **bias})
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in optimizer.items()}
    if kind.rpartition(".")[2] not in _FUSED:
        plain |= as_torch_does(kind)
    return {**plain, **({"groups": groups} if groups else {})}


def _update(tree: Tree) -> dict[str, Any]:
    given = tree.values["optim_wrapper"]
    wrapper = {key: value for key, value in given.items() if key in ("accumulative_counts", "clip_grad")}
    return {"type": "mmengine.TrainStep", **({"wrapper": hidden(wrapper, "optim_wrapper")} if wrapper else {})}


def _training(tree: Tree, plan: Plan, notes: list[str]) -> dict[str, Any]:
    if tree.get("randomness", "seed") is None:
        notes.append("the config has no seed, so the original draws one; this one takes 0")
    length = {"epochs": plan.train.epochs} if plan.train.steps is None else {"steps": plan.train.steps}
    return {**length, "seed": plan.train.seed, "deterministic": plan.train.deterministic}


def _checkpoint(tree: Tree) -> Any:
    given = tree.get("default_hooks", "checkpoint", default={})
    if given is None:
        return False
    unit = "ep" if given.get("by_epoch", True) else "step"
    most = given.get("max_keep_ckpts", -1)
    return {"every": f"{max(int(given.get('interval', 1)), 1)}{unit}", "keep": most if most > 0 else None}


def _schedulers(tree: Tree) -> list[dict[str, Any]]:
    given = tree.get("param_scheduler")
    listed = [given] if isinstance(given, Mapping) else list(given or [])
    if not listed:
        return []
    return [{"type": "mmengine.ParamSchedulers", "schedulers": [hidden(one, "param_scheduler") for one in listed]}]


def _custom(plan: Plan) -> list[dict[str, Any]]:
    names = [hook.spec.name.rpartition(".")[2] for hook in plan.hooks]
    return [{"type": _NATIVE_HOOKS[name]} for name in names if name in _NATIVE_HOOKS and name not in _OURS]
