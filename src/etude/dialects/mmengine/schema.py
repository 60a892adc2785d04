"""JSON Schema of an MMEngine config: the runner's keys, and what every class takes that a config can name; and a list.

Classes and their arguments are read from the sources behind the registries, so nothing has to be kept in step. A
config may hold more at its top (user-defined variables) and may name user-defined classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmengine import names
from etude.dialects.mmengine.lower import _DEFAULT_HOOKS, TABLES, WORDS
from etude.dialects.mmengine.projects import registered_by, scope_of
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
    of_parameter,
    one_or_many,
    or_null,
)  # fmt: skip
from etude.inspection import signatures as scan

#: Arguments that the runner gives itself, and keys that any component may have beside those of its class.
_GIVEN = {"runner", "dataloader", "optimizer", "params", "dataset", "param_name", "data_batch"}
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "HOOKS": ("priority",), "PARAM_SCHEDULERS": ("convert_to_iter_based", "epoch_length", "param_name"),
    "OPTIM_WRAPPERS": ("optimizer", "constructor", "paramwise_cfg"), "DATA_SAMPLERS": ("seed",),
    "LOOPS": ("by_epoch",), "DATASETS": ("dataset", "datasets"),
}  # fmt: skip

_LEVEL = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 100}]}


def _use(table: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{table}"}


_LOADER = mapping(
    {
        "dataset": _use("DATASETS"), "sampler": _use("DATA_SAMPLERS"), "batch_sampler": or_null(_use("DATA_SAMPLERS")),
        "batch_size": {"type": "integer", "minimum": 1}, "num_workers": COUNT, "collate_fn": _use("FUNCTIONS"),
        "worker_init_fn": _use("FUNCTIONS"), "num_batch_per_epoch": {"type": "integer", "minimum": 1},
        "disable_subprocess_warning": FLAG, "persistent_workers": FLAG, "pin_memory": FLAG, "drop_last": FLAG,
        "prefetch_factor": or_null(INT), "timeout": NUMBER, "multiprocessing_context": {}, "generator": {},
        "pin_memory_device": TEXT, "shuffle": FLAG, "in_order": FLAG, "_delete_": FLAG,
    },
    required=("dataset", "sampler"),
)  # fmt: skip
_PARAMWISE = mapping(
    {
        "custom_keys": {
            "type": "object", "description": "part of a parameter's name → what holds for it; the longest part wins",
            "additionalProperties": {
                "type": "object",
                "properties": {"lr_mult": NUMBER, "decay_mult": NUMBER, "lars_exclude": FLAG, "fix_lr": FLAG},
            },
        },
        **dict.fromkeys(
            ("bias_lr_mult", "bias_decay_mult", "norm_decay_mult", "flat_decay_mult", "dwconv_decay_mult",
             "dcn_offset_lr_mult", "layer_decay_rate"), NUMBER,
        ),
        "bypass_duplicate": FLAG,
    },
    rest=True,
)  # fmt: skip
_CLIP = mapping(
    {
        "type": {"enum": ["norm", "value"]}, "max_norm": NUMBER, "norm_type": NUMBER, "clip_value": NUMBER,
        "error_if_nonfinite": FLAG, "foreach": or_null(FLAG),
    }
)  # fmt: skip
_TRAIN = mapping(
    {
        "type": TEXT, "by_epoch": FLAG, "max_epochs": COUNT, "max_iters": COUNT, "val_begin": COUNT,
        "val_interval": {"type": "integer", "minimum": 1},
        "dynamic_intervals": or_null({"type": "array", "items": {"type": "array", "items": INT, "minItems": 2}}),
    },
    rest=True,
)  # fmt: skip
_EVALUATION = or_null(mapping({"type": TEXT, "fp16": FLAG}, rest=True))
_METRICS = one_or_many(_use("METRICS"))
_EVALUATOR = or_null(
    {"anyOf": [mapping({"type": TEXT, "metrics": _METRICS}, required=("metrics",)), *_METRICS["anyOf"]]}
)
_SCHEDULER = one_or_many(_use("PARAM_SCHEDULERS"))
_BOOL_OR_DICT = {"anyOf": [FLAG, DICT]}

#: Key → what stands there, and a line about it.
KEYS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "model": (_use("MODELS"), "the model"),
    "data_preprocessor": (or_null(_use("MODELS")), "set into the model where that has none"),
    "work_dir": (or_null(TEXT), "where everything of the run is written; default work_dirs/<name of the config>"),
    "train_dataloader": (or_null(_LOADER), "batches to train on"),
    "val_dataloader": (or_null(_LOADER), "batches to validate on"),
    "test_dataloader": (or_null(_LOADER), "batches to test on"),
    "train_cfg": (or_null(_TRAIN), "the train loop: by epochs or by iterations, or one of your own"),
    "val_cfg": (_EVALUATION, "the validation loop; dict() is the usual value"),
    "test_cfg": (_EVALUATION, "the test loop; dict() is the usual value"),
    "val_evaluator": (_EVALUATOR, "metrics of the validation"),
    "test_evaluator": (_EVALUATOR, "metrics of the test"),
    "optim_wrapper": (or_null(_use("OPTIM_WRAPPERS")), "the optimizer, its groups, clipping and accumulation"),
    "param_scheduler": (
        or_null({"anyOf": [*_SCHEDULER["anyOf"], {"type": "object", "additionalProperties": _SCHEDULER}]}),
        "how lr, momentum or another value moves; several act one after the other or together",
    ),
    "auto_scale_lr": (or_null(mapping({"enable": FLAG, "base_batch_size": INT})), "lr by the size of the batches"),
    "default_hooks": (
        or_null(mapping({key: or_null(_use("HOOKS")) for key in _DEFAULT_HOOKS}, rest=or_null(_use("HOOKS")))),
        "the six hooks of every run; None leaves one out, a dict takes its place",
    ),
    "custom_hooks": (or_null({"type": "array", "items": _use("HOOKS")}), "further hooks"),
    "load_from": (or_null(TEXT), "weights to begin with, or with resume the checkpoint to resume from"),
    "resume": (FLAG, "resume from load_from, or from the newest checkpoint"),
    "launcher": ({"enum": ["none", "pytorch", "slurm", "mpi"]}, "who starts the processes"),
    "env_cfg": (
        mapping(
            {
                "cudnn_benchmark": FLAG, "resource_limit": INT, "dist_cfg": mapping({"backend": TEXT}, rest=True),
                "mp_cfg": mapping({"mp_start_method": TEXT, "opencv_num_threads": INT}),
            }
        ),
        "processes, threads and files",
    ),
    "randomness": (
        mapping({"seed": or_null(INT), "diff_rank_seed": FLAG, "deterministic": FLAG}), "seeds",
    ),
    "log_processor": (or_null(_use("LOG_PROCESSORS")), "which values a log line has, over how many iterations"),
    "log_level": ({"anyOf": [{"enum": ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]}, INT]}, "what is logged"),
    "visualizer": (or_null(_use("VISUALIZERS")), "where scalars and pictures go"),
    "vis_backends": ({"type": "array", "items": _use("VISBACKENDS")}, "usually named by visualizer"),
    "default_scope": (or_null(TEXT), "the registry in which names are looked up first"),
    "experiment_name": (or_null(TEXT), "name of the run"),
    "custom_imports": (
        mapping({"imports": one_or_many(TEXT), "allow_failed_imports": FLAG}, required=("imports",)),
        "modules of your own that register classes",
    ),
    "runner_type": (TEXT, "a runner of your own"),
    "model_wrapper_cfg": (or_null(_use("MODEL_WRAPPERS")), "how the model is wrapped for several processes"),
    "sync_bn": (or_null({"enum": ["torch"]}), "batch norm over all processes"),
    "find_unused_parameters": (FLAG, "for several processes"),
    "compile": (_BOOL_OR_DICT, "torch.compile of train_step, with arguments"),
    "activation_checkpointing": (or_null(one_or_many(TEXT)), "parts of the model whose activations are recomputed"),
    "strategy": (or_null(_use("STRATEGIES")), "of a FlexibleRunner"),
    "efficient_conv_bn_eval": ({}, "names of parts whose convolutions take in the fixed norms behind them"),
    "init_weights_for_test_or_val": (FLAG, "of a FlexibleRunner"),
    "tta_model": (DICT, "test-time augmentation: the model around"),
    "tta_pipeline": ({"type": "array"}, "test-time augmentation: the transforms"),
}  # fmt: skip
#: What a table's components may have beside the arguments of their classes.
_EXTRA_TYPES: Mapping[str, Mapping[str, Any]] = {
    "priority": _LEVEL, "convert_to_iter_based": FLAG, "epoch_length": INT, "param_name": TEXT,
    "constructor": TEXT, "paramwise_cfg": or_null(_PARAMWISE), "clip_grad": or_null(_CLIP), "seed": or_null(INT),
    "by_epoch": FLAG, "optimizer": _use("OPTIMIZERS"), "dataset": _use("DATASETS"),
    "datasets": {"type": "array", "items": _use("DATASETS")},
}  # fmt: skip
_DEFAULTS = {"OPTIM_WRAPPERS": "OptimWrapper", "LOG_PROCESSORS": "LogProcessor"}


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """The schema (draft 2020-12); with ``tree`` also of the classes that its modules register."""
    own = _own(tree)
    return {
        "$schema": DIALECT,
        "title": "MMEngine config",
        "type": "object",
        "properties": {key: {**schema, "description": text} for key, (schema, text) in KEYS.items()},
        "$defs": {table: _component(table, own) for table in _tables(own)},
    }


def markdown_schema(tree: Tree | None = None) -> str:
    """The same to read: keys, then classes by registry with what they take."""
    own = _own(tree)
    lines = ["# Keys of MMEngine configs", "", "| key | |", "|---|---|"]
    lines += [f"| `{key}` | {text} |" for key, (_, text) in KEYS.items()]
    for table in _tables(own):
        lines += ["", f"## {table}", ""]
        for name, target in sorted(_targets(table, own).items()):
            signature = own.signature(target)
            shown = ", ".join(_shown(p) for p in signature.parameters if p.name not in _GIVEN) if signature else "…"
            lines.append(f"- `{name}({shown})` {signature.doc if signature else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _own(tree: Tree | None) -> Own:
    return Own.of(tree, WORDS, registered_by(scope_of(tree.values, tree.files)) if tree is not None else {})


def _tables(own: Own) -> list[str]:
    return sorted({*names.REGISTERED, *own.tables()})


def _component(table: str, own: Own) -> dict[str, Any]:
    """A dict with a ``type`` of this registry: of a known one the arguments are known, of others anything goes."""
    targets = _targets(table, own)
    kinds = [_case(name, table, target, own) for name, target in sorted(targets.items())]
    made: dict[str, Any] = {
        "type": "object",
        "properties": {"type": {"anyOf": [{"enum": sorted(targets)}, TEXT]}},
        "allOf": [kind for kind in kinds if kind],
    }
    return made if table in _DEFAULTS else {**made, "required": ["type"]}


def _case(name: str, table: str, target: str, own: Own) -> dict[str, Any] | None:
    signature = own.signature(target)
    if signature is None or (signature.open and not signature.parameters):
        return None
    beside = {key: _EXTRA_TYPES[key] for key in _BESIDE.get(table, ())}
    taken = [p for p in signature.parameters if p.word and p.name not in _GIVEN]
    usual = {} if target in own.table(table).values() else _EXTRA_TYPES
    arguments = {p.key: dict(usual.get(p.key) or of_parameter(p)) for p in taken}
    properties = {"type": {}, "_scope_": TEXT, "_delete_": FLAG, **arguments, **beside}
    test: dict[str, Any] = {"properties": {"type": {"const": name}}}
    if _DEFAULTS.get(table) != name:
        test["required"] = ["type"]
    then: dict[str, Any] = {"properties": properties, "description": signature.doc}
    required = [
        p.key for p in signature.parameters if p.required and p.key in arguments and p.key not in (*beside, "save_dir")
    ]
    if required:
        then["required"] = required
    if not signature.open:  # a user-defined constructor may want a dict for each of several optimizers
        then["additionalProperties"] = DICT if table == "OPTIM_WRAPPERS" else False
    return {"if": test, "then": then}


def _targets(table: str, own: Own) -> dict[str, str]:
    """Name → ``module:attr``; a user-defined class takes the place of one that it is called like."""
    return {**TABLES.get(table, {}), **own.table(table)}


def _shown(parameter: scan.Parameter) -> str:
    return parameter.key if parameter.default is None else f"{parameter.key}={parameter.default}"


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Registry → name → where it comes from and a line about it; with ``tree`` also what its project and its modules
    register."""
    own, found = _own(tree), {}
    for table in _tables(own):
        shown, homes = _targets(table, own), {**names.REGISTERED.get(table, {}), **own.table(table)}
        found[table] = {name: _line(homes[name], own.signature(shown[name])) for name in sorted(homes)}
    return found


def _line(target: str, signature: scan.Signature | None) -> str:
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
