"""Makes the JSON Schema of MMEngine configs, and lists of the classes that they can name.

Classes and their arguments are read from the sources behind the registries, so the schema is always up to date. A
config may hold more at its top (user-defined variables) and may name user-defined classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude_openmm.mmengine import names
from etude_openmm.mmengine.lower import KEYS, RULES, TABLES
from etude_openmm.mmengine.projects import registered_by, scope_of
from etude_openmm.shared.checks.schemas import DIALECT, DICT, FLAG, TEXT, Components, Own, line_about, markdown

#: Arguments that the runner passes, and keys that components may have in addition to the arguments of their class.
_GIVEN = {"runner", "dataloader", "optimizer", "params", "dataset", "param_name", "data_batch"}
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "HOOKS": ("priority",), "PARAM_SCHEDULERS": ("convert_to_iter_based", "epoch_length", "param_name"),
    "OPTIM_WRAPPERS": ("optimizer", "constructor", "paramwise_cfg"), "DATA_SAMPLERS": ("seed",),
    "LOOPS": ("by_epoch",), "DATASETS": ("dataset", "datasets"),
}  # fmt: skip
#: The types of those additional keys.
_EXTRA_TYPES = KEYS.schemas("beside")
_DEFAULTS = {"OPTIM_WRAPPERS": "OptimWrapper", "LOG_PROCESSORS": "LogProcessor"}


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """Return the schema (draft 2020-12); with ``tree``, including the classes that its modules register."""
    own = _user_classes(tree)
    return {
        "$schema": DIALECT,
        "title": "MMEngine config",
        "type": "object",
        "properties": {key: {**schema, "description": text} for key, (schema, text) in KEYS.keys().items()},
        "$defs": {table: _component(table, own) for table in _tables(own)},
    }


def markdown_schema(tree: Tree | None = None) -> str:
    """Return the schema as Markdown: keys, then classes by registry with their arguments."""
    own = _user_classes(tree)
    return markdown("MMEngine", KEYS.keys(), {name: _targets(name, own) for name in _tables(own)}, own, _GIVEN)


def _user_classes(tree: Tree | None) -> Own:
    return Own.of(tree, RULES, registered_by(scope_of(tree.values, tree.files)) if tree is not None else {})


def _tables(own: Own) -> list[str]:
    return sorted({*names.REGISTERED, *own.tables()})


def _component(table: str, own: Own) -> dict[str, Any]:
    """Return the schema of a dict with a ``type`` of this registry."""
    beside = {key: _EXTRA_TYPES[key] for key in _BESIDE.get(table, ())}
    # A user-defined constructor may want a dict for each of several optimizers.
    rest = DICT if table == "OPTIM_WRAPPERS" else False
    classes = Components(own, _GIVEN, _EXTRA_TYPES, ("save_dir",), {"_scope_": TEXT, "_delete_": FLAG})
    made = classes.schema(_targets(table, own), default=_DEFAULTS.get(table, ""), beside=beside, rest=rest)
    return made if table in _DEFAULTS else {**made, "required": ["type"]}


def _targets(table: str, own: Own) -> dict[str, str]:
    """Map name → ``module:attr``. A user-defined class replaces one of the same name."""
    return {**TABLES.get(table, {}), **own.table(table)}


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Map registry → name → origin and description; with ``tree``, including what its project and modules register."""
    own, found = _user_classes(tree), {}
    for table in _tables(own):
        shown, homes = _targets(table, own), {**names.REGISTERED.get(table, {}), **own.table(table)}
        found[table] = {name: line_about(homes[name], own.signature(shown[name])) for name in sorted(homes)}
    return found
