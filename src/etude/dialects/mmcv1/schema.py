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
from etude.dialects.mmcv1.listing import KEYS
from etude.dialects.mmcv1.lower import WORDS
from etude.dialects.mmcv1.projects import project_of, registered_by
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.schemas import DIALECT, FLAG, TEXT, Own, of_class, shown

#: Arguments that no config writes.
_GIVEN = ("params", "model", "dataloader", "optimizer", "runner", "batch_processor", "logger", "meta", "work_dir")
#: Better words for some arguments than their annotations have.
_TYPES = KEYS.schemas("arguments")
_MODEL_PARTS = {"properties": {part: {"$ref": "#/$defs/PARTS"} for part in ("backbone", "neck", "head", "detector")}}


def keys() -> dict[str, tuple[dict[str, Any], str]]:
    """Return key → what stands there, and a line about it."""
    return KEYS.keys({hook: _hook(hook, fields) for hook, fields in KEYS.read["hooks"].items()})


def _hook(name: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a key takes that is a hook's: its class's arguments, and what the file adds to them."""
    found = of_class(names.MODULES["mmcv.runner"][name], given=_GIVEN, types=_TYPES)
    assert found is not None
    arguments, required, _ = found
    made = KEYS.schema(shape)
    made["properties"] = {**arguments, **made["properties"], "_delete_": FLAG}
    return {**made, "required": required} if required else made


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """The schema (draft 2020-12); with ``tree`` also of the classes that its modules register."""
    own = _own(tree)
    tables, known = listing.registries(), keys()
    model, text = known["model"]
    known["model"] = {"allOf": [model, *_cases_of_models(own), _MODEL_PARTS]}, text
    accumulating = {name: target for name, target in listing.HOOKS.items() if name.endswith("OptimizerHook")}
    beside = KEYS.schemas("beside optimizers")
    init = KEYS.schemas("beside initializers")
    return {
        "$schema": DIALECT,
        "title": "mmcv 1.x config",
        "type": "object",
        "properties": {key: {"description": text} for key, (_, text) in known.items()},
        "if": {"required": ["_base_"]},
        "then": {"description": "builds on other files, so anything may be left out"},
        "else": {"properties": {key: schema for key, (schema, _) in known.items()}},
        "$defs": {
            "HOOKS": _component({**listing.HOOKS, **own.table("HOOKS")}, beside=KEYS.schemas("beside hooks"), own=own),
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
