"""JSON Schema of an mmcv 1.x config: the keys that the train scripts read, and what every class takes that it can name.

Classes and their arguments are read from the sources behind the registries, so nothing has to be kept in step. A
config may hold more at its top (user-defined variables) and may name user-defined classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmcv1 import listing, names
from etude.dialects.mmcv1.lower import WORDS
from etude.dialects.mmcv1.projects import project_of, registered_by
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.schemas import (
    COUNT,
    DIALECT,
    DICT,
    FLAG,
    INT,
    NUMBER,
    TEXT,
    Own,
    mapping,
    of_class,
    one_or_many,
    or_null,
    shown,
)  # fmt: skip

#: Arguments that no config writes.
_GIVEN = ("params", "model", "dataloader", "optimizer", "runner", "batch_processor", "logger", "meta", "work_dir")
_LEVEL = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 100}]}
_POSITIVE = {"type": "integer", "minimum": 1}
_WARMUP = or_null({"enum": ["constant", "linear", "exp"]})
_CLIP = mapping({"max_norm": NUMBER, "norm_type": {"type": ["number", "string"]}, "error_if_nonfinite": FLAG,
                 "foreach": or_null(FLAG)}, required=("max_norm",))  # fmt: skip
_PARAMWISE = mapping(
    {
        "custom_keys": {
            "type": "object", "description": "part of a parameter's name → what holds for it; the longest part wins",
            "additionalProperties": mapping({"lr_mult": NUMBER, "decay_mult": NUMBER}),
        },
        **dict.fromkeys(("bias_lr_mult", "bias_decay_mult", "norm_decay_mult", "dwconv_decay_mult",
                         "dcn_offset_lr_mult"), NUMBER),
        "bypass_duplicate": FLAG,
    },
    rest=True,
)  # fmt: skip
#: Better words for some arguments than their annotations have.
_TYPES: Mapping[str, Any] = {
    "warmup": _WARMUP,
    "grad_clip": or_null(_CLIP),
    "step": {"anyOf": [_POSITIVE, {"type": "array", "items": _POSITIVE}]},
    "rule": or_null({"enum": ["greater", "less"]}),
    "anneal_strategy": {"enum": ["cos", "linear"]},
    "start": or_null(COUNT),
    "loss_scale": {"anyOf": [NUMBER, {"const": "dynamic"}, DICT]},
}
_LOADER_WORDS: Mapping[str, Any] = {
    "samples_per_gpu": _POSITIVE, "workers_per_gpu": COUNT, "shuffle": FLAG, "drop_last": FLAG,
    "persistent_workers": FLAG, "pin_memory": FLAG, "sampler": or_null(DICT), "sampler_cfg": or_null(DICT),
    "prefetch_factor": or_null(INT), "round_up": FLAG, "seed": or_null(INT),
}  # fmt: skip
_LOADER = mapping(_LOADER_WORDS, rest=True)
_STEPS = {"type": "array", "items": {"$ref": "#/$defs/PIPELINES"}}
_DATASET = one_or_many(
    {**mapping({"type": TEXT, "pipeline": _STEPS}, rest=True), "allOf": [{"$ref": "#/$defs/DATASETS"}]}
)
_MODEL_PARTS = {"properties": {part: {"$ref": "#/$defs/PARTS"} for part in ("backbone", "neck", "head", "detector")}}
_DATA = mapping(
    {
        **_LOADER_WORDS, "imgs_per_gpu": _POSITIVE, "train": _DATASET, "val": _DATASET, "test": _DATASET,
        "train_dataloader": _LOADER, "val_dataloader": _LOADER, "test_dataloader": _LOADER,
    },
    rest=True, required=("train",),
)  # fmt: skip


def _use(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _one(name: str, *, extra: Mapping[str, Any] | None = None, rest: bool = False) -> dict[str, Any]:
    """The arguments of one class of ours, by its import name in ``mmcv.runner``."""
    found = of_class(names.MODULES["mmcv.runner"][name], given=_GIVEN, types=_TYPES)
    assert found is not None
    properties, required, _ = found
    return mapping({**properties, **(extra or {}), "_delete_": FLAG}, rest=rest, required=required)


def keys() -> dict[str, tuple[Mapping[str, Any], str]]:
    """Key → what stands there, and a line about it."""
    model = mapping(
        {"type": TEXT, "init_cfg": or_null(one_or_many(_use("INITIALIZERS")))}, rest=True, required=("type",)
    )
    saves = {"filename_tmpl": TEXT, "create_symlink": FLAG, "meta": or_null(DICT), "type": TEXT}
    tests = {"metric": one_or_many(TEXT), "metric_options": DICT, "type": TEXT, "priority": _LEVEL}
    hooks = _use("HOOKS")
    several = {"type": "object", "additionalProperties": _use("OPTIMIZERS")}
    return {
        "model": (model, "the model"),
        "data": (_DATA, "datasets, and how they become batches"),
        "sampler": (or_null(DICT), "a sampler of your own for the training data"),
        "optimizer": ({"anyOf": [_use("OPTIMIZERS"), several]}, "the optimizer and its parameter groups"),
        "optimizer_config": (or_null(_use("OPTIMIZER_HOOKS")), "clipping and accumulation; None: train_step does it"),
        "fp16": (or_null(mapping({"loss_scale": _TYPES["loss_scale"]})), "half precision"),
        "lr_config": (or_null(_use("LR_POLICIES")), "how the learning rate moves; None keeps it"),
        "momentum_config": (or_null(_use("MOMENTUM_POLICIES")), "how the momentum moves"),
        "runner": (_use("RUNNERS"), "by epochs or by iterations, and how long"),
        "total_epochs": (COUNT, "the length, where there is no runner"),
        "workflow": (_WORKFLOW, "(mode, number) tuples: [('train', 1), ('val', 1)]"),
        "checkpoint_config": (or_null(_one("CheckpointHook", extra=saves)), "when checkpoints are saved and kept"),
        "log_config": (
            mapping({"interval": _POSITIVE, "hooks": {"type": "array", "items": hooks}, "_delete_": FLAG},
                    required=("interval", "hooks")), "log lines and trackers",
        ),
        "log_level": ({"anyOf": [{"enum": ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]}, INT]}, "what is logged"),
        "evaluation": (_one("EvalHook", extra=tests, rest=True), "when the val data is evaluated, and with what"),
        "custom_hooks": (or_null(one_or_many(hooks)), "further hooks, each with its priority"),
        "custom_imports": (
            or_null(mapping({"imports": one_or_many(TEXT), "allow_failed_imports": FLAG}, required=("imports",))),
            "modules of your own that register classes",
        ),
        **_SCRIPT,
    }  # fmt: skip


_WORKFLOW = {
    "type": "array", "minItems": 1,
    "items": {"type": "array", "prefixItems": [{"type": "string"}, COUNT], "minItems": 2, "maxItems": 2},
}  # fmt: skip
#: What the train scripts read by themselves.
_SCRIPT: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "_base_": (one_or_many(TEXT), "config files that this one builds on"),
    "load_from": (or_null(TEXT), "weights to start from"),
    "resume_from": (or_null(TEXT), "a checkpoint to resume from"),
    "auto_resume": (FLAG, "resume from the newest checkpoint of the work_dir"),
    "work_dir": (or_null(TEXT), "where everything of the run is written; default work_dirs/<name of the config>"),
    "seed": (or_null(INT), "of all generators"),
    "deterministic": (FLAG, "deterministic kernels"),
    "device": (TEXT, "cpu or cuda"),
    "gpu_ids": ({}, "accepted; devices are chosen by the launcher"),
    "dist_params": (mapping({"backend": {"enum": ["nccl", "gloo", "mpi"]}, "port": INT}), "for several processes"),
    "find_unused_parameters": (FLAG, "for several processes"),
    "cudnn_benchmark": (FLAG, "let CUDA search for the fastest kernels"),
    "mp_start_method": ({"enum": ["fork", "spawn", "forkserver"]}, "how data workers start"),
    "opencv_num_threads": (INT, "threads of OpenCV in each process"),
    "auto_scale_lr": (or_null(DICT), "of mmdet's configs"),
    "USE_MMDET": (FLAG, "of mmtracking's configs: train the detector of the model alone"),
    "TRAIN_REID": (FLAG, "of mmtracking's configs: train the re-identification of the model alone"),
    "samples_per_epoch": (or_null(INT), "of mmtracking's configs; not served, an epoch is one pass over the data"),
    "search_metrics": ({"type": "array", "items": TEXT}, "of mmtracking's configs, for its search of parameters"),
    "test_set": (TEXT, "of mmtracking's configs, for their own use"),
}


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """The schema (draft 2020-12); with ``tree`` also of the classes that its modules register."""
    own = _own(tree)
    tables, known = listing.registries(), keys()
    model, text = known["model"]
    known["model"] = {"allOf": [model, *_cases_of_models(own), _MODEL_PARTS]}, text
    accumulating = {name: target for name, target in listing.HOOKS.items() if name.endswith("OptimizerHook")}
    beside = {"paramwise_cfg": or_null(_PARAMWISE), "constructor": TEXT}
    init = {"override": or_null(one_or_many(DICT)), "layer": or_null(one_or_many(TEXT))}
    return {
        "$schema": DIALECT,
        "title": "mmcv 1.x config",
        "type": "object",
        "properties": {key: {"description": text} for key, (_, text) in known.items()},
        "if": {"required": ["_base_"]},
        "then": {"description": "builds on other files, so anything may be left out"},
        "else": {"properties": {key: schema for key, (schema, _) in known.items()}},
        "$defs": {
            "HOOKS": _component({**listing.HOOKS, **own.table("HOOKS")}, beside={"priority": _LEVEL}, own=own),
            "OPTIMIZERS": _component({**tables["OPTIMIZERS"], **own.table("OPTIMIZERS")}, beside=beside, own=own),
            "OPTIMIZER_HOOKS": _component(accumulating, default="OptimizerHook"),
            "RUNNERS": _component(tables["RUNNERS"], default="EpochBasedRunner", beside={"constructor": TEXT}),
            "INITIALIZERS": _component(tables["INITIALIZERS"], beside=init),
            "LR_POLICIES": _component(tables["lr_config policies"], word="policy"),
            "MOMENTUM_POLICIES": _component(tables["momentum_config policies"], word="policy"),
            "PARTS": {"allOf": _cases_of_models(own, whole=False)},
            "DATASETS": {"allOf": _cases(own.table("DATASETS"), own, whole=False)},
            "PIPELINES": {"allOf": _cases(own.table("PIPELINES"), own, whole=False)},
        },
    }


def _component(
    targets: Mapping[str, str],
    *,
    word: str = "type",
    default: str = "",
    beside: Mapping[str, Any] | None = None,
    own: Own | None = None,
) -> dict[str, Any]:
    """A dict with a ``type``, or a ``policy``: of a known one the arguments are known, of others anything goes."""
    cases = [_case(name, target, word, name == default, beside or {}, own) for name, target in sorted(targets.items())]
    made: dict[str, Any] = {
        "type": "object",
        "properties": {word: {"anyOf": [{"enum": sorted(targets)}, TEXT]}},
        "allOf": [case for case in cases if case],
    }
    if default:
        return made
    return {**made, "anyOf": [{"required": [word]}, {"required": ["type"]}]}


def _own(tree: Tree | None) -> Own:
    """Return what the modules of a config and its installed project register."""
    own = Own.of(tree, WORDS)
    if tree is None:
        return own
    project = project_of(tree.values, tree.files, Lowering(tree).imports)
    return replace(own, registered={**(registered_by(project) if project else {}), **own.registered})


def _cases_of_models(own: Own, *, whole: bool = True) -> list[dict[str, Any]]:
    """Return what models and their parts take, whatever the registry of the package is called."""
    others = ("HOOKS", "OPTIMIZERS", "RUNNERS", "DATASETS", "PIPELINES", "TRANSFORMS", "SAMPLERS")
    named = {name: target for (table, name), target in own.registered.items() if table not in others}
    return _cases(named, own, whole=whole)


def _cases(named: Mapping[str, str], own: Own, *, whole: bool) -> list[dict[str, Any]]:
    """Return what each class takes. Where it is not the ``whole``, its owner may add what it needs."""
    found = [_case(name, target, "type", False, {}, own) for name, target in sorted(named.items())]
    cases = [case for case in found if case]
    for case in cases if not whole else ():
        case["then"].pop("required", None)
    return cases


def _case(
    name: str, target: str, word: str, is_default: bool, beside: Mapping[str, Any], own: Own | None = None
) -> dict[str, Any] | None:
    is_own = own is not None and target in own.registered.values()
    found = of_class(target, given=() if is_own else _GIVEN, types={} if is_own else _TYPES, own=own)
    if found is None or (found[2] and not found[0]):
        return None
    arguments, required, is_open = found
    test: dict[str, Any] = {"properties": {word: {"const": name}}}
    if not is_default:
        test["required"] = [word]
    then: dict[str, Any] = {"properties": {word: {}, "_delete_": FLAG, **arguments, **beside}}
    if required:
        then["required"] = required
    if not is_open:
        then["additionalProperties"] = False
    return {"if": test, "then": then}


def markdown_schema(tree: Tree | None = None) -> str:
    """The same to read: keys, then classes by registry with what they take."""
    own, tables = _own(tree), listing.registries()
    lines = ["# Keys of mmcv 1.x configs", "", "| key | |", "|---|---|"]
    lines += [f"| `{key}` | {text} |" for key, (_, text) in keys().items()]
    for table in dict.fromkeys([*tables, *own.tables()]):
        found = {**tables.get(table, {}), **own.table(table)}
        lines += ["", f"## {table}", ""]
        lines += [f"- `{name}` {shown(target, _GIVEN, own)}" for name, target in sorted(found.items())]
    return "\n".join(lines) + "\n"
