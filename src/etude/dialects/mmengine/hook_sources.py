"""What the source of a hook shows: what it asks the runner for, which points it takes, and its priority."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.dialects import imports
from etude.inspection import signatures as scan
from etude.plan import PRIORITIES

_ANY: frozenset[str] = frozenset()
#: What a converted hook can ask its runner for, and what it can ask that for; an empty set is anything.
RUNNER: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("model", "epoch", "iter", "max_epochs", "max_iters", "optim_wrapper", "param_schedulers", "train_dataloader",
         "val_dataloader", "message_hub", "logger", "work_dir", "log_dir", "rank", "world_size", "distributed", "seed",
         "deterministic", "experiment_name", "model_name", "timestamp", "launcher"),
        _ANY,
    ),
    "visualizer": frozenset({"add_scalar", "add_scalars"}),
    **dict.fromkeys(
        ("train_loop", "_train_loop"),
        frozenset({"epoch", "iter", "max_epochs", "max_iters", "dataloader", "stop_training"}),
    ),
}  # fmt: skip
#: Points that have no counterpart outside of MMEngine's own files.
_OF_FILES = ("before_save_checkpoint", "after_load_checkpoint")
_HOOK = "etude.dialects.mmengine.live.hooks.hook:Hook"


def obstacle(target: str, folders: Sequence[str]) -> str:
    """Why the hook ``module:attr`` cannot act in a native run; empty if its source shows nothing against it."""
    classes = list(_classes(target, folders))
    if not classes:
        return "whose source cannot be read"
    for method in [item for node in classes for item in node.body if isinstance(item, ast.FunctionDef)]:
        if method.name in _OF_FILES:
            return f"which acts at {method.name}"
        for asked in _asked(method):
            if asked[0] not in RUNNER:
                return f"which asks for runner.{asked[0]}"
            if RUNNER[asked[0]] and len(asked) > 1 and asked[1] not in RUNNER[asked[0]]:
                return f"which asks for runner.{asked[0]}.{asked[1]}"
    return ""


def priority_of(hook: Mapping[str, Any], target: str, folders: Sequence[str]) -> int:
    """The number that a hook acts by: of the config, else of its class."""
    given = hook.get("priority")
    for node in _classes(target, folders) if given is None else ():
        own = next((value for value in map(_priority, node.body) if value is not None), None)
        if own is not None:
            given = own
            break
    return given if isinstance(given, int) else PRIORITIES.get(str(given).upper(), PRIORITIES["NORMAL"])


def _priority(statement: ast.stmt) -> str | int | None:
    """``priority = "LOW"`` in the body of a class."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    named = any(isinstance(target, ast.Name) and target.id == "priority" for target in targets)
    value = statement.value if named and isinstance(statement, ast.Assign) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str | int) else None


def _classes(target: str, folders: Sequence[str]) -> Iterator[ast.ClassDef]:
    """The class and its bases up to the dialect's own ``Hook``, as far as sources show them."""
    waiting, seen = [target], {_HOOK}
    while waiting:
        name = _served(waiting.pop(0))
        found = None if name in seen else scan.class_of(name, folders=folders)
        seen.add(name)
        if found is not None:
            yield found[1]
            waiting += (scan.signature(name, folders=folders) or scan.Signature()).bases


def _served(target: str) -> str:
    """``mmengine.hooks:Hook`` as it is here."""
    module, _, attribute = target.partition(":")
    return (imports.served_names(module) or {}).get(attribute, target)


def _asked(method: ast.FunctionDef) -> Iterator[tuple[str, ...]]:
    """The chains ``runner.a.b`` in a method, without ``runner``; the longest of each place last."""
    for node in ast.walk(method):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id == "runner":
            yield tuple(parts)
