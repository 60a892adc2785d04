"""JSON Schema of an MMEngine config: the runner's keys, and what every class takes that a config can name.

Classes and their arguments are read from the sources behind the registries, so nothing has to be kept in step. A
config may hold more at its top (variables of the user's own) and may name classes of the user's own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from etude import scan
from etude.config.conform import Want, declared
from etude.dialects.mmengine import names_engine, names_parts
from etude.dialects.mmengine.components import written
from etude.dialects.mmengine.lower import _DEFAULT_HOOKS, _schedulers_by_name, _table
from etude.index import kept

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "none": "null"}
#: Arguments that the runner gives itself, and keys that any component may have beside those of its class.
_GIVEN = {"runner", "dataloader", "optimizer", "params", "dataset", "param_name", "data_batch"}
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "HOOKS": ("priority",), "PARAM_SCHEDULERS": ("convert_to_iter_based", "epoch_length", "param_name"),
    "OPTIM_WRAPPERS": ("optimizer", "constructor", "paramwise_cfg"), "DATA_SAMPLERS": ("seed",),
    "LOOPS": ("by_epoch",), "DATASETS": ("dataset", "datasets"),
}  # fmt: skip

_INT, _NUMBER, _TEXT, _FLAG, _DICT = (
    {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"}, {"type": "object"},
)  # fmt: skip
_COUNT = {"type": "integer", "minimum": 0}
_LEVEL = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 100}]}


def _use(table: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{table}"}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(schema), {"type": "null"}]}


def _one_or_many(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(one), {"type": "array", "items": dict(one)}]}


def _mapping(properties: Mapping[str, Any], *, rest: Any = False, required: Sequence[str] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": rest}
    return {**made, "required": list(required)} if required else made


_LOADER = _mapping(
    {
        "dataset": _use("DATASETS"), "sampler": _use("DATA_SAMPLERS"), "batch_sampler": _or_null(_use("DATA_SAMPLERS")),
        "batch_size": {"type": "integer", "minimum": 1}, "num_workers": _COUNT, "collate_fn": _use("FUNCTIONS"),
        "worker_init_fn": _use("FUNCTIONS"), "num_batch_per_epoch": {"type": "integer", "minimum": 1},
        "disable_subprocess_warning": _FLAG, "persistent_workers": _FLAG, "pin_memory": _FLAG, "drop_last": _FLAG,
        "prefetch_factor": _or_null(_INT), "timeout": _NUMBER, "multiprocessing_context": {}, "generator": {},
        "pin_memory_device": _TEXT, "shuffle": _FLAG, "in_order": _FLAG, "_delete_": _FLAG,
    },
    required=("dataset", "sampler"),
)  # fmt: skip
_PARAMWISE = _mapping(
    {
        "custom_keys": {
            "type": "object", "description": "part of a parameter's name → what holds for it; the longest part wins",
            "additionalProperties": {
                "type": "object",
                "properties": {"lr_mult": _NUMBER, "decay_mult": _NUMBER, "lars_exclude": _FLAG, "fix_lr": _FLAG},
            },
        },
        **dict.fromkeys(
            ("bias_lr_mult", "bias_decay_mult", "norm_decay_mult", "flat_decay_mult", "dwconv_decay_mult",
             "dcn_offset_lr_mult", "layer_decay_rate"), _NUMBER,
        ),
        "bypass_duplicate": _FLAG,
    },
    rest=True,
)  # fmt: skip
_CLIP = _mapping(
    {
        "type": {"enum": ["norm", "value"]}, "max_norm": _NUMBER, "norm_type": _NUMBER, "clip_value": _NUMBER,
        "error_if_nonfinite": _FLAG, "foreach": _or_null(_FLAG),
    }
)  # fmt: skip
_TRAIN = _mapping(
    {
        "type": _TEXT, "by_epoch": _FLAG, "max_epochs": _COUNT, "max_iters": _COUNT, "val_begin": _COUNT,
        "val_interval": {"type": "integer", "minimum": 1},
        "dynamic_intervals": _or_null({"type": "array", "items": {"type": "array", "items": _INT, "minItems": 2}}),
    },
    rest=True,
)  # fmt: skip
_EVALUATION = _or_null(_mapping({"type": _TEXT, "fp16": _FLAG}, rest=True))
_METRICS = _one_or_many(_use("METRICS"))
_EVALUATOR = _or_null(
    {"anyOf": [_mapping({"type": _TEXT, "metrics": _METRICS}, required=("metrics",)), *_METRICS["anyOf"]]}
)
_SCHEDULER = _one_or_many(_use("PARAM_SCHEDULERS"))
_BOOL_OR_DICT = {"anyOf": [_FLAG, _DICT]}

#: Key → what stands there, and a line about it.
KEYS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "model": (_use("MODELS"), "the model"),
    "data_preprocessor": (_or_null(_use("MODELS")), "set into the model where that has none"),
    "work_dir": (_or_null(_TEXT), "where everything of the run is written; default work_dirs/<name of the config>"),
    "train_dataloader": (_or_null(_LOADER), "batches to train on"),
    "val_dataloader": (_or_null(_LOADER), "batches to validate on"),
    "test_dataloader": (_or_null(_LOADER), "batches to test on"),
    "train_cfg": (_or_null(_TRAIN), "the train loop: by epochs or by iterations, or one of your own"),
    "val_cfg": (_EVALUATION, "the validation loop; dict() is the usual value"),
    "test_cfg": (_EVALUATION, "the test loop; dict() is the usual value"),
    "val_evaluator": (_EVALUATOR, "metrics of the validation"),
    "test_evaluator": (_EVALUATOR, "metrics of the test"),
    "optim_wrapper": (_or_null(_use("OPTIM_WRAPPERS")), "the optimizer, its groups, clipping and accumulation"),
    "param_scheduler": (
        _or_null({"anyOf": [*_SCHEDULER["anyOf"], {"type": "object", "additionalProperties": _SCHEDULER}]}),
        "how lr, momentum or another value moves; several act one after the other or together",
    ),
    "auto_scale_lr": (_or_null(_mapping({"enable": _FLAG, "base_batch_size": _INT})), "lr by the size of the batches"),
    "default_hooks": (
        _or_null(_mapping({key: _or_null(_use("HOOKS")) for key in _DEFAULT_HOOKS}, rest=_or_null(_use("HOOKS")))),
        "the six hooks of every run; None leaves one out, a dict takes its place",
    ),
    "custom_hooks": (_or_null({"type": "array", "items": _use("HOOKS")}), "further hooks"),
    "load_from": (_or_null(_TEXT), "weights to begin with, or with resume the checkpoint to go on from"),
    "resume": (_FLAG, "go on from load_from, or from the newest checkpoint"),
    "launcher": ({"enum": ["none", "pytorch", "slurm", "mpi"]}, "who starts the processes"),
    "env_cfg": (
        _mapping(
            {
                "cudnn_benchmark": _FLAG, "resource_limit": _INT, "dist_cfg": _mapping({"backend": _TEXT}, rest=True),
                "mp_cfg": _mapping({"mp_start_method": _TEXT, "opencv_num_threads": _INT}),
            }
        ),
        "processes, threads and files",
    ),
    "randomness": (
        _mapping({"seed": _or_null(_INT), "diff_rank_seed": _FLAG, "deterministic": _FLAG}), "seeds",
    ),
    "log_processor": (_or_null(_use("LOG_PROCESSORS")), "which values a log line has, over how many iterations"),
    "log_level": ({"anyOf": [{"enum": ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]}, _INT]}, "what is logged"),
    "visualizer": (_or_null(_use("VISUALIZERS")), "where scalars and pictures go"),
    "vis_backends": ({"type": "array", "items": _use("VISBACKENDS")}, "usually named by visualizer"),
    "default_scope": (_or_null(_TEXT), "the registry in which names are looked up first"),
    "experiment_name": (_or_null(_TEXT), "name of the run"),
    "custom_imports": (
        _mapping({"imports": _one_or_many(_TEXT), "allow_failed_imports": _FLAG}, required=("imports",)),
        "modules of your own that register classes",
    ),
    "runner_type": (_TEXT, "a runner of your own"),
    "model_wrapper_cfg": (_or_null(_use("MODEL_WRAPPERS")), "how the model is wrapped for several processes"),
    "sync_bn": (_or_null({"enum": ["torch"]}), "batch norm over all processes"),
    "find_unused_parameters": (_FLAG, "for several processes"),
    "compile": (_BOOL_OR_DICT, "torch.compile of train_step, with arguments"),
    "activation_checkpointing": (_or_null(_one_or_many(_TEXT)), "parts of the model whose activations are recomputed"),
    "strategy": (_or_null(_use("STRATEGIES")), "of a FlexibleRunner"),
    "efficient_conv_bn_eval": ({}, "names of parts whose convolutions take in the fixed norms behind them"),
    "init_weights_for_test_or_val": (_FLAG, "of a FlexibleRunner"),
    "tta_model": (_DICT, "test-time augmentation: the model around"),
    "tta_pipeline": ({"type": "array"}, "test-time augmentation: the transforms"),
}  # fmt: skip
#: What a table's components may have beside the arguments of their classes.
_EXTRA_TYPES: Mapping[str, Mapping[str, Any]] = {
    "priority": _LEVEL, "convert_to_iter_based": _FLAG, "epoch_length": _INT, "param_name": _TEXT,
    "constructor": _TEXT, "paramwise_cfg": _or_null(_PARAMWISE), "clip_grad": _or_null(_CLIP), "seed": _or_null(_INT),
    "by_epoch": _FLAG, "optimizer": _use("OPTIMIZERS"), "dataset": _use("DATASETS"),
    "datasets": {"type": "array", "items": _use("DATASETS")},
}  # fmt: skip
_DEFAULTS = {"OPTIM_WRAPPERS": "OptimWrapper", "LOG_PROCESSORS": "LogProcessor"}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12)."""
    tables = sorted({*names_engine.REGISTERED, *names_parts.REGISTERED})
    return {
        "$schema": DIALECT,
        "title": "MMEngine config",
        "type": "object",
        "properties": {key: {**schema, "description": text} for key, (schema, text) in KEYS.items()},
        "$defs": {table: _component(table) for table in tables},
    }


def markdown_schema() -> str:
    """The same to read: keys, then classes by registry with what they take."""
    lines = ["# Keys of MMEngine configs", "", "| key | |", "|---|---|"]
    lines += [f"| `{key}` | {text} |" for key, (_, text) in KEYS.items()]
    for table in sorted({*names_engine.REGISTERED, *names_parts.REGISTERED}):
        lines += ["", f"## {table}", ""]
        for name, target in sorted(_targets(table).items()):
            signature = scan.signature(target, known=kept)
            shown = ", ".join(_shown(p) for p in signature.parameters if p.name not in _GIVEN) if signature else "…"
            lines.append(f"- `{name}({shown})` {signature.doc if signature else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _component(table: str) -> dict[str, Any]:
    """A dict with a ``type`` of this registry: of a known one the arguments are known, of others anything goes."""
    targets = _targets(table)
    kinds = [_if_type(name, table, target) for name, target in sorted(targets.items())]
    made: dict[str, Any] = {
        "type": "object",
        "properties": {"type": {"anyOf": [{"enum": sorted(targets)}, _TEXT]}},
        "allOf": [kind for kind in kinds if kind],
    }
    return made if table in _DEFAULTS else {**made, "required": ["type"]}


def _if_type(name: str, table: str, target: str) -> dict[str, Any] | None:
    signature = scan.signature(target, known=kept)
    if signature is None or (signature.open and not signature.parameters):
        return None
    beside = {key: _EXTRA_TYPES[key] for key in _BESIDE.get(table, ())}
    own = {p.key: _parameter(p) for p in signature.parameters if p.word and p.name not in _GIVEN}
    properties = {"type": {}, "_scope_": _TEXT, "_delete_": _FLAG, **own, **beside}
    test: dict[str, Any] = {"properties": {"type": {"const": name}}}
    if _DEFAULTS.get(table) != name:
        test["required"] = ["type"]
    then: dict[str, Any] = {"properties": properties, "description": signature.doc}
    required = [
        p.key for p in signature.parameters if p.required and p.key in own and p.key not in (*beside, "save_dir")
    ]
    if required:
        then["required"] = required
    if not signature.open:  # a constructor of the user's own may want a dict for each of several optimizers
        then["additionalProperties"] = _DICT if table == "OPTIM_WRAPPERS" else False
    return {"if": test, "then": then}


def _targets(table: str) -> dict[str, str]:
    return _schedulers_by_name() if table == "PARAM_SCHEDULERS" else _table(table)


def _parameter(parameter: scan.Parameter) -> dict[str, Any]:
    if parameter.key in _EXTRA_TYPES:
        return dict(_EXTRA_TYPES[parameter.key])
    made = _type(written(parameter.annotation))
    try:
        default = ast.literal_eval(parameter.default or "None")
    except (ValueError, SyntaxError):
        return made
    return {**made, "default": default} if isinstance(default, bool | int | float | str) else made


def _type(annotation: str) -> dict[str, Any]:
    return _of(declared(annotation))


def _of(want: Want) -> dict[str, Any]:
    kind = want[0]
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "literal":
        return {"enum": list(want[1:])}
    if kind in ("list", "tuple"):
        return {"type": "array"}
    if kind in ("dict", "object"):
        return dict(_DICT)
    if kind == "union":
        parts = [_of(part) for part in want[1:]]
        return {"anyOf": parts} if all(parts) else {}
    return {}


def _shown(parameter: scan.Parameter) -> str:
    return parameter.key if parameter.default is None else f"{parameter.key}={parameter.default}"
