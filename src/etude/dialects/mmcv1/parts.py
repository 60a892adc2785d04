"""Parts of models and data sets that nobody registers. Without ``custom_imports`` a script may bring them, so then
only those are reported that are known not to be served."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from etude.config.tree import Path
from etude.dialects import ownership
from etude.dialects.mmcv1.listing import registries
from etude.dialects.mmcv1.names import OUT_OF_SCOPE
from etude.dialects.mmcv1.projects import PROJECTS, installed
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.source_coverage import reads_all
from etude.errors import nearest, suggest

_HOMES = ("mmcls.models.", "mmcls.datasets.", "mmcv.cnn.", "mmtrack.datasets.")
_SLOTS: dict[Path, str] = {
    ("backbone",): "BACKBONES", ("neck",): "NECKS", ("head",): "HEADS", ("head", "loss"): "LOSSES",
}  # fmt: skip
_MODELS = ("MODELS", "CLASSIFIERS", "BACKBONES", "HEADS")
#: The last releases for mmcv 1.x.
_RELEASES = {"mmcls": "mmcls==0.25.0", "mmdet": "mmdet==2.28.2", "mmtrack": "mmtrack==0.14.0"}
#: Name of a part that MMClassification has and Étude has not → why.
_NOT_SERVED = {key.rpartition(".")[2]: why for key, why in OUT_OF_SCOPE.items() if key.startswith(_HOMES)}


def report_unknown_parts(low: Lowering, known: Collection[str]) -> None:
    """Add to the findings of ``low`` what no registry will have when the model and the data are built."""
    if _bare(low.tree.get("model", "type")) == "ImageClassifier" and low.tree.get("model", "train_cfg", "augments"):
        hint = "mix images in the collate function of the data, or in forward_train of a classifier of your own"
        low.error(low.place("model", "train_cfg", "augments"), "model.train_cfg.augments is not served", hint)
    if not reads_all(low):
        return
    found = {*known, *(name for _, name in low.registered)}
    for path, value in low.tree.walk():
        name = _bare(value.get("type")) if isinstance(value, Mapping) and path[0] in ("model", "data") else ""
        if name and name not in found and not low.has_error((*path, "type")) and not low.has_error(path):
            remedy = _remedy(low, path, name)
            if remedy:
                low.error(low.place(*path, "type"), f"no {_kind(path)} is called {name!r}", remedy)


def report_other_project(low: Lowering, known: Collection[str]) -> None:
    """Say so once, in place of each part, where projects are installed and the config's model is of none of them."""
    kind, there = low.tree.get("model", "type"), installed()
    if not there or not isinstance(kind, str) or kind in {*known, *(name for _, name in low.registered)}:
        return
    missing = [finding for finding in low.findings if " is called " in finding.message]
    if any(finding.severity == "error" for finding in missing):
        low.findings[:] = [finding for finding in low.findings if finding not in missing]
        titles = " and ".join(f"{one.title} {ownership.version(one.package)}" for one in there)
        rest = [f"{one.title}: pip install --no-deps {_RELEASES[one.package]}" for one in PROJECTS if one not in there]
        hint = "; ".join(
            ("install the project that the config is for", *rest, "or name your own module in custom_imports")
        )
        low.error(low.place("model", "type"), f"{titles} has no model {kind!r}", hint)


def _remedy(low: Lowering, path: Path, name: str) -> str:
    """Suggest what to do about a name that nobody registers; empty where a script may bring it."""
    if name in _NOT_SERVED:
        return f"Étude does not bring it: {_NOT_SERVED[name]}"
    alike = _registered(low, path)
    if alike:
        near = nearest(name, [*alike, *_served(_MODELS if path == ("model",) else ())])
        return f"did you mean {near!r}?" if near else f"{', '.join(low.modules)} registers {', '.join(alike)}"
    table = _slot(low, path) if low.modules else ""
    own = [entry for kind, entry in low.registered if kind == table]
    return suggest(name, sorted({*_served((table,)), *own})) if table else ""


def _slot(low: Lowering, path: Path) -> str:
    """The registry of a part that a class of Étude's own will build; empty where a user-defined class may do so."""
    table = _SLOTS.get(path[1:], "") if path[0] == "model" else ""
    owners = [low.tree.get(*path[:length], "type") for length in range(1, len(path))]
    served = _served(("CLASSIFIERS", "HEADS"))
    return table if all(_bare(owner) in served for owner in owners) else ""


def _served(tables: Collection[str]) -> list[str]:
    known = registries()
    return [name for table in tables for name in known.get(table, ())]


def _registered(low: Lowering, path: Path) -> list[str]:
    """Return what the config's own modules register of the kind that belongs to ``path``: one who brings some brings
    all.
    """
    tables = _MODELS if path == ("model",) else ("DATASETS",) if path[0] == "data" and len(path) == 2 else ()
    homes = {source.module for source in low.sources()} if low.modules and tables else set()
    found = {name for (table, name), to in low.registered.items() if table in tables and to.partition(":")[0] in homes}
    return sorted(found)


def _bare(name: Any) -> str:
    """A name of a registry; empty for classes and dotted paths, which are found elsewhere."""
    return name.removeprefix("mmcls.").removeprefix("mmtrack.") if isinstance(name, str) and _is_name(name) else ""


def _is_name(name: str) -> bool:
    scope, dot, rest = name.partition(".")
    return not dot or (scope in ("mmcls", "mmtrack") and "." not in rest)


def _kind(path: Path) -> str:
    if path == ("model",):
        return "model"
    if "pipeline" in path:
        return "transform"
    return "dataset" if path[0] == "data" else f"part for {'.'.join(map(str, path))}"
