"""mmcv 1.x config → a native one that trains the same weights, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1 import lower as lowering
from etude.dialects.mmcv1.bounds import LESS
from etude.dialects.mmcv1.listing import OPTIMIZERS
from etude.dialects.openmm.lowering import Lowering
from etude.dialects.openmm.raw import as_torch_does, hidden
from etude.errors import ConfigError, Finding
from etude.plan import PRIORITIES, Plan

PARTS = ("etude.dialects.mmcv1.live.converted", "etude.dialects.mmcv1.live.converted_data")
#: Top-level keys that only MMTracking's configs have.
TRACKING_KEYS = ("USE_MMDET", "TRAIN_REID")
#: Loggers that have a native counterpart.
_WRITERS = {"TensorboardLoggerHook": "tensorboard"}
_SPLITS = ("train", "val", "test", "train_dataloader", "val_dataloader", "test_dataloader")
#: Keys of ``evaluation`` that are the hook's own and no arguments of ``dataset.evaluate``.
_NO_ARGUMENTS = (
    "start", "interval", "by_epoch", "save_best", "rule", "test_fn", "greater_keys", "less_keys", "out_dir", "priority",
    "file_client_args", "broadcast_bn_buffer", "tmpdir", "gpu_collect", "type",
)  # fmt: skip


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    plan = lowering.lower(tree)
    _require_convertible(tree)
    notes: list[str] = []
    config: dict[str, Any] = {
        "name": plan.name,
        "imports": [*PARTS, *plan.imports],
        "model": {"type": "mmcv1.Model", "config": hidden(tree.values["model"], "model")},
        "data": _data(tree, plan),
        "optim": _optimizer(tree),
        "update": _update(tree),
        "train": _training(tree, plan, notes),
        "log": _log(tree),
        "checkpoint": _checkpoint(tree),
    }
    if _evaluates(tree):
        config["metrics"] = [_metric(tree)]
    schedule = _schedule(tree)
    if schedule is not None:
        config["schedule"] = {"lr": [schedule]}
    hooks = [
        _loaders(tree),
        *_groups(tree),
        *([] if schedule is not None else _policy(tree, "lr_config")),
        *_policy(tree, "momentum_config"),
        *_custom(tree),
    ]
    config["hooks"] = hooks
    if tree.get("load_from"):
        config["init_from"] = tree.get("load_from")
    _note_the_rest(tree, notes)
    return config, notes


def _require_convertible(tree: Tree) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    wrong: list[tuple[str, str]] = []
    if _tracks(tree):
        key = next((key for key in (*TRACKING_KEYS, "custom_imports") if key in tree.values), "model")
        wrong.append((key, "a config of MMTracking, whose registries, loaders and tests are its own,"))
    if tree.get("fp16") is not None:
        wrong.append(("fp16", "mmcv's loss scaling"))
    if (tree.get("optimizer_config") or {}).get("type", "OptimizerHook") != "OptimizerHook":
        wrong.append(("optimizer_config", "an optimizer hook of its own"))
    if "type" not in (tree.get("optimizer") or {}):
        wrong.append(("optimizer", "several optimizers"))
    if not _is_plain_workflow(tree):
        wrong.append(("workflow", "this workflow"))
    if tree.get("evaluation", "start") is not None:
        wrong.append(("evaluation", "an evaluation that starts late, or before training,"))
    if tree.get("sampler") or tree.get("data", "sampler_cfg") or tree.get("data", "train_dataloader", "sampler_cfg"):
        wrong.append(("sampler" if tree.get("sampler") else "data", "a sampler of its own"))
    if wrong:
        raise ConfigError(
            [
                Finding(str(tree.place(key)), f"{what} cannot be converted; `etude train` runs it as it is")
                for key, what in wrong
            ]
        )


def _tracks(tree: Tree) -> bool:
    """As the train command decides it: by a key, by what is imported, or by where the model is registered."""
    low, kind = Lowering(tree), tree.get("model", "type")
    if any(key in tree.values for key in TRACKING_KEYS) or any(name.startswith("mmtrack.") for name in low.imports):
        return True
    homes = {target.partition(":")[0] for (_, name), target in low.registered.items() if name == kind}
    registries = [str(name) for source in low.sources() if source.module in homes for name in source.names.values()]
    return any(name.startswith("mmtrack") for name in registries) and not any(n.startswith("mmcls") for n in registries)


def _is_plain_workflow(tree: Tree) -> bool:
    """Training, or epochs of training and validation in turn; validation first would train on the other data."""
    flow = [tuple(entry) for entry in tree.get("workflow") or [("train", 1)]]
    modes = [mode for mode, _ in flow]
    by_epochs = "max_iters" not in (tree.get("runner") or {}) and tree.get("data", "val") is not None
    return modes == ["train"] or (modes == ["train", "val"] and by_epochs)


def _data(tree: Tree, plan: Plan) -> dict[str, Any]:
    """The splits in native words; the hook ``mmcv1.Data`` puts the original's loaders in their place."""
    found: dict[str, Any] = {"train": _split(tree, plan, "train")}
    if _evaluates(tree):
        found["val"] = _split(tree, plan, "val")
    return found


def _split(tree: Tree, plan: Plan, split: str) -> dict[str, Any]:
    loader, settings = plan.data[split], _settings(tree, split)
    dataset = {"type": "mmcv1.Dataset", "config": hidden(tree.values["data"][split], f"data.{split}")}
    if split == "val":
        dataset["test_mode"] = True
    sizes = {"batch_size": loader.batch_size, "workers": loader.workers, "shuffle": bool(settings["shuffle"])}
    return {"dataset": dataset, **sizes, "drop_last": bool(settings.get("drop_last", False))}


def _settings(tree: Tree, split: str) -> dict[str, Any]:
    """What mmclassification's ``build_dataloader`` is called with."""
    data = tree.values["data"]
    common = {key: value for key, value in data.items() if key not in _SPLITS}
    own = {"shuffle": split == "train", **({"drop_last": False} if split == "val" else {})}
    return {"dist": False, **common, **own, **dict(data.get(f"{split}_dataloader") or {})}


def _loaders(tree: Tree) -> dict[str, Any]:
    hook: dict[str, Any] = {"type": "mmcv1.Data", "priority": 0, "train": hidden(_settings(tree, "train"), "data")}
    if _evaluates(tree):
        hook["val"] = hidden(_settings(tree, "val"), "data")
    if len(tree.get("workflow") or []) == 2:
        hook["validate"] = hidden(_validation(tree), "data.val")
    return hook


def _metric(tree: Tree) -> dict[str, Any]:
    given = tree.get("evaluation") or {}
    arguments = {key: value for key, value in given.items() if key not in _NO_ARGUMENTS}
    metric: dict[str, Any] = {"type": "mmcv1.Results", "arguments": hidden(arguments, "evaluation")}
    return metric | ({"name": given["save_best"]} if given.get("save_best") else {})


def _validation(tree: Tree) -> Any:
    """The validation split with the pipeline of training, as the train script gives it to the workflow."""
    train, val = tree.values["data"]["train"], tree.values["data"]["val"]
    return {**val, "pipeline": train["pipeline"]} if "pipeline" in train else val


def _evaluates(tree: Tree) -> bool:
    return tree.get("data", "val") is not None


def _evaluations(tree: Tree) -> str:
    """How often the original evaluates."""
    unit = "step" if tree.get("runner", "type") == "IterBasedRunner" else "ep"
    return f"{int(tree.get('evaluation', 'interval', default=1))}{unit}"


def _optimizer(tree: Tree) -> dict[str, Any]:
    given = tree.values["optimizer"]
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


def _update(tree: Tree) -> dict[str, Any]:
    clip = tree.get("optimizer_config", "grad_clip")
    return {"type": "mmcv1.TrainStep", **({"grad_clip": dict(clip)} if clip else {})}


def _training(tree: Tree, plan: Plan, notes: list[str]) -> dict[str, Any]:
    if tree.get("seed") is None:
        notes.append("the config has no seed, so the original draws one; this one takes 0")
    length = {"epochs": plan.train.epochs} if plan.train.steps is None else {"steps": plan.train.steps}
    flow = [list(entry) for entry in tree.get("workflow") or []]
    return {
        **length,
        **({"workflow": flow} if len(flow) == 2 else {}),
        **({"validate": _evaluations(tree)} if _evaluates(tree) else {}),
        "seed": plan.train.seed,
        "deterministic": plan.train.deterministic,
    }


def _interval(tree: Tree) -> int:
    return int(tree.get("log_config", "interval", default=10))


def _log(tree: Tree) -> dict[str, Any]:
    writers = [_WRITERS[name] for name in _loggers(tree) if name in _WRITERS]
    return {"every": f"{_interval(tree)}step", **({"to": writers} if writers else {})}


def _loggers(tree: Tree) -> list[str]:
    return [str(hook.get("type")) for hook in tree.get("log_config", "hooks", default=[]) or []]


def _checkpoint(tree: Tree) -> Any:
    given = tree.get("checkpoint_config")
    if not isinstance(given, Mapping):
        return False
    unit = "ep" if given.get("by_epoch", True) else "step"
    most = given.get("max_keep_ckpts", -1)
    kept = {"every": f"{max(int(given.get('interval', 1)), 1)}{unit}", "keep": most if most > 0 else None}
    best = tree.get("evaluation", "save_best") if _evaluates(tree) else None
    return {**kept, "best": best, "mode": _mode(tree, best)} if best else kept


def _mode(tree: Tree, best: str) -> str:
    """Which way is better: by the rule, else by the name; of results that only an evaluation names, by the metric."""
    rule = tree.get("evaluation", "rule")
    name = str(tree.get("evaluation", "metric", default="")) if best == "auto" else best
    shrinks = rule == "less" if rule else any(word in name.casefold() for word in LESS)
    return "min" if shrinks else "max"


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
        priority = _number(config.pop("priority", "NORMAL"))
        hooks.append(_hook(tree, config, f"custom_hooks.{index}", priority))
    return hooks


def _hook(tree: Tree, config: dict[str, Any], path: str, priority: int) -> dict[str, Any]:
    hook = {"type": "mmcv1.Hook", "config": hidden(config, path), "priority": priority}
    by_steps = tree.get("runner", "type") == "IterBasedRunner"
    return {**hook, "epochs": False} if by_steps else hook


def _note_the_rest(tree: Tree, notes: list[str]) -> None:
    if tree.get("data", "test") is not None:
        notes.append(
            "data.test is left out: `etude test` with this config measures data.val, with the old one data.test"
        )
    if _saves_before_the_average(tree):
        notes.append(
            "EMAHook acts after CheckpointHook, so the original's epoch_N.pth hold the raw weights as the model; "
            "checkpoints of this one hold the averages as the model, and the raw weights as its ema_… buffers"
        )
    for name in _loggers(tree):
        if name not in ("TextLoggerHook", *_WRITERS):
            notes.append(f"{name} is left out: name a writer under `log.to`")
    if tree.get("resume_from"):
        notes.append("resume_from is left out: a checkpoint of mmcv can start weights (`init_from`), not go on")


def _saves_before_the_average(tree: Tree) -> bool:
    """Whether an average is swapped in between the original's checkpoint and its evaluation."""
    hooks = [hook for hook in tree.get("custom_hooks") or [] if str(hook.get("type")).endswith("EMAHook")]
    late = any(_number(hook.get("priority", "NORMAL")) >= PRIORITIES["NORMAL"] for hook in hooks)
    by_epochs = tree.get("runner", "type") != "IterBasedRunner"
    return late and by_epochs and isinstance(tree.get("checkpoint_config"), Mapping)


def _number(priority: Any) -> int:
    return priority if isinstance(priority, int) else PRIORITIES[str(priority).upper()]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
