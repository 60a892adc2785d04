"""The native config → Plan. One function per section; every key that nobody asks for is a finding."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config import read as read_files
from etude.config.dump import secret_in
from etude.config.overrides import put
from etude.config.reader import Fields, spec_at
from etude.config.tree import Path, Tree, copied, dotted
from etude.errors import ConfigError, Finding
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import replace
from etude.inspection.check.results import is_further
from etude.plan import (
    CLIP_KEYS,
    NONFINITE,
    NOWHERE,
    PIPELINE_SCHEDULES,
    PRECISIONS,
    TENSOR_WORDS,
    Context,
    Group,
    HookPlan,
    Loader,
    Optimizer,
    Parallel,
    Phase,
    Pipeline,
    Place,
    Plan,
    Schedule,
    Spec,
    Tensor,
    Training,
)
from etude.units import UNREAD, Amount, parse_written

SECTIONS = (
    "name", "folder", "imports", "model", "loss", "data", "optim", "schedule", "train", "metrics", "hooks",
    "checkpoint", "log", "update", "loop", "init_from", "parallel",
    "ledger",
)  # fmt: skip
#: Keys that every config file may have besides the sections; reading has used them up.
READING_KEYS = ("_base_", "defaults", "env", "extra")
SPLITS = ("train", "val", "test")
STRATEGIES = ("auto", "none", "ddp", "fsdp", "hsdp")
#: Which strategies look at which keys of ``parallel``; all of them at the others.
STRATEGY_KEYS = {
    ("auto", "ddp"): ("find_unused", "static_graph", "bucket_view", "bucket_mb", "compression"),
    ("fsdp", "hsdp"): ("wrap", "min_params", "precision", "reduce", "offload", "reshard"),
    ("hsdp",): ("shards",),
}
#: Keys of an optimizer's section that are not arguments of the optimizer.
STEP_KEYS = (*CLIP_KEYS, "clip", "groups", "params")
GROUP_KINDS = ("bias", "norm", "weight", "embedding")
#: Sections whose values are no specs, so that the plan keeps where they were written.
_PLACED = (("init_from",), ("train",), ("imports",))
#: Order in which the hooks of the config's own sections act; hooks of the user default to 50.
PRIORITY = {"Schedule": 10, "Timer": 20, "Log": 60, "Evaluate": 70, "Checkpoint": 110}
END = "end"
#: Flags of the command line that have a key in ``train``.
_FLAGS = ("seed", "device", "limit-batches", "overfit", "max-time")
#: More processes or threads than these bring a machine down, and help none.
MOST_WORKERS, MOST_THREADS = 1024, 1024


#: The modes of ``torch.compile``.
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def read(path: str, overrides: Sequence[str] = (), *, options: Mapping[str, Any] | None = None) -> Tree:
    return read_files([path], overrides, may_be_new=_is_checked)


def _is_checked(key: str) -> bool:
    """Return whether the lowering or a signature finds a misspelt ``key``; only keys under ``extra`` are free."""
    return key.partition(".")[0] != "extra"


def with_flags(tree: Tree, flags: Mapping[str, Any]) -> tuple[Tree, dict[str, Any]]:
    """Return the config with what flags say written into ``train``, and the flags that it has no key for."""
    keys = {flag: f"train.{flag.replace('-', '_')}" for flag in flags if flag in _FLAGS}
    made = replace(
        tree,
        values=copied(tree.values),
        places=dict(tree.places),
        history={path: list(entries) for path, entries in tree.history.items()},
    )
    for flag, key in keys.items():
        if made.get(*key.split(".")) != flags[flag]:
            put(made, key, flags[flag], Place(f"--{flag}"))
    return made, {flag: value for flag, value in flags.items() if flag not in keys}


def lower(tree: Tree) -> Plan:
    """Return the plan. Raise one :class:`~etude.errors.ConfigError` with everything that is wrong."""
    plan, findings = survey(tree)
    if any(finding.severity == "error" for finding in findings):
        raise ConfigError(findings)
    return plan


def survey(tree: Tree) -> tuple[Plan, list[Finding]]:
    """Return the plan, with stand-ins where something is missing, and all findings about the config's keys."""
    findings: list[Finding] = []
    root = Fields(tree, (), findings)
    model = root.take_spec("model", "model", hint="write model: {type: MLP, sizes: [64, 32, 10]}")
    training, validate, workflow = _train(root.section("train"))
    data = _data(root.section("data"))
    optimizers = _optimizers(tree, root)
    metrics = root.take_specs("metrics", "metric")
    timed = _log(root)
    hooks = [
        *_schedule_hook(root), timed[0], timed[1],
        *_evaluate(root, validate, data), *_checkpoint(root, metrics), *_hooks(tree, root),
    ]  # fmt: skip
    plan = Plan(
        dialect="native",
        name=root.take("name", str, default=_name_of(tree)),
        folder=_folder(root),
        ledger=root.take("ledger", bool, default=True),
        imports=tuple(_strings(root, "imports")),
        model=model or _nothing("model"),
        losses=root.take_specs("loss", "loss"),
        data=data,
        optimizers=optimizers,
        schedules=_schedules(tree, root, optimizers),
        update=root.take_spec("update", "update", default=None) or Spec(kind="update", name="Step"),
        loop=_loop(root, training, workflow),
        hooks=tuple(sorted(hooks, key=lambda hook: hook.priority)),
        metrics=metrics,
        writers=timed[2],
        train=training,
        parallel=_parallel(root.section("parallel")),
        init_from=_init_from(tree, root),
        source=tree.values,
        files=tuple(tree.files),
        places={way: place for way, place in tree.places.items() if way[:1] in _PLACED},
    )
    for key, text in (("name", plan.name), ("folder", plan.folder)):
        if key in root and secret_in(tree, text):
            root.error(f"{key} holds a secret, and the {key} of a run is seen everywhere", key=key)
    root.done(known=(*SECTIONS, *READING_KEYS))
    return plan, findings


def _folder(root: Fields) -> str:
    folder = root.take("folder", str, default="runs")
    if "://" in str(folder):
        root.error("folder: a run's folder has to be on a disk of this machine", key="folder")
    return folder


def _train(fields: Fields) -> tuple[Training, Amount | None, Any]:
    epochs = fields.take_positive("epochs", default=None)
    steps = fields.take_positive("steps", default=None)
    if fields.present and (epochs is None) == (steps is None) and not fields.findings:
        if epochs is None:
            fields.error("train needs either `epochs` or `steps`")
        else:
            hint = "on the command line, '~train.epochs' leaves out the one that the config has"
            fields.error("train needs either `epochs` or `steps`, not both", key="steps", hint=hint)
    if not fields.present:
        fields.error("the section `train` is missing", hint="write train: {epochs: 10}")
    if epochs is None and steps is None:
        epochs = 1  # a stand-in: the mistake has been reported
    validate = fields.take_amount("validate", default=None, unit="epoch")
    workflow = _workflow(fields)
    limit = fields.take_amount("max_time", default=None, unit="second")
    training = Training(
        epochs=epochs,
        steps=steps,
        accumulate=fields.take_positive("accumulate", default=1) or 1,
        precision=fields.take("precision", str, default="fp32", choices=PRECISIONS),
        nonfinite=fields.take("nonfinite", str, default="stop", choices=NONFINITE),
        nonfinite_limit=fields.take_positive("nonfinite_limit", default=3),
        seed=fields.take("seed", int, default=0),
        deterministic=_deterministic(fields),
        device=fields.take("device", str, default="auto"),
        threads=fields.take_positive("threads", default=None, most=MOST_THREADS),
        compile=_compile(fields),
        gradient_checkpointing=tuple(_strings(fields, "gradient_checkpointing")) or None,
        channels_last=fields.take("channels_last", bool, default=None),
        matmul=fields.take("matmul", str, default=None, choices=("highest", "high", "medium")),
        limit_batches=fields.take_positive("limit_batches", default=None),
        overfit=fields.take_positive("overfit", default=None),
        max_seconds=limit.value if limit else None,
    )
    fields.done()
    return training, validate, workflow


def lower_parallel(tree: Tree) -> Parallel:
    """Return the section ``parallel`` alone."""
    root = Fields(tree)
    parallel = _parallel(root.section("parallel"))
    if root.findings:
        raise ConfigError(root.findings)
    return parallel


def _parallel(fields: Fields) -> Parallel:
    parallel = Parallel(
        strategy=fields.take("strategy", str, default="auto", choices=STRATEGIES),
        find_unused=fields.take("find_unused", bool, default=False),
        static_graph=fields.take("static_graph", bool, default=False),
        bucket_view=fields.take("bucket_view", bool, default=True),
        bucket_mb=fields.take_positive("bucket_mb", default=25) or 25,
        compression=fields.take("compression", str, default="none", choices=("none", "fp16", "bf16", "powersgd")),
        wrap=tuple(_strings(fields, "wrap")),
        min_params=fields.take_positive("min_params", default=None),
        precision=fields.take("precision", str, default="fp32", choices=PRECISIONS),
        reduce=fields.take("reduce", str, default="fp32", choices=PRECISIONS),
        offload=fields.take("offload", bool, default=False),
        reshard=fields.take("reshard", bool, default=True),
        shards=fields.take_positive("shards", default=None),
        fault_tolerant=fields.take("fault_tolerant", bool, default=False),
        tensor=_tensor(_sized(fields, "tensor")),
        pipeline=_pipeline(_sized(fields, "pipeline")),
        context=_context(_sized(fields, "context")),
        virtual_ranks=fields.take_positive("virtual_ranks", default=None) or 0,
        at=fields.place(),
    )
    if parallel.virtual_ranks & (parallel.virtual_ranks - 1):
        text = f"parallel.virtual_ranks is {parallel.virtual_ranks}; sums in a fixed order need a power of two"
        near = 1 << (parallel.virtual_ranks.bit_length() - 1)
        fields.error(text, key="virtual_ranks", hint=f"write {near} or {2 * near}")
    if parallel.fault_tolerant and parallel.is_split:
        text = "parallel.fault_tolerant: a replica is one process, which holds the whole model"
        fields.error(text, key="fault_tolerant")
    if parallel.fault_tolerant and parallel.strategy not in ("auto", "ddp"):
        text = f"parallel.fault_tolerant: replicas hold the whole model, {parallel.strategy} does not"
        fields.error(text, key="fault_tolerant", hint="write strategy: ddp")
    fields.done()
    _refuse_strange(fields, parallel.strategy)
    return parallel


def _sized(fields: Fields, key: str) -> Fields:
    """Return a section that may be its size alone: ``tensor: 2``."""
    value = fields.take(key, "int | dict", default=None)
    if not isinstance(value, int):
        return fields.section(key)
    tree = Tree({**fields.tree.values, "parallel": {**fields.values, key: {"size": value}}}, fields.tree.places)
    return Fields(tree, (*fields.path, key), fields.findings)


def _tensor(fields: Fields) -> Tensor:
    given = fields.take("plan", "dict[str, str]", default={})
    for word in given.values():
        if word not in TENSOR_WORDS:
            text = f"parallel.tensor.plan: {word!r} is no way to split a module"
            fields.error(text, key="plan", hint=suggest(str(word), TENSOR_WORDS))
    made = Tensor(
        size=fields.take_positive("size", default=1) or 1,
        plan={str(pattern): word for pattern, word in given.items() if word in TENSOR_WORDS},
        at=fields.place(),
        places={str(pattern): fields.tree.place(*fields.path, "plan", pattern) for pattern in given},
    )
    fields.done()
    return made


def _pipeline(fields: Fields) -> Pipeline:
    stages = fields.take("stages", "list[list[str]]", default=[])
    made = Pipeline(
        size=fields.take_positive("size", default=1) or 1,
        schedule=fields.take("schedule", str, default="1f1b", choices=tuple(PIPELINE_SCHEDULES)),
        microbatches=fields.take_positive("microbatches", default=None),
        stages=tuple(tuple(names) for names in stages),
        at=fields.place(),
        places={key: fields.place(key) for key in fields.values},
    )
    if made.size > 1 and made.stages and len(made.stages) != made.count:
        text = f"parallel.pipeline.stages has {len(made.stages)} stages; {made.size} processes with the schedule "
        fields.error(f"{text}{made.schedule} hold {made.count}", key="stages")
    if made.size > 1 and made.parts < made.count:
        text = f"parallel.pipeline.microbatches is {made.parts}, fewer than the {made.count} stages, which would idle"
        fields.error(text, key="microbatches", hint=f"write microbatches: {2 * made.count}")
    fields.done()
    return made


def _context(fields: Fields) -> Context:
    made = Context(
        size=fields.take_positive("size", default=1) or 1,
        buffers=fields.take("buffers", "dict[str, int]", default={}),
        at=fields.place(),
        places={key: fields.place(key) for key in fields.values},
    )
    fields.done()
    return made


def _refuse_strange(fields: Fields, strategy: str) -> None:
    """Report options of ``parallel`` that this strategy does not use."""
    for key in fields.values:
        owners = next((owners for owners, keys in STRATEGY_KEYS.items() if key in keys), None)
        if owners is not None and strategy not in owners:
            fields.error(f"parallel.{key} is an option of {' and '.join(owners[-2:])}, not of {strategy}", key=key)


def _compile(fields: Fields) -> bool | dict[str, Any]:
    """Return whether to compile, or the arguments of ``torch.compile``."""
    value = fields.take("compile", "bool | dict", default=False)
    if not isinstance(value, Mapping):
        return bool(value)
    inner = Fields(fields.tree, (*fields.path, "compile"), fields.findings)
    given = _taken(inner, {"fullgraph": bool, "dynamic": bool, "backend": str})
    mode = inner.take("mode", str, default=None, choices=COMPILE_MODES)
    given |= {"mode": mode} if mode is not None else {}
    inner.done()
    return given or True


def _data(fields: Fields) -> dict[str, Loader]:
    if not fields.present:
        fields.error("the section `data` is missing", hint="write data: {train: {dataset: …, batch_size: …}}")
    loaders = {}
    further = [str(split) for split in fields.values if is_further(str(split))]
    for split in further if "val" not in fields else ():
        fields.error(f"data.{split} is measured in addition to data.val, which is missing", key=split)
    for split in (*SPLITS, *further):
        section = fields.section(split)
        if section.present:
            loaders[split] = _loader(section)
    if fields.present and "train" not in loaders:
        fields.error("the section `data.train` is missing", hint="write data: {train: {dataset: …, batch_size: …}}")
    fields.done()
    return loaders


def _loader(fields: Fields) -> Loader:
    loader = Loader(
        dataset=fields.take_spec("dataset", "dataset") or _nothing("dataset"),
        batch_size=fields.take_positive("batch_size", default=1) or 1,
        batch_size_per_rank=fields.take_positive("batch_size_per_rank", default=None),
        shuffle=fields.take("shuffle", bool, default=None),
        drop_last=fields.take("drop_last", bool, default=False),
        workers=fields.take_positive("workers", default=0, zero=True, most=MOST_WORKERS) or 0,
        sampler=fields.take_spec("sampler", "sampler", default=None),
        collate=fields.take_spec("collate", "collate function", default=None),
        on_bad_sample=fields.take("on_bad_sample", str, default="stop", choices=("stop", "skip", "retry", "replace")),
        bad_samples=fields.take_positive("bad_samples", default=10),
        options=_taken(fields, {"timeout": float, "retries": int, "restarts": int, "start_method": str}),
        at=fields.place(),
        places=_places(fields),
    )
    if "batch_size" in fields and loader.batch_size_per_rank is not None:
        fields.error(
            "batch_size is of all processes together, batch_size_per_rank of one: give one of them",
            key="batch_size_per_rank",
        )
    fields.done()
    return loader


def _optimizers(tree: Tree, root: Fields) -> dict[str, Optimizer]:
    fields = root.section("optim")
    if not fields.present:
        root.error("the section `optim` is missing", hint="write optim: {type: AdamW, lr: 1e-3}")
        return {}
    if isinstance(tree.get("optim"), str) or "type" in fields or not _all_mappings(fields.values):
        return {"": _optimizer(fields)}
    return {str(name): _optimizer(fields.section(name)) for name in fields.values}


def _optimizer(fields: Fields) -> Optimizer:
    groups = tuple(_group(Fields(fields.tree, path, fields.findings)) for path in fields.take_list("groups"))
    optimizer = Optimizer(
        groups=groups,
        params=tuple(_strings(fields, "params")),
        clip=_clippings(fields),
        spec=fields.rest_spec("optimizer") or _nothing("optimizer"),
    )
    fields.done()
    return optimizer


def _clippings(fields: Fields) -> tuple[Spec, ...]:
    """Return the clippings that the short keys name, then those of ``clip``."""
    short = {key: fields.take_positive(key, float, default=None) for key in CLIP_KEYS}
    made = [
        Spec(kind="clipping", name=CLIP_KEYS[key], args={"max": most}, at=fields.place(key))
        for key, most in short.items()
        if most is not None
    ]
    return (*made, *fields.take_specs("clip", "clipping"))


def _group(fields: Fields) -> Group:
    group = Group(
        match=fields.take("match", str, default=""),
        module=fields.take("module", str, default=""),
        kind=fields.take("kind", str, default="", choices=("", *GROUP_KINDS)),
        depth_decay=fields.take("depth_decay", float, default=None),
        lr_mult=fields.take("lr_mult", float, default=1.0),
        decay_mult=fields.take("decay_mult", float, default=1.0),
        options=fields.rest(),
        at=fields.place(),
    )
    if not (group.match or group.module or group.kind or group.depth_decay):
        fields.error(f"{dotted(fields.path)} says no parameters", hint="give match, module, kind or depth_decay")
    return group


def _schedules(tree: Tree, root: Fields, optimizers: Mapping[str, Optimizer]) -> tuple[Schedule, ...]:
    fields = root.section("schedule")
    found = []
    for key in list(fields.values):
        phases = [_phase(tree, path, fields.findings) for path in fields.take_list(str(key))]
        optimizer, _, target = str(key).partition(".")
        if not target or optimizer not in optimizers:
            optimizer, target = "", str(key)
        chains: dict[tuple[str, ...], list[Phase]] = {}
        for phase, groups in phases:
            chains.setdefault(tuple(groups), []).append(phase)
        if len(chains) > 1 and () in chains:
            hint = "say in every phase of it which groups it is for"
            fields.error(f"some phases of schedule.{key} name groups, others are for all", key=str(key), hint=hint)
        found += [
            Schedule(target=target, optimizer=optimizer, phases=tuple(chain), groups=groups)
            for groups, chain in chains.items()
        ]
    return tuple(found)


def _phase(tree: Tree, path: Path, findings: list[Finding]) -> tuple[Phase, list[str]]:
    if not isinstance(tree.get(*path), Mapping):
        curve = spec_at(tree, path, "schedule", findings) or _nothing("schedule")
        return Phase(curve=curve, at=tree.place(*path)), []
    fields = Fields(tree, path, findings)
    until = fields.take("until", default=END)
    by = fields.take("by", str, default="step", choices=("step", "epoch"))
    begin = fields.take_amount("begin", default=None)
    if begin is None and fields.values.get("begin") is not None:
        begin = UNREAD
    groups = _strings(fields, "groups")
    curve = fields.rest_spec("schedule") or _nothing("schedule")
    end = None if until in (END, None) else _end(fields, until)
    return Phase(curve=curve, begin=begin, until=end, by=by, at=fields.place()), groups


def _end(fields: Fields, until: Any) -> Amount:
    """Return the end of a phase. One that cannot be read is no end of the run, or the phase after it would be wrong."""
    try:
        return parse_written(until)
    except ConfigError as error:
        said, bare = error.findings[0], isinstance(until, int | float)
        hint = said.hint if bare else "write 1ep, 500step or end"
        fields.error(f"{fields.name('until')}: {said.message}", key="until", hint=hint)
        return UNREAD


def _loop(root: Fields, training: Training, workflow: Any) -> Spec:
    given = root.take_spec("loop", "loop", default=None)
    if given is not None:
        return given
    if workflow is not None:
        return Spec(kind="loop", name="Workflow", args={"flow": workflow}, at=root.tree.place("train", "workflow"))
    return Spec(kind="loop", name="epochs" if training.steps is None else "steps")


def _workflow(fields: Fields) -> list[list[Any]] | None:
    """Read the turns of ``train.workflow``: how many epochs of training and of validation follow each other."""
    given = fields.take("workflow", default=None)
    if given is None:
        return None
    hint = "write workflow: [[train, 2], [val, 1]]"
    splits = [str(split) for split in fields.tree.get("data") or {}]
    turns = [turn for turn in given if _is_turn(turn)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(turns) != len(given):
        fields.error("train.workflow is a list of pairs of a split and a number of epochs", key="workflow", hint=hint)
        return None
    for split, _ in turns:
        if split not in splits:
            text = f"train.workflow: there is no data.{split}"
            fields.error(text, key="workflow", hint=suggest(split, splits))
            return None
    if not any(split == "train" and count > 0 for split, count in turns):
        fields.error("train.workflow never trains", key="workflow", hint=hint)
        return None
    return turns


def _is_turn(turn: Any) -> bool:
    if not isinstance(turn, list | tuple) or len(turn) != 2:
        return False
    return isinstance(turn[0], str) and isinstance(turn[1], int) and not isinstance(turn[1], bool) and turn[1] >= 0


def _deterministic(fields: Fields) -> bool | str:
    if isinstance(fields.values.get("deterministic"), str):
        return str(fields.take("deterministic", str, default="", choices=("warn",)))
    return bool(fields.take("deterministic", bool, default=False))


def _schedule_hook(root: Fields) -> list[HookPlan]:
    if "schedule" not in root:
        return []
    spec = Spec(kind="hook", name="Schedule", at=root.place("schedule"))
    return [HookPlan(spec=spec, priority=PRIORITY["Schedule"])]


def _log(root: Fields) -> tuple[HookPlan, HookPlan, tuple[Spec, ...]]:
    fields = root.section("log")
    every = fields.take_amount("every", default=None)
    writers = fields.take_specs("to", "writer")
    fields.done()
    at = NOWHERE if every is None else root.place("log")  # an interval that nobody wrote is no mistake of a line
    log = Spec(kind="hook", name="Log", at=at)
    timer = Spec(kind="hook", name="Timer", at=at)
    plans = (
        HookPlan(spec=timer, priority=PRIORITY["Timer"]),
        HookPlan(spec=log, every=every or Amount(50, "step"), priority=PRIORITY["Log"]),
    )
    return plans[0], plans[1], writers


def _evaluate(root: Fields, every: Amount | None, data: Mapping[str, Loader]) -> list[HookPlan]:
    if "val" not in data:
        if every is not None:
            root.findings.append(
                Finding(str(root.tree.place("train", "validate")), "train.validate needs data.val, which is missing")
            )
        return []
    further = [split for split in data if is_further(split)]
    args = {"split": "val", **({"also": further} if further else {})}
    spec = Spec(kind="hook", name="Evaluate", args=args, at=root.tree.place("train", "validate"))
    return [HookPlan(spec=spec, every=every or Amount(1, "epoch"), priority=PRIORITY["Evaluate"])]


def _checkpoint(root: Fields, metrics: Sequence[Spec]) -> list[HookPlan]:
    if root.values.get("checkpoint") is False:
        root.take("checkpoint", bool)
        return []
    fields = root.section("checkpoint")
    every = fields.take_amount("every", default=None, unit="epoch") or Amount(1, "epoch")
    spec = Spec(
        kind="hook",
        name="Checkpoint",
        args=fields.rest(),
        at=fields.place(),
        places=_places(fields),
        extra_keys=("every",),
    )
    return [HookPlan(spec=spec, every=every, priority=PRIORITY["Checkpoint"])]


def _hooks(tree: Tree, root: Fields) -> list[HookPlan]:
    return [plan for path in root.take_list("hooks") if (plan := _hook(tree, path, root.findings)) is not None]


def lower_hook(given: str | Mapping[str, Any]) -> HookPlan:
    """Return one hook alone, as an item of ``hooks`` says it."""
    findings: list[Finding] = []
    plan = _hook(Tree({"hooks": [given]}), ("hooks", 0), findings)
    if findings or plan is None:
        raise ConfigError(findings)
    return plan


def _hook(tree: Tree, path: Path, findings: list[Finding]) -> HookPlan | None:
    if not isinstance(tree.get(*path), Mapping):
        spec = spec_at(tree, path, "hook", findings)
        return HookPlan(spec=spec) if spec else None
    fields = Fields(tree, path, findings)
    every = fields.take_amount("every", default=None)
    own = PRIORITY["Checkpoint"] if fields.values.get("type") == "Checkpoint" else 50
    priority = fields.take_priority(default=own)
    essential = fields.take("essential", bool, default=True)
    spec = fields.rest_spec("hook")
    return HookPlan(spec=spec, every=every, priority=priority, essential=essential) if spec else None


def _init_from(tree: Tree, root: Fields) -> dict[str, Any]:
    """Return the weights to start from: a path, or a mapping. No config can allow a file to run code."""
    value = root.take("init_from", "str | dict", default=None)
    if not isinstance(value, Mapping):
        _look_for(root, "init_from", value)
        return {"path": value} if value else {}
    fields = Fields(tree, ("init_from",), root.findings)
    given = {"path": fields.take("path", str), "prefix": fields.take("prefix", "str | dict", default=None)}
    given["best"] = fields.take("best", "bool | str", default=None)
    if given["path"] is None and given["best"]:
        fields.error("init_from.best is the best of a run; which one?", hint="add path: runs/NAME")
    given |= _taken(fields, {"to": str, "strict": bool, "key": str})
    _look_for(fields, "path", given["path"])
    pairs = _renames(fields)
    fields.done()
    return {key: value for key, value in given.items() if value is not None} | ({"rename": pairs} if pairs else {})


def _look_for(fields: Fields, key: str, path: str | None) -> None:
    """Warn about a missing file. It is no error, because it may be there on the machine that trains."""
    if not path or "://" in path or os.path.exists(path) or os.path.exists(os.path.join("runs", path)):
        return
    folder, name = os.path.split(path)
    near = nearest(name, os.listdir(folder or ".")) if os.path.isdir(folder or ".") else None
    hint = f"did you mean {os.path.join(folder, near)!r}?" if near else ""
    fields.error(f"{fields.name(key)}: there is no {path}", key=key, hint=hint, severity="warning")


def _renames(fields: Fields) -> list[Any]:
    rename = fields.take("rename", "list | dict", default=None)
    pairs = list(rename.items()) if isinstance(rename, Mapping) else list(rename or [])
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        fields.error("init_from.rename must be pairs", key="rename", hint=r"as [['^module\.', '']]")
        return []
    for pattern, _ in pairs:
        try:
            re.compile(str(pattern))
        except re.error as error:
            fields.error(f"init_from.rename: {pattern!r} is not a valid regular expression: {error}", key="rename")
    return pairs


def _strings(fields: Fields, key: str) -> list[str]:
    value = fields.take(key, default=None)
    values = [value] if isinstance(value, str) else list(value or [])
    for item in values:
        if not isinstance(item, str):
            fields.error(f"{fields.name(key)}: {item!r} is not a string", key=key)
    return [item for item in values if isinstance(item, str)]


def _taken(fields: Fields, kinds: Mapping[str, type]) -> dict[str, Any]:
    taken = {key: fields.take(key, kind, default=None) for key, kind in kinds.items()}
    return {key: value for key, value in taken.items() if value is not None}


def _places(fields: Fields) -> dict[str, Any]:
    return {str(key): fields.place(key) for key in fields.values}


def _all_mappings(values: Mapping[Any, Any]) -> bool:
    return bool(values) and all(isinstance(value, Mapping) for value in values.values())


def _nothing(kind: str) -> Spec:
    """Return a spec in place of a missing one, which a finding reports. It is never built."""
    return Spec(kind=kind, name="")


def _name_of(tree: Tree) -> str:
    first = next(iter(tree.files), "run")
    return first.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0] or "run"
