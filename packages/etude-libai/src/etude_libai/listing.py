"""Lists the classes that lazy configs can name, for ``etude list --dialect libai``. Imports no torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from etude.config.tree import Tree
from etude.dialects import ownership
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude_libai.checks.calls import named_targets
from etude_libai.names import MODULES

#: Kind → the modules that configs import it from, and the ends of its names there.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scheduler": (("libai.scheduler",), ("LR",)),
    "optimizer": (("oneflow.optim",), ("",)),
    "parameter groups": (("libai.optim", "detectron2.solver"), ("_params",)),
    "loader": (("libai.data.build", "detectron2.data.build"), ("_loader",)),
    "sampler": (("libai.data.samplers", "detectron2.data.samplers"), ("Sampler",)),
    "evaluator": (("libai.evaluation",), ("Evaluator", "Evaluators")),
    "hook": (
        ("libai.engine.hooks", "detectron2.engine.hooks"),
        ("Hook", "Timer", "PeriodicWriter", "Scheduler", "Stop", "Checkpointer", "BN"),
    ),
    "writer": (("libai.utils.events", "detectron2.utils.events"), ("Writer", "Printer")),
    "trainer": (("libai.engine.trainer", "libai.engine.default", "detectron2.engine"), ("Trainer", "TrainerBase")),
    "multiplier": (("detectron2.solver.lr_scheduler",), ("",)),
    "graph": (("libai.models.utils",), ("",)),
}
#: Kind → the package of an installed or checked out LiBai that has its classes.
_PACKAGES = {"model": "libai.models", "data set": "libai.data.datasets", "tokenizer": "libai.tokenizer"}
#: Key → the kind of its value, at any depth of a config.
KEYS = {"model": "model", "dataset": "data set", "tokenizer": "tokenizer", "evaluator": "evaluator"}


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Map kind → dotted name → description.

    An installed or checked out LiBai adds its classes. ``tree`` adds those in the modules of its model, data,
    tokenizer and evaluator.
    """
    found = {kind: dict(sorted(_entries(*places))) for kind, places in KINDS.items()}
    found["multiplier"] |= _classes("fvcore.common.param_scheduler")
    own: dict[str, dict[str, str]] = {kind: {} for kind in KEYS.values()}
    for kind, package in _PACKAGES.items() if ownership.original("libai") is not None else ():
        own[kind] |= _classes(package, imported=True)
    for kind, target in named(tree) if tree is not None else ():
        own[kind] |= _classes(target.rpartition(".")[0])
    return {kind: {**entries, **found.pop(kind, {})} for kind, entries in own.items() if entries} | found


def named(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the kind and the dotted name of each class that a config names."""
    for way, target in named_targets(tree):
        words = [key for key in way if isinstance(key, str)]
        if words and words[-1] in KEYS:
            yield KEYS[words[-1]], target


def _classes(module: str, *, imported: bool = False) -> dict[str, str]:
    """Return the classes of a module by dotted name; with ``imported``, including those that it imports."""
    source = scan.find_source(module, tuple(sys.path))
    known = source.names.items() if source is not None else ()
    names = sorted(name for name, node in known if imported or isinstance(node, ast.ClassDef))
    targets = [f"{module}:{name}" for name in names if not name.startswith("_")]
    return {
        target.replace(":", "."): _doc_line(target)
        for target in targets
        if scan.class_of(target, folders=tuple(sys.path)) is not None
    }


def _entries(modules: tuple[str, ...], ends: tuple[str, ...]) -> list[tuple[str, str]]:
    found = []
    for module in modules:
        for name, target in MODULES[module].items():
            home, is_attribute, _ = target.partition(":")
            theirs = home.endswith(".originals")  # from an installed detectron2
            if not is_attribute or theirs or name.startswith("_") or not name.endswith(ends):
                continue
            doc = _doc_line(target) or _doc_line(_target_with_doc(name, modules)) or _of_torch(target)
            found.append((f"{module}.{name}", doc))
    return found


def _doc_line(target: str) -> str:
    signature = scan.signature(target, folders=tuple(sys.path), known=cached) if target else None
    return signature.doc if signature is not None else ""


def _target_with_doc(name: str, modules: tuple[str, ...]) -> str:
    """Return the same name in the other system, for a class without its own docstring."""
    return next((MODULES[module][name] for module in modules if _doc_line(MODULES[module].get(name, ""))), "")


def _of_torch(target: str) -> str:
    module, _, name = target.partition(":")
    if module.endswith(".optimizers"):
        return f"torch's {name}, with OneFlow's arguments"
    return f"torch's {name}" if module.partition(".")[0] == "torch" else ""
