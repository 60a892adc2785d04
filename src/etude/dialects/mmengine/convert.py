"""MMEngine config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmengine import lower as lowering
from etude.dialects.openmm.lowering import Lowering
from etude.dialects.openmm.raw import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import Plan

PARTS = ("etude.dialects.mmengine.live.converted", "etude.dialects.mmengine.live.converted_data")
#: Optimizers that this dialect runs fused, as the native engine does.
_FUSED = ("Adam", "AdamW")
#: Hooks that keep their own rules in the native engine, with their arguments.
_KEPT_HOOKS = {"EMAHook": "mmengine.EMA", "EarlyStoppingHook": "mmengine.EarlyStopping"}
#: Ways of choosing when to validate that the native engine does not have.
_DIFFERENT = ("val_begin", "dynamic_intervals")
#: What a section of ``data`` says itself.
_LOADER_WORDS = (
    "dataset",
    "sampler",
    "batch_sampler",
    "batch_size",
    "num_workers",
    "collate_fn",
    "drop_last",
    "_delete_",
)
_NATIVE_HOOKS = {"EmptyCacheHook": "EmptyCache", "SyncBuffersHook": "SyncBuffers"}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    plan = lowering.lower(tree)
    _require_convertible(tree, plan)
    notes: list[str] = []
    scope = tree.get("default_scope") or "mmengine"
    config: dict[str, Any] = {
        "name": plan.name,
        "imports": [*PARTS, *Lowering(tree).modules],
        "model": {
            "type": "mmengine.Model",
            "config": hidden(_model(tree), "model"),
            "scope": scope,
        },
        "data": {"train": _data(tree, plan, "train")},
        "optim": _optimizer(tree),
        "update": _update(tree),
        "train": _training(tree, plan, notes),
        "log": {"every": f"{tree.get('default_hooks', 'logger', 'interval', default=10)}step"},
        "checkpoint": _checkpoint(tree, notes),
    }
    config["hooks"] = [_loaders(tree), *_validation(tree, plan, config), *_schedulers(tree), *_custom(tree)]
    if tree.get("load_from") and not tree.get("resume"):
        config["init_from"] = tree.get("load_from")
    if "groups" in config["optim"]:
        notes.append("rules of `optim.groups` that fit no parameter are mistakes here: drop those that training names")
    if tree.get("test_dataloader") is not None:
        notes.append("the test data is left out: training does not look at it")
    return config, notes


def _require_convertible(tree: Tree, plan: Plan) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[tuple[str | int, ...], str]] = []
    wrapper = str(tree.get("optim_wrapper", "type", default="OptimWrapper")).rpartition(".")[2]
    if wrapper not in ("OptimWrapper", "AmpOptimWrapper"):
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
    wrong += [
        ((f"{split}_dataloader", key), f"{split}_dataloader.{key}")
        for split in ("train", "val")
        for key in ("batch_sampler", "num_batch_per_epoch")
        if tree.get(f"{split}_dataloader", key) is not None
    ]
    wrong += [(("train_cfg", key), f"train_cfg.{key}") for key in _DIFFERENT if key in (tree.get("train_cfg") or {})]
    for index, hook in enumerate(tree.get("custom_hooks") or []):
        if _last(hook) not in (*_NATIVE_HOOKS, *_KEPT_HOOKS):
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


def _data(tree: Tree, plan: Plan, split: str) -> dict[str, Any]:
    given, loader = tree.values[f"{split}_dataloader"], plan.data[split]
    data: dict[str, Any] = {
        "dataset": {"type": "mmengine.Dataset", "config": hidden(given["dataset"], f"{split}_dataloader.dataset")},
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


def _loaders(tree: Tree) -> dict[str, Any]:
    """The hook that reads the data as MMEngine does, with what the native section has no word for."""
    hook: dict[str, Any] = {"type": "mmengine.Data", "priority": 0}
    for split in ("train", "val"):
        given = tree.get(f"{split}_dataloader") or {}
        rest = {key: value for key, value in given.items() if key not in _LOADER_WORDS and value is not None}
        if rest:
            hook[split] = hidden(rest, f"{split}_dataloader")
    return hook


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
    wrapper = {key: value for key, value in given.items() if key not in ("optimizer", "constructor", "paramwise_cfg")}
    if _last(given) in ("", "OptimWrapper"):
        wrapper.pop("type", None)
    return {"type": "mmengine.TrainStep", **({"wrapper": hidden(wrapper, "optim_wrapper")} if wrapper else {})}


def _training(tree: Tree, plan: Plan, notes: list[str]) -> dict[str, Any]:
    if tree.get("randomness", "seed") is None:
        notes.append("the config has no seed, so the original draws one; this one takes 0")
    length = {"epochs": plan.train.epochs} if plan.train.steps is None else {"steps": plan.train.steps}
    return {**length, "seed": plan.train.seed, "deterministic": plan.train.deterministic}


def _checkpoint(tree: Tree, notes: list[str]) -> Any:
    given = tree.get("default_hooks", "checkpoint", default={})
    if given is None:
        return False
    unit = "ep" if given.get("by_epoch", True) else "step"
    most = given.get("max_keep_ckpts", -1)
    return {
        "every": f"{max(int(given.get('interval', 1)), 1)}{unit}",
        "keep": most if most > 0 else None,
        **_best(tree, given, notes),
    }


def _best(tree: Tree, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    name, rule = given.get("save_best"), given.get("rule")
    if name is None or tree.get("val_dataloader") is None:
        return {}
    if not isinstance(name, str) or name == "auto" or not isinstance(rule, str | None):
        notes.append(f"save_best={name!r} is left out: give `checkpoint.best` the name of one result")
        return {}
    return {"best": name, **({} if rule is None else {"mode": "max" if rule == "greater" else "min"})}


def _validation(tree: Tree, plan: Plan, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Data, metrics and interval go into ``config``; the hook that has them used as MMEngine does is returned."""
    if tree.get("val_dataloader") is None:
        return []
    unit, usual = ("ep", 1) if plan.train.steps is None else ("step", 1000)
    config["data"]["val"] = _data(tree, plan, "val")
    config["metrics"] = [
        {"type": "mmengine.Evaluator", "config": hidden(tree.values["val_evaluator"], "val_evaluator")}
    ]
    config["train"]["validate"] = f"{tree.get('train_cfg', 'val_interval', default=usual)}{unit}"
    fp16 = bool(tree.get("val_cfg", "fp16", default=False))
    return [{"type": "mmengine.Validation", "priority": 0, **({"fp16": True} if fp16 else {})}]


def _schedulers(tree: Tree) -> list[dict[str, Any]]:
    given = tree.get("param_scheduler")
    listed = [given] if isinstance(given, Mapping) else list(given or [])
    if not listed:
        return []
    schedulers = [hidden(one, "param_scheduler") for one in listed]
    return [{"type": "mmengine.ParamSchedulers", "priority": 65, "schedulers": schedulers}]


def _custom(tree: Tree) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for hook in tree.get("custom_hooks") or []:
        name = _last(hook)
        config = {key: value for key, value in hook.items() if key not in ("type", "priority")}
        if name in _NATIVE_HOOKS:
            made.append({"type": _NATIVE_HOOKS[name]})
        elif name in _KEPT_HOOKS:
            priority = {"EMAHook": 50, "EarlyStoppingHook": 100}[name]
            made.append({"type": _KEPT_HOOKS[name], "priority": priority, "config": hidden(config, "custom_hooks")})
    return made


def _last(given: Any) -> str:
    kind = given.get("type", "") if isinstance(given, Mapping) else ""
    return str(kind).rpartition(".")[2]
