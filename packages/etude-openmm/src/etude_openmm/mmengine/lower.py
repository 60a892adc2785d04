"""Lowers MMEngine configs to a plan: loops, hooks, wrappers and schedulers as specs with places, and the mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects import ownership
from etude.dialects.base import accepted
from etude.errors import Finding
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import replace
from etude.plan import PRIORITIES, HookPlan, Loader, Optimizer, Plan, Spec, Training
from etude.units import Amount
from etude_openmm.mmengine import names
from etude_openmm.mmengine.projects import beside_mmcv2, scope_of, with_project
from etude_openmm.shared.checks.checker import Role, Rules, check, check_hook_methods
from etude_openmm.shared.checks.lowering import Lowering, number
from etude_openmm.shared.checks.schemas import KeyTable
from etude_openmm.shared.checks.weights import report_weights
from etude_openmm.shared.config.config_v2 import read_source
from etude_openmm.shared.project_names import missing_mmcv, missing_project
from etude_openmm.shared.reading.errors import reported_by_line
from etude_openmm.shared.reading.imported import broken_imports
from etude_openmm.shared.reading.inherited import report_inherited, report_late_changes
from etude_openmm.shared.reading.tree import tree_of

KEYS = KeyTable(__file__)
#: Arguments of the runner, and the other keys that it reads from a config.
KNOWN_KEYS = (
    *KEYS.names(), "cfg", "resume_from", "train_pipeline", "val_pipeline", "test_pipeline", "file_client_args",
    "backend_args", "dataset_type", "data_root", "metainfo",
)  # fmt: skip
#: Those of them that are variables by custom, for use in other keys: nothing but the config reads them.
_VARIABLES = (
    "vis_backends", "train_pipeline", "val_pipeline", "test_pipeline", "file_client_args", "backend_args",
    "dataset_type", "data_root", "metainfo", "tta_pipeline",
)  # fmt: skip
_READ = tuple(key for key in KNOWN_KEYS if key not in _VARIABLES)
#: The hooks of every run, by their key in ``default_hooks``: class and priority.
DEFAULT_HOOKS = {
    "runtime_info": ("RuntimeInfoHook", 10), "timer": ("IterTimerHook", 50),
    "sampler_seed": ("DistSamplerSeedHook", 50), "logger": ("LoggerHook", 60),
    "param_scheduler": ("ParamSchedulerHook", 70), "checkpoint": ("CheckpointHook", 90),
}  # fmt: skip
_LOADER_KEYS = KEYS.fields("LOADER")
SPLITS = ("train", "val", "test")
#: Keys whose dict has fields of its own, and no class.
_SECTIONS = ("train_cfg", "custom_imports", "randomness", "env_cfg", "auto_scale_lr")
_GENERAL = "ParamScheduler"
_HOOK = "etude_openmm.mmengine.live.hooks.hook:Hook"
#: Points of mmcv 1.x that MMEngine calls otherwise.
_FORMER_POINTS = {
    "before_epoch": "before_train_epoch", "after_epoch": "after_train_epoch", "before_iter": "before_train_iter",
    "after_iter": "after_train_iter",
}  # fmt: skip
#: Where MMEngine has what mmcv 1.x calls otherwise.
_FORMER = {
    "optimizer": "optim_wrapper.optimizer", "optimizer_config": "optim_wrapper.clip_grad",
    "lr_config": "param_scheduler", "momentum_config": "param_scheduler", "evaluation": "val_evaluator and train_cfg",
    "checkpoint_config": "default_hooks.checkpoint", "log_config": "default_hooks.logger", "runner": "train_cfg",
    "total_epochs": "train_cfg.max_epochs", "max_epochs": "train_cfg.max_epochs", "max_iters": "train_cfg.max_iters",
    "data": "train_dataloader, val_dataloader and test_dataloader", "seed": "randomness.seed",
    "deterministic": "randomness.deterministic", "cudnn_benchmark": "env_cfg.cudnn_benchmark",
    "dist_params": "env_cfg.dist_cfg", "resume_from": "resume and load_from", "workflow": "train_cfg",
    "clip_grad": "optim_wrapper.clip_grad", "paramwise_cfg": "optim_wrapper.paramwise_cfg",
    "evaluator": "val_evaluator", "fp16": "optim_wrapper, as type='AmpOptimWrapper'",
}  # fmt: skip
_TRAINS = ("model", "train_cfg", "val_cfg", "test_cfg", "optim_wrapper")
_INITS = ("Constant", "Xavier", "Normal", "TruncNormal", "Uniform", "Kaiming", "Caffe2Xavier")


def _general(schedulers: Mapping[str, str]) -> dict[str, str]:
    """Return the curve behind each twin for lr and momentum: they take what it takes, and its signature can be read."""
    general = {name.removesuffix(_GENERAL): target for name, target in schedulers.items() if name.endswith(_GENERAL)}
    curves = {name: re.sub("(LR|Momentum|WeightDecay)$", "", name) for name in schedulers}
    return {name: general.get(curves[name], target) for name, target in schedulers.items()}


#: Registry → name → the class whose source shows what a config can give.
TABLES = {**names.REGISTERED, "PARAM_SCHEDULERS": _general(names.REGISTERED["PARAM_SCHEDULERS"])}


RULES = Rules(
    top=KNOWN_KEYS,
    roles={
        "model": Role(("MODELS",), given=("data_preprocessor",)),
        r"(model\.)?data_preprocessor": Role(("MODELS",)),
        r"\w+_dataloader\.dataset(\.dataset|\.datasets\.\d+)?": Role(("DATASETS",)),
        r"\w+_evaluator(\.metrics)?(\.\d+)?": Role(("METRICS", "EVALUATOR")),
        r"\w+_dataloader\.collate_fn": Role(("FUNCTIONS",), given=("data_batch", "batch")),
        r"(val|test)_cfg": Role(("LOOPS",), given=("runner", "dataloader", "evaluator")),
        "visualizer": Role(("VISUALIZERS",), given=("name", "save_dir")),
        r"visualizer\.vis_backends(\.\d+)?": Role(("VISBACKENDS",), given=("save_dir",)),
        "log_processor": Role(("LOG_PROCESSORS",)),
        r".*\bpipeline\.\d+(\.transforms(\.\d+)+)?": Role(("TRANSFORMS",)),
        r"model\.(.*\.)?(backbone|neck|head|\w+_head|target_generator)": Role(("MODELS",), exact=False),
    },
    closed=(("randomness",), ("env_cfg", "mp_cfg"), ("custom_imports",)),
    named={
        "constructor": Role(("OPTIM_WRAPPER_CONSTRUCTORS",), word="optim wrapper constructor"),
        "ema_type": Role(("MODELS",)),
    },
    served=names.MODULES,
    tables=TABLES,
    names={
        **{name: target for table in names.REGISTERED.values() for name, target in table.items()},
        **{name: f"mmengine.model.weight_init:{name}Init" for name in _INITS},
        "Pretrained": "mmengine.model.weight_init:PretrainedInit",
    },
    keys={
        **{(f"{split}_dataloader",): _LOADER_KEYS for split in SPLITS},
        ("optim_wrapper",): ("optimizer", "constructor", "paramwise_cfg", "clip_grad", "accumulative_counts"),
        ("optim_wrapper", "clip_grad"): KEYS.fields("CLIP"),
        ("optim_wrapper", "paramwise_cfg"): KEYS.fields("PARAMWISE"),
        ("optim_wrapper", "paramwise_cfg", "custom_keys", "*"): KEYS.fields("RULE"),
        ("custom_hooks", "*"): ("momentum", "update_buffers"),
        ("env_cfg", "mp_cfg"): KEYS.fields("MULTIPROCESSING"),
        ("env_cfg", "dist_cfg"): ("backend",),
        **{(key,): KEYS.fields(key) for key in _SECTIONS},
    },
    defaults={
        **{("default_hooks", key): name for key, (name, _) in DEFAULT_HOOKS.items()},
        ("optim_wrapper",): "OptimWrapper",
        ("train_cfg",): "EpochBasedTrainLoop",
        ("val_cfg",): "ValLoop",
        ("test_cfg",): "TestLoop",
        ("log_processor",): "LogProcessor",
    },
)  # fmt: skip


def _bind(low: Lowering, spec: Spec, table: str, **options: Any) -> None:
    """Compare a spec with the class that it names in a registry."""
    low.bind(spec, TABLES.get(table, {}), table=table, **options)


def read(path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree:
    """Read the config and its bases, with overrides; nothing of ``custom_imports`` is imported."""
    with reported_by_line(path, base="_base_.{}"):
        source = read_source(path)
    return tree_of(source, path, overrides, options or {})


def lower(tree: Tree) -> Plan:
    """Return the plan. Raise one :class:`~etude.errors.ConfigError` with everything that is wrong."""
    return accepted(survey(tree))


def survey(tree: Tree) -> tuple[Plan, list[Finding]]:
    """Return the plan, and everything that is wrong with the config."""
    low = Lowering(tree)
    low.registered = with_project(low.registered, tree.values, tree.files)
    loop = _loop(low)
    optimizers = _optimizers(low)
    _schedulers(low)
    plan = Plan(
        dialect="mmengine",
        name=str(tree.get("experiment_name") or os.path.splitext(os.path.basename(next(iter(tree.files), "run")))[0]),
        folder=str(tree.get("work_dir") or "work_dirs"),
        imports=low.imports,
        model=_model(low),
        data={split: _loader(low, split) for split in SPLITS if tree.get(f"{split}_dataloader") is not None},
        optimizers=optimizers,
        update=Spec(kind="update", name="mmengine.TrainStep", at=low.place("optim_wrapper")),
        loop=loop,
        hooks=tuple(sorted([*_default_hooks(low), *_custom_hooks(low)], key=lambda hook: hook.priority)),
        metrics=tuple(low.spec(path, "metric") for path in _listed(low, ("val_evaluator",))),
        train=_training(low, loop),
        init_from={"path": tree.get("load_from")} if tree.get("load_from") and not tree.get("resume") else {},
        source=tree.values,
        files=tuple(tree.files),
    )
    if not _is_fragment(tree.values):
        low.unknown_keys(KNOWN_KEYS, {key: f"MMEngine reads {word}" for key, word in _FORMER.items()})
    report_late_changes(low, _READ)
    _check(low)
    report_weights(low, "load_from")
    report_inherited(low)
    low.findings += broken_imports(tree.files)
    return plan, low.findings


def _check(low: Lowering) -> None:
    project = scope_of(low.tree.values, low.tree.files)
    if ownership.original("mmengine") is None:
        first = next(iter(low.tree.values), "train_cfg")
        hint = "pip install mmengine-lite (or mmengine)"
        low.error(low.place(str(first)), "MMEngine, which the config is for, is not installed", hint)
        return
    if lack := missing_mmcv(project):
        low.error(low.place("default_scope"), f"{project} needs mmcv", lack)
    check(low, replace(RULES, folders=beside_mmcv2(), lacking=missing_project(project)))
    for path, name in low.tree.walk():
        if path[0] in ("custom_hooks", "default_hooks") and path[-1] == "type":
            check_hook_methods(low, low.registered.get(("HOOKS", str(name)), ""), _HOOK, _FORMER_POINTS)


def _is_fragment(values: Mapping[str, Any]) -> bool:
    """Return whether a file is a base of others, or a config of a tool that does not train."""
    return not any(key in values for key in _TRAINS)


def _model(low: Lowering) -> Spec:
    if "model" not in low.tree.values:
        near = nearest("model", [str(key) for key in low.tree.values])
        text = "the key `model` is missing"
        if near or not _is_fragment(low.tree.values):
            low.error(low.place(), text, f"did you mean {near!r}?" if near else "")
        else:
            low.warning(low.place(), f"{text}: this file is a part of a config, or one for another tool")
    return low.spec(("model",), "model")


def _loader(low: Lowering, split: str) -> Loader:
    section = f"{split}_dataloader"
    given = low.tree.get(section)
    for key in given if isinstance(given, Mapping) else ():
        if key not in _LOADER_KEYS:
            low.error(low.place(section, key), f"unknown key {section}.{key}", suggest(str(key), _LOADER_KEYS))
    _shuffling(low, section, given)
    _workers(low, section)
    sampler = low.spec((section, "sampler"), "sampler") if low.tree.get(section, "sampler") is not None else None
    if sampler is not None and sampler.name:
        _bind(low, sampler, "DATA_SAMPLERS", given=("dataset", "seed"), also=("seed",))
    return Loader(
        dataset=low.spec((section, "dataset"), "dataset"),
        batch_size=number(low, (section, "batch_size"), 1, least=1),
        workers=number(low, (section, "num_workers"), 0),
        shuffle=bool(low.tree.get(section, "sampler", "shuffle", default=split == "train")),
        drop_last=bool(low.tree.get(section, "drop_last", default=False)),
        sampler=sampler,
        at=low.place(section),
    )


def _shuffling(low: Lowering, section: str, given: Any) -> None:
    if isinstance(given, Mapping) and "shuffle" in given:
        hint = f"write sampler=dict(type='DefaultSampler', shuffle={bool(given['shuffle'])})"
        low.error(low.place(section, "shuffle"), f"{section}.shuffle is a matter of the sampler", hint)
    if isinstance(low.tree.get(section, "sampler"), str):
        name = low.tree.get(section, "sampler")
        low.error(low.place(section, "sampler"), f"{section}.sampler must be a dict", f"write dict(type={name!r})")


def _workers(low: Lowering, section: str) -> None:
    if low.tree.get(section, "num_workers", default=0) == 0:
        for key in ("persistent_workers", "prefetch_factor"):
            if low.tree.get(section, key):
                low.error(low.place(section, key), f"{section}.{key} needs num_workers of at least 1")


def _optimizers(low: Lowering) -> dict[str, Optimizer]:
    """Return the optimizer, or several by name where a user-defined constructor makes something of them."""
    given = low.tree.get("optim_wrapper")
    if not isinstance(given, Mapping):
        return {}
    names = [str(key) for key, value in given.items() if isinstance(value, Mapping) and "optimizer" in value]
    several = names if "constructor" in given and "optimizer" not in given else [""]
    made = {name: _optimizer(low, ("optim_wrapper", name) if name else ("optim_wrapper",)) for name in several}
    return {name: optimizer for name, optimizer in made.items() if optimizer is not None}


def _optimizer(low: Lowering, path: Path) -> Optimizer | None:
    given = low.tree.get(*path)
    wrapper = low.spec(path, "update", default="OptimWrapper")
    if given.get("optimizer") is None:
        several = [str(key) for key, value in given.items() if isinstance(value, Mapping) and "optimizer" in value]
        hint = suggest("optimizer", map(str, given)) if given else ""
        hint = f"give a `constructor` that makes {', '.join(several)}" if several else hint
        low.error(wrapper.at, f"{dotted(path)} has no `optimizer`", hint)
        return None
    also = ("optimizer", "constructor", "paramwise_cfg")
    _bind(low, wrapper, "OPTIM_WRAPPERS", word="optim wrapper", also=also)
    if not isinstance(given["optimizer"], Mapping):
        text, hint = f"{dotted(path)}.optimizer must be a dict", "write dict(type='SGD', …)"
        low.error(low.place(*path, "optimizer"), text, hint)
        return None
    clip = given.get("clip_grad")
    spec = low.spec((*path, "optimizer"), "optimizer")
    # A constructor may take keys for itself, as those that let the learning rate decay by layers do.
    taken = tuple(spec.args) if "constructor" in given else ()
    _bind(low, spec, "OPTIMIZERS", given=("params",), also=taken)
    norm = clip.get("max_norm") if isinstance(clip, Mapping) else None
    clips = () if norm is None else (Spec(kind="clipping", name="Norm", args={"max": norm}),)
    return Optimizer(spec=spec, clip=clips)


def _schedulers(low: Lowering) -> None:
    given = low.tree.get("param_scheduler")
    by_name = isinstance(given, Mapping) and "type" not in given
    homes: list[Path] = [("param_scheduler", str(name)) for name in given] if by_name else [("param_scheduler",)]
    for path in [path for home in homes for path in _listed(low, home)]:
        spec = low.spec(path, "schedule")
        if not spec.name:
            low.error(spec.at, "a scheduler needs a `type`")
            continue
        also = ("convert_to_iter_based", "epoch_length", *(("param_name",) if spec.name.endswith(_GENERAL) else ()))
        given_too = ("optimizer", "param_name")
        _bind(low, spec, "PARAM_SCHEDULERS", word="parameter scheduler", given=given_too, also=also)


def _listed(low: Lowering, path: Path) -> list[Path]:
    """Return the paths of the dicts at ``path``: one, or a list of them."""
    value = low.tree.get(*path)
    if isinstance(value, Mapping):
        return [path]
    return [(*path, index) for index, item in enumerate(value or ()) if isinstance(item, Mapping)]


def _loop(low: Lowering) -> Spec:
    given = low.tree.get("train_cfg")
    if not isinstance(given, Mapping):
        return Spec(kind="loop", name="EpochBasedTrainLoop", at=low.place("train_cfg"))
    by_epoch = given.get("by_epoch", "max_iters" not in given)
    default = "EpochBasedTrainLoop" if by_epoch else "IterBasedTrainLoop"
    other = "max_iters" if by_epoch else "max_epochs"
    if "type" not in given and other in given:
        hint = f"by_epoch={not by_epoch} would use it"
        low.error(low.place("train_cfg", other), f"train_cfg.{other} does nothing when by_epoch is {by_epoch}", hint)
    spec = low.spec(("train_cfg",), "loop", default=default, leave_out=("by_epoch", other))
    _bind(low, spec, "LOOPS", given=("runner", "dataloader"))
    return spec


def _training(low: Lowering, loop: Spec) -> Training:
    precision = "fp32"
    if str(low.tree.get("optim_wrapper", "type", default="")).endswith("AmpOptimWrapper"):
        precision = "bf16" if low.tree.get("optim_wrapper", "dtype") == "bfloat16" else "fp16"
    return Training(
        epochs=number(low, ("train_cfg", "max_epochs"), None),
        steps=number(low, ("train_cfg", "max_iters"), None),
        accumulate=low.tree.get("optim_wrapper", "accumulative_counts", default=1),
        precision=precision,
        seed=low.tree.get("randomness", "seed") or 0,
        deterministic=bool(low.tree.get("randomness", "deterministic", default=False)),
        compile=bool(low.tree.get("compile", default=False)),
    )


# -- hooks ----------------------------------------------------------------------------------------------------------


def _default_hooks(low: Lowering) -> list[HookPlan]:
    given = low.tree.get("default_hooks")
    given = given if isinstance(given, Mapping) else {}
    plans = []
    for key, (name, priority) in DEFAULT_HOOKS.items():
        if key in given and given[key] is None:
            continue
        if isinstance(given.get(key), Mapping) and "type" not in given[key]:
            text = f"default_hooks.{key} has no `type`: it stands in place of the usual hook, it is not merged with it"
            low.error(low.place("default_hooks", key), text, f"add type={name!r}")
        plans.append(_hook(low, ("default_hooks", key), name, priority))
    for key in given:
        if key in DEFAULT_HOOKS or given[key] is None:
            continue
        if not isinstance(given[key], Mapping) or "type" not in given[key]:
            hint = suggest(key, DEFAULT_HOOKS)
            low.error(low.place("default_hooks", key), f"default_hooks.{key} has no `type`", hint)
            continue
        _second(low, str(key), given)
        plans.append(_hook(low, ("default_hooks", str(key)), "", 50))
    return plans


def _second(low: Lowering, key: str, given: Mapping[str, Any]) -> None:
    """Warn about a hook under another key than its own: it is added to the one of every run and does not replace it."""
    name = str(given[key]["type"]).rpartition(".")[2]
    own = next((word for word, (hook, _) in DEFAULT_HOOKS.items() if hook == name), None)
    if own is not None and own not in given:
        text = f"default_hooks.{key} is a second {name} beside the one that every run has"
        low.warning(low.place("default_hooks", key), text, f"did you mean {own!r}?")


def _custom_hooks(low: Lowering) -> list[HookPlan]:
    given = low.tree.get("custom_hooks") or []
    if not isinstance(given, list | tuple):
        low.error(low.place("custom_hooks"), "custom_hooks must be a list of dicts", "write [dict(type=...)]")
        return []
    return [_hook(low, ("custom_hooks", index), "", 50) for index in range(len(given))]


def _hook(low: Lowering, path: Path, default: str, priority: int) -> HookPlan:
    spec = low.spec(path, "hook", default=default, leave_out=("priority",))
    given = low.tree.get(*path, default={})
    if isinstance(given, str | int | float | list | tuple):
        hint = f"write dict(type={given!r})" if isinstance(given, str) else ""
        low.error(spec.at, f"{dotted(path)}: a hook is a dict, not {given!r}", hint)
    elif not spec.name:
        low.error(spec.at, "a hook needs a `type`")
    else:
        _bind(low, spec, "HOOKS")
    return HookPlan(spec=spec, priority=_priority(low, path, priority), every=_every(spec))


def _priority(low: Lowering, path: Path, default: int) -> int:
    value = low.tree.get(*path, "priority", default=default)
    if isinstance(value, int) and 0 <= value <= 100:
        return value
    name = str(value).upper()
    if value is not None and name not in PRIORITIES:
        low.error(low.place(*path, "priority"), f"no priority is called {value!r}", suggest(name, PRIORITIES))
    return PRIORITIES.get(name, default)


def _every(spec: Spec) -> Amount | None:
    interval = spec.args.get("interval")
    if spec.name != "CheckpointHook" or not isinstance(interval, int) or interval < 1:
        return None
    return Amount(interval, "epoch" if spec.args.get("by_epoch", True) else "step")
