"""Lowers mmcv 1.x configs to a plan, and collects findings about keys, hooks, policies and runners."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.tree import Tree
from etude.dialects import ownership
from etude.dialects.base import accepted
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest, suggest
from etude.fast_dataclass import replace
from etude.plan import PRIORITIES, HookPlan, Loader, Optimizer, Plan, Spec, Training
from etude.units import Amount
from etude_openmm.mmcv1 import names, overlay
from etude_openmm.mmcv1.listing import (
    HOOKS,
    INITIALIZERS,
    KEYS,
    LR,
    MOMENTUM,
    OPTIMIZERS,
    RUNNERS,
    policies,
    registries,
)
from etude_openmm.mmcv1.projects import KNOWN, Project, installed, project_of, reads, registered_by
from etude_openmm.mmcv1.tracking import report_tracking
from etude_openmm.shared.checks.checker import Role, Rules, check, check_hook_methods
from etude_openmm.shared.checks.lowering import Lowering, number
from etude_openmm.shared.checks.weights import report_weights
from etude_openmm.shared.config.config_v1 import ConfigDict
from etude_openmm.shared.project_names import remedy
from etude_openmm.shared.reading.errors import reported_by_line
from etude_openmm.shared.reading.inherited import report_inherited
from etude_openmm.shared.reading.text_style import Style, read_chain
from etude_openmm.shared.reading.tree import tree_of

#: Keys that the train scripts of this world read.
KNOWN_KEYS = (
    *KEYS.names(), "init_cfg", "train_cfg", "test_cfg", "detector", "total_iters", "diff_seed", "ipu_options",
)  # fmt: skip
#: Registries of the engine, which projects fill, too.
_ENGINE_TABLES = ("HOOKS", "OPTIMIZERS", "OPTIMIZER_BUILDERS", "RUNNERS")
_EVALUATION = {"EvalHook": names.MODULES["mmcv.runner"]["EvalHook"]}
#: Keys that CheckpointHook takes through ``**kwargs``, and what EvalHook hands on to ``dataset.evaluate``.
_SAVE_KEYS = ("filename_tmpl", "create_symlink", "meta")
_EVALUATE_KEYS = ("metric", "metric_options", "priority", "gpu_collect", "tmpdir", "broadcast_bn_buffer", "logger")
#: Keys whose content only a project's own script knows.
_THEIRS = ("data", "evaluation")
_DATA_KEYS = (*(key for key in KEYS.fields("data") if key not in ("imgs_per_gpu", "seed")), "samples_per_epoch")
#: Policies under the names that they have elsewhere.
_POLICIES = {"cosine": "CosineAnnealing", "cos": "CosineAnnealing", "multistep": "step", "constant": "fixed"}
SPLITS = ("train", "val", "test")
_HOOK = "etude_openmm.mmcv1.live.hooks.hook:Hook"
#: Registries that hold no part of a model. Projects have some of their own: ``ROTATED_PIPELINES``.
_PARTS_TABLES = (
    "*", "!*DATASETS", "!*PIPELINES", "!*HOOKS", "!*OPTIMIZERS", "!*OPTIMIZER_BUILDERS", "!*RUNNERS", "!*SAMPLERS",
    "!* policies",
)  # fmt: skip
_PARTS = (
    "backbone|neck|head|bbox_head|mask_head|rpn_head|roi_head|detector|reid|tracker|motion|track_head|embed_head|"
    r"aggregator|loss(_\w+)?"
)
#: The last releases for mmcv 1.x.
_RELEASES = {"mmcls": "mmcls==0.25.0", "mmdet": "mmdet==2.28.2", "mmtrack": "mmtrack==0.14.0"}
RULES = Rules(
    top=KNOWN_KEYS,
    roles={
        "model": Role(_PARTS_TABLES, word="model"),
        r"data\.train": Role(("*DATASETS",), word="dataset"),
        r"data\.(val|test)": Role(("*DATASETS",), exact=False, word="dataset"),
        r"data\..*\bpipeline\.\d+": Role(("*PIPELINES",), word="transform"),
        rf"model\.(.*\.)?({_PARTS})": Role(_PARTS_TABLES, exact=False, word="part of a model"),
    },
    closed=(("custom_imports",),),
    named={"constructor": Role(("OPTIMIZER_BUILDERS",), word="optimizer constructor")},
    tables={key: registries()[key] for key in ("OPTIMIZER_BUILDERS",)},
    loose=(
        "ConcatDataset",
        "RepeatDataset",
        "ClassBalancedDataset",
        "KFoldDataset",
        "MultiImageMixDataset",
        "RandomSampleConcatDataset",
    ),
    # The layers of mmcv 2.x have their bases from MMEngine.
    served={**names.MODULES, "mmengine.model": names.MODULES["mmcv.runner"]},
    names={
        **{name: target for table in names.MODULES.values() for name, target in table.items() if ":" in target},
        **INITIALIZERS,
        **OPTIMIZERS,
    },
    keys={
        ("data",): _DATA_KEYS,
        **{("data", f"{split}_dataloader"): KEYS.fields("LOADER") for split in SPLITS},
        ("optimizer", "paramwise_cfg"): KEYS.fields("PARAMWISE"),
        ("optimizer", "paramwise_cfg", "custom_keys", "*"): KEYS.fields("RULE"),
        ("optimizer_config", "grad_clip"): KEYS.fields("CLIP"),
        **{(key,): KEYS.fields(key) for key in ("custom_imports", "fp16", "dist_params", "log_config")},
        ("lr_config",): ("policy",),
        ("momentum_config",): ("policy",),
        ("runner",): ("max_epochs", "max_iters"),
        ("evaluation",): _EVALUATE_KEYS,
        ("checkpoint_config",): _SAVE_KEYS,
    },
    defaults={
        ("optimizer_config",): "OptimizerHook",
        ("checkpoint_config",): "CheckpointHook",
        ("evaluation",): "EvalHook",
        ("runner",): "EpochBasedRunner",
    },
)


def read(path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree:
    """Read the config and its bases, with overrides; nothing of ``custom_imports`` is imported."""
    if (options or {}).get("project"):
        overrides = [*overrides, f"custom_imports.imports=[{(options or {})['project']}]"]
    with reported_by_line(path):
        source = read_chain(path, Style(ConfigDict))
    return tree_of(source, path, overrides, options or {})


def lower(tree: Tree) -> Plan:
    """Return the plan. Raise one :class:`~etude.errors.ConfigError` with everything that is wrong."""
    return accepted(survey(tree))


def survey(tree: Tree) -> tuple[Plan, list[Finding]]:
    """Return the plan, and everything that is wrong with the config."""
    low = Lowering(tree)
    project = project_of(tree.values, tree.files, low.imports)
    # A script of another project may read other keys than those of the known ones, and does what it wants with them.
    own_script = project is not None and not project.is_known
    theirs = registered_by(project) if project is not None else {}
    names = {name for _, name in theirs}  # an imported project's registries have other names than its sources show
    originals = (*(project.packages if project is not None else ()), *KNOWN, "mmcv")
    own = {at: to for at, to in low.registered.items() if at[1] not in names or to.partition(".")[0] not in originals}
    low.registered = {**{at: target for at, target in theirs.items() if at[0] in _ENGINE_TABLES}, **own}
    hooks = _hooks(low, own_script=own_script)
    runner = _runner(low, own_script=own_script)
    plan = Plan(
        dialect="mmcv1",
        name=_stem(tree),
        folder=str(tree.get("work_dir") or "work_dirs"),
        imports=low.imports,
        model=_model(low, own_script=own_script),
        data=_data(low, own_script=own_script),
        optimizers=_optimizers(low, own_script=own_script),
        update=Spec(kind="update", name="mmcv1.TrainStep", at=low.place("optimizer_config")),
        loop=runner,
        hooks=tuple(sorted(hooks, key=lambda hook: hook.priority)),
        train=_training(low, runner),
        init_from={"path": tree.get("load_from")} if tree.get("load_from") else {},
        source=tree.values,
        files=tuple(tree.files),
    )
    other = [str(key) for key in tree.values if key not in KNOWN_KEYS]
    low.unknown_keys((*KNOWN_KEYS, *(key for key in other if own_script and project and reads(project, key))))
    if project is not None and project.is_known and (lack := overlay.lack_of_layers()):
        low.error(low.place("model"), f"{project.title} cannot be imported", lack)
    _check(low, project, theirs)
    report_weights(low, "load_from", "resume_from")
    report_tracking(low)
    report_inherited(low)
    return plan, low.findings


def _check(low: Lowering, project: Project | None, theirs: Mapping[tuple[str, str], str]) -> None:
    disk = ownership.original("mmcv")  # not found by its import name, which is Étude's
    names = {name for _, name in theirs}  # classes of an installed project replace Étude's
    rules = replace(
        RULES,
        names={name: to for name, to in RULES.names.items() if name not in names},
        folders=(os.path.dirname(disk),) if disk else (),
        elsewhere=_elsewhere(str(low.tree.get("model", "type"))) if project is None else "",
    )
    if project is not None and not project.is_known:
        keys, defaults = (
            {at: to for at, to in one.items() if at[0] not in _THEIRS} for one in (rules.keys, rules.defaults)
        )
        rules = replace(rules, keys=keys, defaults=defaults)
    low.registered = {**theirs, **low.registered}
    check(low, rules)
    for path, name in low.tree.walk():
        if path[0] == "custom_hooks" and path[-1] == "type":
            check_hook_methods(low, low.registered.get(("HOOKS", str(name)), ""), _HOOK, {})


def _elsewhere(model: str) -> str:
    """Return what to do if no installed project has the model of a config."""
    for one in installed():
        if near := next((name for _, name in registered_by(one) if is_slip(name, model)), ""):
            return f"did you mean {near!r} of {one.title}?"
    lacking = [f"{KNOWN[name]}: pip install --no-deps {release}" for name, release in _RELEASES.items()
               if ownership.original(name) is None]  # fmt: skip
    return "; ".join(
        ("install the project that the config is for", *lacking, "or name your own module in custom_imports")
    )


def _model(low: Lowering, *, own_script: bool) -> Spec:
    if "model" not in low.tree.values and not own_script:
        low.error(low.place(), "the key `model` is missing", suggest("model", map(str, low.tree.values)))
    return low.spec(("model",), "model")


def _data(low: Lowering, *, own_script: bool) -> dict[str, Loader]:
    data = low.tree.get("data")
    if not isinstance(data, Mapping):
        tell = low.warning if own_script else low.error
        tell(low.place("data"), "the key `data` must be a dict with `train`")
        return {}
    for key in data if not own_script else ():
        if key not in _DATA_KEYS:
            low.warning(low.place("data", key), f"unknown key data.{key}", suggest(str(key), _DATA_KEYS))
    if "train" not in data:
        tell = low.warning if own_script else low.error
        tell(low.place("data"), "data.train is missing", suggest("train", map(str, data), otherwise=""))
    if "val" not in data and low.tree.get("evaluation") is not None and not nearest("val", list(map(str, data))):
        low.warning(low.place("evaluation"), "evaluation needs data.val", "give it, or train with --no-validate")
    return {split: _loader(low, split) for split in SPLITS if isinstance(data.get(split), Mapping)}


def _loader(low: Lowering, split: str) -> Loader:
    section = f"{split}_dataloader"
    return Loader(
        dataset=low.spec(("data", split), "dataset"),
        batch_size=number(low, ("data", section, "samples_per_gpu"), None)
        or number(low, ("data", "samples_per_gpu"), 1, least=1),
        workers=number(low, ("data", section, "workers_per_gpu"), None) or number(low, ("data", "workers_per_gpu"), 0),
        shuffle=bool(low.tree.get("data", section, "shuffle", default=split == "train")),
        at=low.place("data", split),
    )


def _optimizers(low: Lowering, *, own_script: bool) -> dict[str, Optimizer]:
    given = low.tree.get("optimizer")
    if not isinstance(given, Mapping):
        if own_script:
            return {}
        low.error(low.place("optimizer"), "the key `optimizer` must be a dict with `type`")
        return {}
    clip = low.tree.get("optimizer_config", "grad_clip") or {}
    norm = clip.get("max_norm") if isinstance(clip, Mapping) else None
    clips = () if norm is None else (Spec(kind="clipping", name="Norm", args={"max": norm}),)
    if "type" not in given and given.get("constructor") not in (None, "DefaultOptimizerConstructor"):
        return _constructed(low, given, clips)
    if "type" in given or not all(isinstance(value, Mapping) for value in given.values()):
        return {"": Optimizer(spec=_optimizer(low, ("optimizer",)), clip=clips)}
    return {str(name): Optimizer(spec=_optimizer(low, ("optimizer", str(name))), clip=clips) for name in given}


def _constructed(low: Lowering, given: Mapping[str, Any], clips: tuple[Spec, ...]) -> dict[str, Optimizer]:
    """Return the optimizers of a user-defined constructor: one per part that has a type, as far as the config shows."""
    typed = [str(name) for name, value in given.items() if isinstance(value, Mapping) and "type" in value]
    if typed:
        return {name: Optimizer(spec=_optimizer(low, ("optimizer", name)), clip=clips) for name in typed}
    spec = Spec(kind="optimizer", name=str(given["constructor"]), at=low.place("optimizer", "constructor"))
    return {"": Optimizer(spec=spec, clip=clips)}


def _optimizer(low: Lowering, path: tuple[str, ...]) -> Spec:
    spec = low.spec(path, "optimizer")
    if not spec.name:
        low.error(low.place(*path), f"{'.'.join(path)} has no `type`", "e.g. type='SGD'")
    low.bind(
        spec, OPTIMIZERS, table="OPTIMIZERS", given=("params", "model"),
        also=("paramwise_cfg", "constructor"),
    )  # fmt: skip
    return spec


def _runner(low: Lowering, *, own_script: bool) -> Spec:
    if low.tree.get("runner") is None:
        if "total_epochs" not in low.tree.values and not own_script:
            low.error(low.place(), "nothing says how long to train", "give runner=dict(type=…, max_epochs=…)")
        return Spec(
            kind="loop",
            name="EpochBasedRunner",
            args={"max_epochs": low.tree.get("total_epochs")},
            at=low.place("total_epochs"),
        )
    spec = low.spec(("runner",), "loop", default="EpochBasedRunner")
    low.bind(
        spec, RUNNERS, table="RUNNERS", word="runner", also=("max_epochs", "max_iters", "constructor"),
        given=("model", "batch_processor", "optimizer", "work_dir", "logger", "meta"),
    )  # fmt: skip
    return spec


def _training(low: Lowering, runner: Spec) -> Training:
    optimizer_config = low.tree.get("optimizer_config") or {}
    fp16 = "fp16" in low.tree.values and low.tree.get("fp16") is not None
    return Training(
        epochs=number(low, ("runner", "max_epochs"), None, least=0)
        if low.tree.get("runner") is not None
        else number(low, ("total_epochs",), None),
        steps=number(low, ("runner", "max_iters"), None)
        if low.tree.get("runner") is not None
        else number(low, ("total_iters",), None),
        accumulate=optimizer_config.get("cumulative_iters", 1) if isinstance(optimizer_config, Mapping) else 1,
        precision="fp16" if fp16 else "fp32",
        seed=low.tree.get("seed") or 0,
        deterministic=bool(low.tree.get("deterministic", default=False)),
    )


# -- hooks ----------------------------------------------------------------------------------------------------------


def _hooks(low: Lowering, *, own_script: bool) -> list[HookPlan]:
    hooks = [
        *_policy(low, "lr_config", LR, "VERY_HIGH"),
        *_policy(low, "momentum_config", MOMENTUM, "HIGH"),
        *_one(low, "optimizer_config", "OptimizerHook", "ABOVE_NORMAL", also=_fp16_keys(low)),
        *_one(low, "checkpoint_config", "CheckpointHook", "NORMAL", also=_SAVE_KEYS),
        HookPlan(spec=Spec(kind="hook", name="IterTimerHook"), priority=PRIORITIES["LOW"]),
        *_loggers(low),
        *_evaluation(low, own_script=own_script),
    ]
    custom = low.tree.get("custom_hooks") or []
    if not isinstance(custom, list | tuple):
        low.error(low.place("custom_hooks"), "custom_hooks must be a list of dicts")
        return hooks
    return [*hooks, *(_custom(low, index) for index in range(len(custom)))]


def _policy(low: Lowering, key: str, suffix: str, priority: str) -> list[HookPlan]:
    config = low.tree.get(key)
    if not isinstance(config, Mapping):
        return []
    spec = low.spec((key,), "hook", leave_out=("policy",))
    known = {name: target for name, target in HOOKS.items() if name.endswith(suffix)}
    if not spec.name:
        name = config.get("policy")
        if not isinstance(name, str):
            low.error(low.place(key), f"{key} has no `policy`", f"e.g. policy={[*policies(suffix)][-1]!r}")
            return []
        # As mmcv does: "step" is capitalized, "CosineAnnealing" stays as it is.
        hook = (name.title() if name == name.lower() else name) + suffix
        spec = Spec(kind="hook", name=hook, args=spec.args, at=spec.at, places=spec.places)
        if hook not in known and not any(entry == hook for _, entry in low.registered):
            meant = _POLICIES.get(name.casefold())
            hint = f"did you mean {meant!r}?" if meant else remedy(name, policies(suffix))
            low.error(low.place(key, "policy"), f"no policy is called {name!r}", hint)
            return []
    low.bind(spec, known, table="HOOKS")
    return [HookPlan(spec=spec, priority=PRIORITIES[priority])]


def _one(low: Lowering, key: str, default: str, priority: str, *, also: Sequence[str] = ()) -> list[HookPlan]:
    config = low.tree.get(key)
    if not isinstance(config, Mapping):
        return []
    spec = low.spec((key,), "hook", default=default)
    low.bind(spec, HOOKS, table="HOOKS", also=also, closed=bool(also))
    return [
        HookPlan(spec=spec, priority=PRIORITIES[priority], every=_every(spec) if key != "optimizer_config" else None)
    ]


def _fp16_keys(low: Lowering) -> Sequence[str]:
    """Return the additional keys of the fp16 hook that accumulates: it takes those of both its parents."""
    both = low.tree.get("optimizer_config", "type") == "GradientCumulativeFp16OptimizerHook"
    return ("cumulative_iters", "coalesce", "bucket_size_mb", "loss_scale", "distributed") if both else ()


def _loggers(low: Lowering) -> list[HookPlan]:
    config = low.tree.get("log_config")
    if not isinstance(config, Mapping):
        return []
    for key in config:
        if key not in ("interval", "hooks"):
            low.error(
                low.place("log_config", key), f"unknown key log_config.{key}", suggest(str(key), ("interval", "hooks"))
            )
    plans = []
    for index in range(len(config.get("hooks") or [])):
        spec = low.spec(("log_config", "hooks", index), "hook")
        low.bind(spec, HOOKS, table="HOOKS")
        plans.append(HookPlan(spec=spec, priority=PRIORITIES["VERY_LOW"]))
    return plans


def _evaluation(low: Lowering, *, own_script: bool) -> list[HookPlan]:
    config = low.tree.get("evaluation", default={})
    if not isinstance(config, Mapping) or low.tree.get("data", "val") is None:
        return []
    spec = low.spec(("evaluation",), "hook", default="EvalHook", leave_out=("type",))
    spec = Spec(kind="hook", name="EvalHook", args=spec.args, at=spec.at, places=spec.places)
    if not own_script:  # a project has its own hook, and its data sets take what they want
        low.bind(spec, _EVALUATION, given=("dataloader",), also=_EVALUATE_KEYS)
    return [HookPlan(spec=spec, priority=PRIORITIES["LOW"], every=_every(spec))]


def _custom(low: Lowering, index: int) -> HookPlan:
    path = ("custom_hooks", index)
    spec = low.spec(path, "hook", leave_out=("priority",))
    if not spec.name:
        low.error(spec.at, "a hook needs a `type`")
    else:
        low.bind(spec, HOOKS, table="HOOKS")
    return HookPlan(spec=spec, priority=_priority(low, path))


def _priority(low: Lowering, path: tuple[str | int, ...]) -> int:
    value = low.tree.get(*path, "priority", default="NORMAL")
    if isinstance(value, int) and 0 <= value <= 100:
        return value
    name = str(value).upper()
    if isinstance(value, int | float):
        low.error(low.place(*path, "priority"), f"a priority is a whole number from 0 to 100 or a name, not {value!r}")
    elif name not in PRIORITIES:
        low.error(low.place(*path, "priority"), f"no priority is called {value!r}", suggest(name, PRIORITIES))
    return PRIORITIES.get(name, 50)


def _every(spec: Spec) -> Amount | None:
    interval = spec.args.get("interval", 1)
    if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
        return None
    return Amount(interval, "epoch" if spec.args.get("by_epoch", True) else "step")


def _stem(tree: Tree) -> str:
    return os.path.splitext(os.path.basename(next(iter(tree.files), "run")))[0]
