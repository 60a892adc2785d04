"""mmcv 1.x config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1 import convert_hooks as hooks
from etude.dialects.mmcv1 import lower as lowering
from etude.dialects.mmcv1.bounds import LESS
from etude.dialects.mmcv1.convert_data import Data
from etude.dialects.mmcv1.listing import OPTIMIZERS, RUNNERS
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.escaped_types import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import Plan

PARTS = ("etude.dialects.mmcv1.live.converted.adapters", "etude.dialects.mmcv1.live.converted.data")
#: Loggers that have a native counterpart.
_WRITERS = {"TensorboardLoggerHook": "tensorboard"}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    try:
        return _converted(tree)
    except ConfigError as error:
        raise ConfigError([replace(one, at=one.at or _place(tree, one.message)) for one in error.findings]) from error


def _place(tree: Tree, message: str) -> str:
    """Of the value whose way a message begins with: ``model.backbone: …``."""
    way = [int(key) if key.isdigit() else key for key in message.partition(":")[0].split(".")]
    return str(tree.place(*way))


def _converted(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    plan, data = lowering.lower(tree), Data(tree)
    _require_convertible(tree, data)
    notes: list[str] = []
    curve, length = hooks.schedule(tree, data), _length(tree, data, plan)
    config: dict[str, Any] = {
        "name": plan.name,
        "imports": [*PARTS, *plan.imports],
        "model": data.model(),
        "data": data.sections(),
        "optim": _optimizer(tree),
        "update": hooks.update(tree, data),
        "train": {**length, **data.training(), **_randomness(tree, plan, notes), **_device(tree, data)},
        "log": _log(tree),
        "checkpoint": _checkpoint(tree, data, length),
        **data.metrics(),
        **({"schedule": {"lr": [curve]}} if curve is not None else {}),
    }
    config["hooks"] = [
        data.loaders(),
        *_groups(tree),
        *([] if curve is not None else hooks.policy(tree, data, "lr_config")),
        *hooks.policy(tree, data, "momentum_config"),
        *hooks.custom(tree, data),
        *data.evaluations(),
    ]
    if any(hook["type"] == "mmcv1.Average" for hook in config["hooks"]):
        config["imports"].insert(len(PARTS), hooks.AVERAGE_PART)
    if tree.get("load_from"):
        config["init_from"] = tree.get("load_from")
    _note_the_rest(tree, data, notes)
    return config, notes


def _require_convertible(tree: Tree, data: Data) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[str | int, ...]] = []
    if tree.get("fp16") is not None and "type" in (tree.get("optimizer_config") or {}) and not data.tracks:
        wrong.append(("fp16", "`fp16` beside an optimizer_config with a `type`, which MMClassification refuses,"))
    if "type" not in tree.values["optimizer"] and "constructor" not in tree.values["optimizer"]:
        wrong.append(("optimizer", "several optimizers without a `constructor`, which mmcv refuses,"))
    if data.workflow_mistake():
        wrong.append(("workflow", data.workflow_mistake()))
    if data.by_runner and tree.get("runner", "type", default="EpochBasedRunner") not in (*RUNNERS, "Runner"):
        wrong.append(("runner", "a runner of its own, whose loop only it knows,"))
    for index, hook in enumerate(tree.get("custom_hooks") or []):
        if hook.get("type") == "CheckpointHook":
            wrong.append(("custom_hooks", index, "a second CheckpointHook"))
    if wrong:
        raise ConfigError([Finding(str(tree.place(*way)), _refusal(str(what))) for *way, what in wrong])


def _refusal(what: str) -> str:
    return f"{what} cannot be converted" + ("" if "refuses" in what else "; `etude train` runs it as it is")


def _optimizer(tree: Tree) -> dict[str, Any]:
    given = tree.values["optimizer"]
    if "type" not in given:
        return {"type": "mmcv1.Constructed"}
    own = {key: value for key, value in given.items() if key not in ("paramwise_cfg", "constructor")}
    name = str(given["type"])
    if not OPTIMIZERS.get(name, "").startswith("torch.") or ("OPTIMIZERS", name) in Lowering(tree).registered:
        return {"type": "mmcv1.Optimizer", "config": hidden(own, "optimizer")}
    return {**{key: _plain(value) for key, value in own.items()}, **as_torch_does(name)}


def _groups(tree: Tree) -> list[dict[str, Any]]:
    """Rules for parameters look at the modules that hold them: mmcv's own constructor follows them."""
    given = tree.values["optimizer"]
    if not given.get("paramwise_cfg") and given.get("constructor") in (None, "DefaultOptimizerConstructor"):
        return []
    return [{"type": "mmcv1.Groups", "priority": 0, "config": hidden(given, "optimizer")}]


def _length(tree: Tree, data: Data, plan: Plan) -> dict[str, Any]:
    """MMTracking goes by `total_epochs` where there is one, whatever `runner` says."""
    if not data.by_runner and tree.get("total_epochs") is not None:
        return {"epochs": tree.get("total_epochs")}
    return {"steps": plan.train.steps} if data.by_steps else {"epochs": plan.train.epochs}


def _randomness(tree: Tree, plan: Plan, notes: list[str]) -> dict[str, Any]:
    if tree.get("seed") is None:
        notes.append("the config has no seed, so the original draws one; this one takes 0")
    return {"seed": plan.train.seed, "deterministic": plan.train.deterministic}


def _device(tree: Tree, data: Data) -> dict[str, Any]:
    """MMTracking looks at no such key."""
    return {"device": str(tree.get("device"))} if tree.get("device") and not data.tracks else {}


def _log(tree: Tree) -> dict[str, Any]:
    writers = [_WRITERS[name] for name in _loggers(tree) if name in _WRITERS]
    every = int(tree.get("log_config", "interval", default=10))
    return {"every": f"{every}step", **({"to": writers} if writers else {})}


def _loggers(tree: Tree) -> list[str]:
    custom = [hook for hook in tree.get("custom_hooks") or [] if hooks.is_logger(hook)]
    return [str(hook.get("type")) for hook in [*(tree.get("log_config", "hooks", default=[]) or []), *custom]]


def _checkpoint(tree: Tree, data: Data, length: Mapping[str, Any]) -> Any:
    """When the original saves, and what it keeps; where it has no CheckpointHook, only what is best."""
    best = tree.get("evaluation", "save_best") if data.evaluates else None
    kept = {"best": best, "mode": _mode(tree, best)} if best else {}
    given, never = tree.get("checkpoint_config"), _beyond(length)
    if not isinstance(given, Mapping):
        return {"every": never, "keep": 1, "save_last": False, **kept} if kept else False
    interval, most = int(given.get("interval", -1)), given.get("max_keep_ckpts", -1)
    unit = "ep" if given.get("by_epoch", not data.by_steps) else "step"
    every = f"{interval}{unit}" if interval > 0 else never
    last = {} if given.get("save_last", True) else {"save_last": False}
    return {"every": every, "keep": most if most > 0 else None, **last, **kept}


def _beyond(length: Mapping[str, Any]) -> str:
    """An interval that never comes to an end within the run."""
    return f"{length['steps'] + 1}step" if "steps" in length else f"{int(length['epochs']) + 1}ep"


def _mode(tree: Tree, best: str) -> str:
    """Which way is better: by the rule, else by the name; of results that only an evaluation names, by the metric."""
    rule = tree.get("evaluation", "rule")
    name = str(tree.get("evaluation", "metric", default="")) if best == "auto" else best
    shrinks = rule == "less" if rule else any(word in name.casefold() for word in LESS)
    return "min" if shrinks else "max"


def _note_the_rest(tree: Tree, data: Data, notes: list[str]) -> None:
    if len(data.flow) == 2 and data.flow[0][0] == "val":
        notes.append(
            "the workflow begins with validation, so the original trains on data.val and validates on data.train, both "
            "with the pipeline of training; this one does, too"
        )
    for name in _loggers(tree):
        if name not in ("TextLoggerHook", *_WRITERS):
            notes.append(f"{name} is left out: name a writer under `log.to`")
    if tree.get("resume_from"):
        notes.append("resume_from is left out: a checkpoint of mmcv can start weights (`init_from`), not go on")
    if tree.get("auto_resume"):
        notes.append("auto_resume is left out: `etude train --resume` resumes from the newest checkpoint")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
