"""MMEngine config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.mmengine import lower as lowering
from etude.dialects.mmengine.convert_hooks import Hooks
from etude.dialects.mmengine.results import first_result
from etude.dialects.mmengine.rules import guess
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.escaped_types import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import Plan

PARTS = tuple(f"etude.dialects.mmengine.live.{name}" for name in ("converted", "converted_data", "converted_hooks"))
#: Rules for parameters that native groups say; with any other one MMEngine's constructor makes the groups.
_SAID = {"custom_keys", "norm_decay_mult", "bias_lr_mult", "bias_decay_mult", "bypass_duplicate"}
#: Ways of choosing when to validate that MMEngine's hook decides by its own rules.
_CHOSEN = {"val_begin": "begin", "dynamic_intervals": "dynamic_intervals"}
#: Keys that change how a run computes in a way that the native engine has no word for.
_UNSAID = ("efficient_conv_bn_eval", "strategy")
#: Keys that change what a run costs, or how several processes work together.
_LEFT_OUT = ("compile", "activation_checkpointing", "model_wrapper_cfg")
#: What a section of ``data`` says itself.
_LOADER_WORDS = ("dataset", "sampler", "batch_size", "num_workers", "collate_fn", "drop_last", "_delete_")
#: Backends of the visualizer that have native counterparts, or whose files the native engine has anyway.
_WRITERS = {"TensorboardVisBackend": "tensorboard", "LocalVisBackend": ""}


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
        "log": _log(tree, notes),
        "checkpoint": _checkpoint(tree, notes),
    }
    hooks = Hooks(tree).converted()
    begins = any(hook["type"] == "mmengine.Hook" for hook in hooks)
    first = {**_loaders(tree), **({"init": False} if begins else {})}
    last = [{"type": "mmengine.Begin", "priority": 105}] if begins else []
    config["hooks"] = [first, *_validation(tree, plan, config), *_schedulers(tree), *hooks, *last]
    if tree.get("load_from") and not tree.get("resume"):
        config["init_from"] = tree.get("load_from")
    elif tree.get("resume"):
        notes.append("resume is left out: a checkpoint of MMEngine can start weights (`init_from`), not go on")
    if "groups" in config["optim"]:
        notes.append("rules of `optim.groups` that fit no parameter are mistakes here: drop those that training names")
    notes += [f"{key} is left out" for key in _LEFT_OUT if tree.get(key)]
    if tree.get("test_dataloader") is not None:
        notes.append("the test data is left out: training does not look at it")
    return config, notes


def _require_convertible(tree: Tree, plan: Plan) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[Path, str]] = []
    if _last(tree.get("optim_wrapper")) == "ApexOptimWrapper":
        wrong.append((("optim_wrapper",), "ApexOptimWrapper"))
    if not plan.loop.name.rpartition(".")[2].startswith(("EpochBasedTrainLoop", "IterBasedTrainLoop")):
        wrong.append((("train_cfg",), f"the loop {plan.loop.name}"))
    if _last(tree.get("val_cfg")) not in ("", "ValLoop"):
        wrong.append((("val_cfg",), f"the loop {_last(tree.get('val_cfg'))}"))
    if tree.get("runner_type") not in (None, "Runner"):
        wrong.append((("runner_type",), f"the runner {tree.get('runner_type')}"))
    wrong += [((key,), key) for key in _UNSAID if tree.get(key)]
    wrong += Hooks(tree).obstacles()
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
    unseeded = (tree.get("default_hooks") or {}).get("sampler_seed", {}) is None
    return {**hook, "set_epoch": False} if unseeded else hook


def _optimizer(tree: Tree) -> dict[str, Any]:
    if _is_constructed(tree):
        return _constructed(tree)
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
    return {**plain, **as_torch_does(kind), **({"groups": groups} if groups else {})}


def _is_constructed(tree: Tree) -> bool:
    """Whether a constructor of MMEngine's has to make the optimizers: several, by rules or of kinds of its own."""
    given = tree.values["optim_wrapper"]
    name = _last(given.get("optimizer"))
    own = ("OPTIMIZERS", name) in Lowering(tree).registered or not lowering.TABLES["OPTIMIZERS"].get(
        name, "torch.optim:"
    ).startswith("torch.")
    by_itself = "optimizer" not in given or given.get("constructor") not in (None, "DefaultOptimWrapperConstructor")
    rules = given.get("paramwise_cfg") or {}
    options = {option for key in (rules.get("custom_keys") or {}).values() for option in key}
    unsaid = set(rules) - _SAID | options - {"lr_mult", "decay_mult"}
    return own or by_itself or bool(unsaid) or bool(tree.get("auto_scale_lr", "enable"))


def _constructed(tree: Tree) -> dict[str, Any]:
    made = {"type": "mmengine.OptimWrapper", "config": hidden(tree.values["optim_wrapper"], "optim_wrapper")}
    if not tree.get("auto_scale_lr", "enable"):
        return made
    sizes = [tree.get("train_dataloader", "batch_size"), tree.get("auto_scale_lr", "base_batch_size")]
    return {**made, "scale": sizes}


def _update(tree: Tree) -> dict[str, Any]:
    given = tree.values["optim_wrapper"]
    wrapper = {key: value for key, value in given.items() if key not in ("optimizer", "constructor", "paramwise_cfg")}
    if _last(given) in ("", "OptimWrapper"):
        wrapper.pop("type", None)
    if not wrapper or _is_constructed(tree):
        return {"type": "mmengine.TrainStep"}
    return {"type": "mmengine.TrainStep", "wrapper": hidden(wrapper, "optim_wrapper")}


def _log(tree: Tree, notes: list[str]) -> dict[str, Any]:
    backends = [_last(one) for one in tree.get("visualizer", "vis_backends") or []]
    for name in backends:
        if name not in _WRITERS:
            notes.append(f"{name} is left out: name a writer under `log.to`")
    writers = [_WRITERS[name] for name in backends if _WRITERS.get(name)]
    every = f"{(tree.get('default_hooks', 'logger') or {}).get('interval', 10)}step"
    return {"every": every, **({"to": writers} if writers else {})}


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
    if name == "auto":
        name = first_result(Lowering(tree), lowering.TABLES, lowering.WORDS) or name
    if not isinstance(name, str) or name == "auto" or not isinstance(rule, str | None):
        notes.append(f"save_best={name!r} is left out: give `checkpoint.best` the name of one result")
        return {}
    keys = {word: given[f"{word}_keys"] for word in ("greater", "less") if given.get(f"{word}_keys")}
    way = rule or guess(name, **{word: [key] if isinstance(key, str) else key for word, key in keys.items()})
    return {"best": name, **({} if way is None else {"mode": "max" if way == "greater" else "min"})}


def _validation(tree: Tree, plan: Plan, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Data, metrics and interval go into ``config``; the hook that has them used as MMEngine does is returned."""
    if tree.get("val_dataloader") is None:
        return []
    unit, usual = ("ep", 1) if plan.train.steps is None else ("step", 1000)
    config["data"]["val"] = _data(tree, plan, "val")
    metrics = {"type": "mmengine.Evaluator", "config": hidden(tree.values["val_evaluator"], "val_evaluator")}
    best = config["checkpoint"].get("best") if config["checkpoint"] else None
    config["metrics"] = [{**metrics, "name": best} if best else metrics]
    interval = tree.get("train_cfg", "val_interval", default=usual)
    given = {word: tree.get("train_cfg", key) for key, word in _CHOSEN.items()}
    chosen = {
        word: [list(pair) for pair in value] if word == "dynamic_intervals" else value
        for word, value in given.items()
        if value is not None
    }
    config["train"]["validate"] = f"1{unit}" if chosen else f"{interval}{unit}"
    fp16 = bool(tree.get("val_cfg", "fp16", default=False))
    more = {**({"fp16": True} if fp16 else {}), **({"interval": interval, **chosen} if chosen else {})}
    return [{"type": "mmengine.Validation", "priority": 0, **more}]


def _schedulers(tree: Tree) -> list[dict[str, Any]]:
    given = tree.get("param_scheduler")
    if not given:
        return []
    by_name = isinstance(given, Mapping) and "type" not in given
    listed: Any = dict(given) if by_name else [given] if isinstance(given, Mapping) else list(given)
    schedulers = hidden(listed, "param_scheduler")
    return [{"type": "mmengine.ParamSchedulers", "priority": 65, "schedulers": schedulers}]


def _last(given: Any) -> str:
    kind = given.get("type", "") if isinstance(given, Mapping) else ""
    return str(kind).rpartition(".")[2]
