"""The keys of LiBai's and detectron2's configs as a JSON Schema: which there are, what they hold, what they start with.

Keys come from the table that ``check`` uses, defaults from the configs that come with the dialect. No torch.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.libai.known_keys import KEYS
from etude.dialects.libai.places import CONFIGS
from etude.inspection import signatures
from etude.inspection.index import kept

_LAZY = {"$ref": "#/$defs/lazy"}
_NUMBER, _WHOLE, _TEXT, _FLAG = ({"type": word} for word in ("number", "integer", "string", "boolean"))

_DEVICE = {"type": "string", "pattern": r"(cpu|cuda|mps|xpu|npu|hip|meta)(:\d+)?"}

#: What a key is about.
TEXTS = {
    "train": "how long, how much at a time, when to look, when to keep",
    "train.output_dir": "where logs, metrics.json and checkpoints go",
    "train.train_micro_batch_size": "samples of one process in one forward pass",
    "train.global_batch_size": "samples of one update over all processes; computed where it is not said",
    "train.num_accumulation_steps": "micro-batches per update",
    "train.train_iter": "iterations; in eager mode multiplied by the accumulation steps",
    "train.train_epoch": "passes over the data; the longer of this and train_iter counts",
    "train.warmup_ratio": "share of the iterations that the learning rate climbs, in [0, 1)",
    "train.amp": "mixed precision",
    "train.activation_checkpoint": "computes activations again in the backward pass, where the model can",
    "train.zero_optimization": "taken, without an effect",
    "train.checkpointer": "when state is saved and how many checkpoints are kept",
    "train.checkpointer.period": "iterations between two checkpoints",
    "train.checkpointer.max_to_keep": "older ones are removed",
    "train.checkpointer.save_model_after_n_epoch": "epochs between two checkpoints, instead of period",
    "train.evaluation": "when the test data is looked at, by what, and which metric makes the best model",
    "train.evaluation.eval_period": "iterations between two evaluations; one comes at the end in any case",
    "train.evaluation.eval_after_n_epoch": "epochs between two evaluations, instead of eval_period",
    "train.evaluation.eval_iter": "at most so many batches per evaluation",
    "train.evaluation.eval_metric": "the metric that makes the best model",
    "train.evaluation.evaluator": "a DatasetEvaluator",
    "train.load_weight": "a checkpoint folder to take weights from",
    "train.log_period": "iterations between two lines",
    "train.scheduler": "the learning rate over the iterations; warmup_iter and max_iter are filled in",
    "train.dist": "sizes of parallel training; only data-parallel ones above 1",
    "train.input_placement_device": "where model and batches are",
    "train.seed": "of all random generators, plus the rank",
    "train.max_iter": "detectron2: iterations",
    "train.init_checkpoint": "detectron2: weights to start from",
    "train.eval_period": "detectron2: iterations between two evaluations",
    "train.device": "detectron2: where the model is",
    "train.ddp": "detectron2: options of DistributedDataParallel",
    "graph": "graph mode: the model goes through torch.compile",
    "graph.train_graph": "GraphBase; backend names another compiler than inductor",
    "model": "the network, a lazy call",
    "optim": "the optimizer, a lazy call whose params is one too",
    "optimizer": "detectron2: the optimizer, a lazy call whose params is one too",
    "lr_multiplier": "detectron2: factor of the learning rate over the run, a ParamScheduler",
    "dataloader": "train: a lazy loader; test: a list of them (detectron2: one, and an evaluator)",
    "tokenization": "the tokenizer, and how the vocabulary is padded",
}
#: What a key holds whose default does not say, or does not say all.
KINDS: dict[str, dict[str, Any]] = {
    "train.global_batch_size": {"type": ["integer", "null"], "minimum": 1},
    "train.train_micro_batch_size": {"type": ["integer", "null"], "minimum": 1},
    "train.num_accumulation_steps": {"type": ["integer", "null"], "minimum": 1},
    "train.train_samples": {"type": ["integer", "null"]},
    "train.warmup_ratio": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "train.warmup_iter": _WHOLE,
    "train.train_epoch": {"type": "number", "minimum": 0},
    "train.checkpointer.save_model_after_n_epoch": {"type": ["integer", "null"]},
    "train.evaluation.eval_after_n_epoch": {"type": ["integer", "null"]},
    "train.evaluation.eval_mode": {"enum": ["max", "min"]},
    "train.dist.pipeline_num_layers": {"type": ["integer", "null"]},
    "train.dist.custom_pipeline_stage_id": {"type": ["array", "null"]},
    "train.zero_optimization.stage": {"enum": [1, 2, 3]},
    "train.train_iter": {"type": "integer", "minimum": 0},
    "train.max_iter": {"type": "integer", "minimum": 1},
    "train.test_micro_batch_size": {"type": "integer", "minimum": 1},
    "train.log_period": {"type": "integer", "minimum": 1},
    "train.checkpointer.period": {"type": "integer", "minimum": 0},
    "train.checkpointer.max_to_keep": {"type": ["integer", "null"], "minimum": 1},
    "train.evaluation.eval_period": {"type": "integer", "minimum": 0},
    "train.evaluation.eval_iter": {"type": "number", "minimum": 1},
    "train.eval_period": {"type": "integer", "minimum": 0},
    "train.input_placement_device": _DEVICE,
    "train.device": _DEVICE,
    "train.resume": _FLAG,
    "train.samples": _WHOLE,
    "train.scheduler": _LAZY,
    "train.evaluation.evaluator": _LAZY,
    "graph.train_graph": _LAZY,
    "graph.eval_graph": _LAZY,
    "model": _LAZY,
    "optim": _LAZY,
    "optimizer": _LAZY,
    "lr_multiplier": _LAZY,
    "tokenization.tokenizer": _LAZY,
    "tokenization.append_eod": _FLAG,
    "tokenization.setup": _FLAG,
    "tokenization.make_vocab_size_divisible_by": _WHOLE,
}
#: The lazy calls of a config whose classes are usually its project's own.
_CALLS: tuple[Path, ...] = (
    ("model",), ("optim",), ("optimizer",), ("train", "scheduler"), ("train", "evaluation", "evaluator"),
    ("tokenization", "tokenizer"),
)  # fmt: skip
_LOADERS = {
    "train": _LAZY,
    "test": {"anyOf": [_LAZY, {"type": "array", "items": _LAZY}]},
    "evaluator": _LAZY,
}


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """Allow keys of one's own everywhere: configs hold variables, and hooks read what they like. With ``tree``, the
    model, the optimizer and others that a config names have the arguments of their classes."""
    properties = {key: value((key,)) for key in KEYS[()]}
    for way, schema in _own_calls(tree):
        node: Any = properties
        for key in way[:-1]:
            node = node[str(key)]["properties"]
        node[str(way[-1])] = schema
    properties["dataloader"] = {"description": TEXTS["dataloader"], "type": "object", "properties": _LOADERS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "LiBai or detectron2 lazy config",
        "type": "object",
        "required": ["model", "train", "dataloader"],
        "properties": properties,
        "$defs": {"lazy": _lazy()},
    }


def markdown_schema(tree: Tree | None = None) -> str:
    """The same for people."""
    lines = ["# Keys of LiBai's and detectron2's configs", "", "| key | value | default | |", "|---|---|---|---|"]
    for section, keys in KEYS.items():
        for key in keys:
            name = ".".join(map(str, (*section, key)))
            found = value((*section, key))
            default = f"`{found['default']}`" if "default" in found else ""
            lines.append(f"| `{name}` | {_word(found)} | {default} | {TEXTS.get(name, '')} |")
    for way, schema in _own_calls(tree):
        lines += ["", f"## {'.'.join(map(str, way))}: {schema['properties']['_target_']['const']}", ""]
        lines += [schema["description"], "", "| argument | default |", "|---|---|"]
        arguments = [(key, about) for key, about in schema["properties"].items() if key != "_target_"]
        lines += [f"| `{key}` | {about.get('description', 'required')} |" for key, about in arguments]
    return "\n".join(lines) + "\n"


def _own_calls(tree: Tree | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield where a config has a lazy call of a class whose source is known, and the schema of that call."""
    for way in [path for path in _CALLS if tree is not None]:
        node = tree.get(*way) if tree is not None else None
        target = str(node.get("_target_", "")) if isinstance(node, Mapping) else ""
        signature = signatures.signature(":".join(target.rsplit(".", 1)), folders=tuple(sys.path), known=kept)
        if signature is None:
            continue
        arguments = {
            parameter.key: {} if parameter.required else {"description": f"default {parameter.default}"}
            for parameter in signature.parameters
            if parameter.name not in ("self", "params")
        }
        yield (
            way,
            {
                "description": signature.doc or TEXTS.get(".".join(map(str, way)), ""),
                "type": "object",
                "required": ["_target_"],
                "properties": {"_target_": {"const": target}, **arguments},
                "additionalProperties": signature.open or "params" in (node or {}),
            },
        )


def _lazy() -> dict[str, Any]:
    text = "a lazy call: _target_ is the dotted name of what is called, every other key an argument"
    return {"type": "object", "required": ["_target_"], "properties": {"_target_": _TEXT}, "description": text}


def value(way: Path) -> dict[str, Any]:
    """Return the schema of a known key."""
    name = ".".join(map(str, way))
    about: dict[str, Any] = {"description": TEXTS[name]} if name in TEXTS else {}
    if way in KEYS:
        return {**about, "type": "object", "properties": {key: value((*way, key)) for key in KEYS[way]}}
    known, default = _default(way)
    kind = KINDS.get(name, _kind_of(default) if known else {})
    plain = known and not isinstance(default, dict)
    return {**about, **kind, **({"default": default} if plain and default != "" else {})}


def _kind_of(default: Any) -> dict[str, Any]:
    for kind, schema in ((bool, _FLAG), (int, _WHOLE), (float, _NUMBER), (str, _TEXT), (dict, {"type": "object"})):
        if isinstance(default, kind):
            return schema
    return {}


def _word(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return "lazy call"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default(way: Path) -> tuple[bool, Any]:
    """Return whether the common configs say what ``way`` starts with, and what; LiBai's before detectron2's."""
    for held in _defaults():
        node: Any = held
        for key in way:
            node = node.get(key, _NOWHERE) if isinstance(node, dict) else _NOWHERE
        if node is not _NOWHERE:
            return True, node
    return False, None


_NOWHERE = object()


@cache
def _defaults() -> tuple[dict[Any, Any], ...]:
    libai = _written("common/train.py") | _written("common/models/graph.py")
    return libai, _written("detectron2/common/train.py")


def _written(path: str) -> dict[Any, Any]:
    """The top-level mappings of a config that comes along, read off its syntax."""
    with open(os.path.join(CONFIGS, path), encoding="utf-8") as file:
        body = ast.parse(file.read()).body
    named = ((s.targets[0], s.value) for s in body if isinstance(s, ast.Assign))
    return {target.id: _plain(value) for target, value in named if isinstance(target, ast.Name)}


def _plain(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_plain(key): _plain(value) for key, value in pairs if key is not None}
    return {} if isinstance(node, ast.Call) else ast.literal_eval(node)
