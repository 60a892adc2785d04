"""Predicts metric names from the metrics' source code, so that ``save_best`` can be checked before training."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, dotted
from etude.dialects.mmengine.checks.components import Components
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.typos import Words
from etude.errors import nearest, suggest
from etude.inspection import signatures as scan

_TABLES = ("METRICS",)


def report_results(components: Components) -> None:
    """Report a best checkpoint, a patience or a plateau that waits for a result which no metric gives."""
    low = components.low
    known, certain = _names(components)
    if not certain or not known or _is_own_validation(low):
        return
    for path, value in low.tree.walk():
        for where, wanted in _wanted(path, value):
            if wanted not in known and "loss" not in wanted:
                text = f"{dotted(where)}: no metric of val_evaluator gives {wanted!r}"
                low.error(low.place(*where), text, suggest(wanted, known))


def _is_own_validation(low: Lowering) -> bool:
    """Return whether a user-defined loop or runner validates: it may give any results."""
    loop = low.tree.get("val_cfg", "type", default="ValLoop")
    runner = low.tree.get("runner_type") or "Runner"
    return str(loop).rpartition(".")[2] != "ValLoop" or runner not in ("Runner", "FlexibleRunner")


def first_result(low: Lowering, tables: Mapping[str, Mapping[str, str]], words: Words) -> str:
    """Return the name of the first result that a validation will give; empty where the sources do not say."""
    given = low.tree.get("val_evaluator")
    metric = given[0] if isinstance(given, list | tuple) and given else given
    found = _names_of(Components(low, words, tables), metric) if isinstance(metric, Mapping) else None
    return next(iter(found), "") if found else ""


def missing_result(word: str, wanted: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message when a validation did not give what ``word`` asks for, and the hint."""
    near = nearest(wanted, [str(name) for name in metrics])
    hint = f"did you mean {near!r}?" if near else f"it gave {', '.join(map(str, metrics))}"
    return f"{word} is {wanted!r}, which the validation did not give", hint


def _wanted(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if path[0] in ("default_hooks", "custom_hooks") and path[-1] == "save_best":
        names = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        yield from ((path, name) for name in names if isinstance(name, str) and name != "auto")
    elif path[0] in ("custom_hooks", "param_scheduler") and path[-1] == "monitor" and isinstance(value, str):
        yield path, value


def _names(components: Components) -> tuple[set[str], bool]:
    """Return the names of the results, and whether these are all; a model may add losses of its own."""
    low = components.low
    given = low.tree.get("val_evaluator")
    listed = given if isinstance(given, list | tuple) else [given]
    known: set[str] = set()
    for metric in listed:
        found = _names_of(components, metric) if isinstance(metric, Mapping) else None
        if found is None:
            return known, False
        known |= set(found)
    return known, True


def _names_of(components: Components, metric: Mapping[Any, Any]) -> list[str] | None:
    """Return the names that one metric gives, in its order; None where its source does not say."""
    folders = components.low.folders
    found = scan.class_of(components.target(metric.get("type"), _TABLES), folders=folders)
    if found is None:
        return None
    _, node = found
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    if "evaluate" in methods or "compute_metrics" not in methods:
        return None
    keys = _keys(methods["compute_metrics"])
    prefix = metric.get("prefix") or _default_prefix(node)
    if keys is None or prefix is None or ("prefix" in metric and not isinstance(metric["prefix"], str)):
        return None
    return [f"{prefix}/{key}" if prefix else key for key in keys]


def _default_prefix(node: ast.ClassDef) -> str | None:
    """Return the class's own, ``""`` where it has none; None where it is made up when the program runs."""
    for item in ast.walk(node):
        names = [ast.unparse(target) for target in item.targets] if isinstance(item, ast.Assign) else []
        if isinstance(item, ast.AnnAssign):
            names = [ast.unparse(item.target)]
        if any(name in ("self.prefix", "self.default_prefix") for name in names):
            return None
        if "default_prefix" in names:
            value = getattr(item, "value", None)
            text = value.value if isinstance(value, ast.Constant) else None
            return text if isinstance(text, str) else None if not _is_none(value) else ""
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return "" if bases == ["BaseMetric"] else None


def _is_none(value: Any) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _keys(function: ast.FunctionDef) -> list[str] | None:
    """Return the keys of the dicts that a method returns, where each is written out."""
    keys: list[str] = []
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    for node in returns:
        found = _written(node.value)
        if found is None:
            return None
        keys += [key for key in found if key not in keys]
    return keys or None


def _written(value: ast.expr | None) -> list[str] | None:
    if isinstance(value, ast.IfExp):
        either = [_written(value.body), _written(value.orelse)]
        return None if None in either else [key for keys in either for key in keys or ()]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        names = [word.arg for word in value.keywords]
        return None if None in names else [str(name) for name in names]
    if isinstance(value, ast.Dict):
        texts = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        return texts if len(texts) == len(value.keys) else None
    return None
