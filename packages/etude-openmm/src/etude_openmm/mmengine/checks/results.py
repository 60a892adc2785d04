"""Predicts metric names from the metrics' source code, so that ``save_best`` can be checked before training."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, dotted
from etude.errors.spelling import nearest, suggest
from etude.inspection import signatures as scan
from etude_openmm.mmengine.checks.components import Components
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.metric_rules import GREATER_KEYS, LESS_KEYS, guess

_HOOKS = ("default_hooks", "custom_hooks")


def report_results(components: Components) -> None:
    """Report a best checkpoint, a patience or a plateau that waits for a result which no metric gives."""
    low = components.low
    known = _names(components)
    for path, value in low.tree.walk():
        for where, wanted in _wanted(path, value) if known and not _is_own_validation(low) else ():
            if wanted not in known and "loss" not in wanted:
                text = f"{dotted(where)}: no metric of val_evaluator gives {wanted!r}"
                low.error(low.place(*where), text, suggest(wanted, known))
        if isinstance(value, Mapping) and path[0] in _HOOKS:
            _direction(low, path, value)


def _direction(low: Lowering, path: Path, given: Mapping[Any, Any]) -> None:
    """Report a result whose name does not say whether more or less is better."""
    kind = str(given.get("type", "CheckpointHook" if path == ("default_hooks", "checkpoint") else ""))
    name = kind.rpartition(".")[2]
    key = {"CheckpointHook": "save_best", "EarlyStoppingHook": "monitor"}.get(name)
    if key is None or given.get("rule") is not None or ("HOOKS", name) in low.registered:
        return
    keys = _texts(given.get("greater_keys") or GREATER_KEYS), _texts(given.get("less_keys") or LESS_KEYS)
    for wanted in _texts(given.get(key)):
        if wanted != "auto" and guess(wanted, *keys) is None and not low.has_error((*path, key)):
            text = f"{dotted((*path, key))}: whether more or less of {wanted!r} is better does not follow from its name"
            low.error(low.place(*path, key), text, "give rule='greater' or rule='less'")


def _texts(value: Any) -> list[str]:
    """Return the texts of a list, or a text alone as a list."""
    listed = value if isinstance(value, list | tuple) else [value]
    return [item for item in listed if isinstance(item, str)]


def _is_own_validation(low: Lowering) -> bool:
    """Return whether a user-defined loop or runner validates: it may give any results."""
    loop = low.tree.get("val_cfg", "type", default="ValLoop")
    runner = low.tree.get("runner_type") or "Runner"
    return str(loop).rpartition(".")[2] != "ValLoop" or runner not in ("Runner", "FlexibleRunner")


def first_result(components: Components) -> str:
    """Return the name of the first result that a validation will give; empty where the sources do not say."""
    given = components.low.tree.get("val_evaluator")
    metric = given[0] if isinstance(given, list | tuple) and given else given
    found = _names_of(components, metric) if isinstance(metric, Mapping) else None
    return found[0] if found else ""


def missing_result(word: str, wanted: str, metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message when a validation did not give what ``word`` asks for, and the hint."""
    near = nearest(wanted, [str(name) for name in metrics])
    hint = f"did you mean {near!r}?" if near else f"it gave {', '.join(map(str, metrics))}"
    return f"{word} is {wanted!r}, which the validation did not give", hint


def _wanted(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if path[0] in _HOOKS and path[-1] == "save_best":
        yield from ((path, name) for name in _texts(value) if name != "auto")
    elif path[0] in ("custom_hooks", "param_scheduler") and path[-1] == "monitor" and isinstance(value, str):
        yield path, value


def _names(components: Components) -> set[str]:
    """Return the names of all results; none if the source of a metric does not show its own."""
    given = components.low.tree.get("val_evaluator")
    known: set[str] = set()
    for metric in given if isinstance(given, list | tuple) else [given]:
        found = _names_of(components, metric) if isinstance(metric, Mapping) else None
        if found is None:
            return set()
        known |= set(found)
    return known


def _names_of(components: Components, metric: Mapping[Any, Any]) -> list[str] | None:
    """Return the names that one metric gives, in its order; None where its source does not say."""
    folders = components.low.folders
    found = scan.class_of(components.target(metric.get("type"), ("METRICS",)), folders=folders)
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
        if not isinstance(item, ast.Assign | ast.AnnAssign):
            continue
        names = [ast.unparse(target) for target in (item.targets if isinstance(item, ast.Assign) else [item.target])]
        if "self.prefix" in names or "self.default_prefix" in names:
            return None
        if "default_prefix" in names:
            text = item.value.value if isinstance(item.value, ast.Constant) else ...
            return text if isinstance(text, str) else "" if text is None else None
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return "" if bases == ["BaseMetric"] else None


def _keys(function: ast.FunctionDef) -> list[str] | None:
    """Return the keys of the dicts that a method returns, where each is written out."""
    keys: list[str] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            found = _written(node.value)
            if found is None:
                return None
            keys += [key for key in found if key not in keys]
    return keys or None


def _written(value: ast.expr | None) -> list[str] | None:
    match value:
        case ast.IfExp():
            one, other = _written(value.body), _written(value.orelse)
            return None if one is None or other is None else one + other
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            names: list[Any] = [word.arg for word in value.keywords]
        case ast.Dict():
            names = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        case _:
            return None
    return names if all(isinstance(name, str) for name in names) else None
