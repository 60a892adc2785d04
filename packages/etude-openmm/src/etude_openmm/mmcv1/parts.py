"""Finds parts of models and datasets that nothing registers.

Without ``custom_imports`` a script may register them; then only parts are reported that Étude is known not to have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from etude.config.tree import Path
from etude.dialects import ownership
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude_openmm.mmcv1.names import OUT_OF_SCOPE
from etude_openmm.mmcv1.projects import KNOWN, Project, installed
from etude_openmm.shared.checks.lowering import NOT_ARGUMENTS, Lowering, beside_arguments
from etude_openmm.shared.checks.project_sources import registered, scoped
from etude_openmm.shared.checks.source_coverage import reads_all

_HOMES = ("mmcls.models.", "mmcls.datasets.", "mmcv.cnn.", "mmtrack.datasets.")
_MODELS = ("MODELS", "CLASSIFIERS", "BACKBONES", "HEADS")
#: The beginnings of messages about unknown names of mmcv itself.
_ENGINE = ("no policy ", "no hook ", "no priority ", "no optimizer ", "no runner ")
#: The last releases for mmcv 1.x.
_RELEASES = {"mmcls": "mmcls==0.25.0", "mmdet": "mmdet==2.28.2", "mmtrack": "mmtrack==0.14.0"}
#: Name of a part that MMClassification has and Étude has not → why. A user's model may mean torch's cross entropy.
_NOT_SERVED = {key.rpartition(".")[2]: why for key, why in OUT_OF_SCOPE.items() if key.startswith(_HOMES)}
_NOT_SERVED.pop("CrossEntropyLoss")


def report_unknown_parts(low: Lowering, known: Collection[str]) -> None:
    """Add an error to ``low`` for every part that no registry will have when model and data are built."""
    found = {"", *known, *(name for _, name in low.registered)}
    typed = [(path, value) for path, value in low.tree.walk() if isinstance(value, Mapping)]
    parts = [(path, _registry_name(value.get("type"))) for path, value in typed if path[0] in ("model", "data")]
    unknown = [(path, name) for path, name in parts if name not in found]
    if not unknown or not reads_all(low):
        return
    for path, name in unknown:
        if not low.has_error((*path, "type")) and not low.has_error(path):
            remedy = _remedy(low, path, name)
            if remedy:
                low.error(low.place(*path, "type"), f"no {_kind_at(path)} is called {name!r}", remedy)


def report_other_project(low: Lowering, known: Collection[str]) -> None:
    """Report once, instead of for each part, that the config's model belongs to a project that is not installed."""
    kind, there = low.tree.get("model", "type"), installed()
    if not isinstance(kind, str) or kind in {*known, *(name for _, name in low.registered)}:
        return
    if not there and low.modules:
        return  # the model is user-defined: its parts are reported one by one
    missing = [finding for finding in low.findings if " is called " in finding.message and not _is_slip(finding)]
    if any(finding.severity == "error" for finding in missing):
        low.findings[:] = [finding for finding in low.findings if finding not in missing]
        names = {name for one in there for _, name in registered(one.package)}
        if meant := next((name for name in sorted(names) if name.lower() == kind.lower() or is_slip(name, kind)), ""):
            low.error(low.place("model", "type"), f"no model is called {kind!r}", f"did you mean {meant!r}?")
            return
        titles = " and ".join(f"{one.title} {ownership.version(one.package)}" for one in there) or "Étude itself"
        lacking = [Project(package) for package in KNOWN if Project(package) not in there]
        rest = [f"{one.title}: pip install --no-deps {_RELEASES[one.package]}" for one in lacking]
        hint = "; ".join(
            ("install the project that the config is for", *rest, "or name your own module in custom_imports")
        )
        low.error(low.place("model", "type"), f"{titles} has no model {kind!r}", hint)


def _is_slip(finding: Finding) -> bool:
    """Return whether a finding is about a name of mmcv itself that is misspelt by a letter."""
    words = re.findall(r"'(\w+)'", f"{finding.message} {finding.hint}")
    return finding.message.startswith(_ENGINE) and len(words) == 2 and is_slip(*words)


def _remedy(low: Lowering, path: Path, name: str) -> str:
    """Return a hint about a name that nothing registers; empty if a script may register it."""
    if name in _NOT_SERVED:
        return f"Étude does not bring it: {_NOT_SERVED[name]}"
    alike = _registered(low, path)
    near = nearest(name, alike)
    if near:
        return f"did you mean {near!r}?"
    return f"{', '.join(low.modules)} registers {', '.join(alike)}" if alike else ""


def _registered(low: Lowering, path: Path) -> list[str]:
    """Return what the config's modules register for ``path``. If they register some, they are expected to have all."""
    tables = _MODELS if path == ("model",) else ("DATASETS",) if path[0] == "data" and len(path) == 2 else ()
    homes = {source.module for source in low.sources()} if low.modules and tables else set()
    found = {name for (table, name), to in low.registered.items() if table in tables and to.partition(":")[0] in homes}
    return sorted(found)


def _registry_name(name: Any) -> str:
    """Return the name in a registry; empty for classes and dotted paths, which no registry holds."""
    return name.removeprefix("mmcls.").removeprefix("mmtrack.") if isinstance(name, str) and _is_name(name) else ""


def _is_name(name: str) -> bool:
    scope, dot, rest = name.partition(".")
    return not dot or (scope in ("mmcls", "mmtrack") and "." not in rest)


def _kind_at(path: Path) -> str:
    if path == ("model",):
        return "model"
    if "pipeline" in path:
        return "transform"
    return "dataset" if path[0] == "data" else f"part for {'.'.join(map(str, path))}"


#: Keys whose dict is a part of a model that the project, or a user module, registers.
_PARTS = (
    "backbone", "neck", "head", "bbox_head", "mask_head", "rpn_head", "roi_head", "detector", "reid", "tracker",
    "motion", "track_head", "embed_head", "aggregator",
)  # fmt: skip
#: Registries that hold no part of a model. Projects have some of their own: ``ROTATED_PIPELINES``.
_OTHERS = ("DATASETS", "PIPELINES", "HOOKS", "OPTIMIZERS", "OPTIMIZER_BUILDERS", "RUNNERS", "SAMPLERS")
#: Dataset wrappers. Builders make them without the registry, and ignore unknown keys.
_WRAPPERS = (
    "ConcatDataset", "RepeatDataset", "ClassBalancedDataset", "KFoldDataset", "MultiImageMixDataset",
    "RandomSampleConcatDataset",
)  # fmt: skip
#: Names of layers (``ReLU6``, ``GELU``) are this short and one letter apart. Only an installed mmcv has them all, and
#: projects use such short names, too (``conv`` of MMDetection's FPG).
_SHORT = 6
#: Arguments that the project's builders add to those of the config.
_GIVEN = ("test_mode", "train_cfg", "test_cfg", "default_args")


def report_project_parts(low: Lowering, registered: Mapping[tuple[str, str], str], known: scan.Known) -> None:
    """Add errors to ``low`` for names that no registry will have, and for arguments that a class will refuse.

    ``registered`` is what the project and the modules of the config register: (table, name) → ``module:attr``.
    ``known`` has the signatures of the base classes that Étude provides.
    """
    disk = ownership.original("mmcv")  # not found by its import name, which is Étude's
    folders = (*low.folders, *([os.path.dirname(disk)] if disk else ()))
    read = partial(_arguments_of, folders, known)
    for path, value in low.tree.walk():
        kind = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(kind, str) or path[0] not in ("model", "data"):
            continue
        scope, dot, bare = kind.rpartition(".")
        if dot:
            if bare in (theirs := scoped(scope)):
                _report_arguments(low, path, value, theirs[bare], read, slips=True)
            continue
        if path[-1] in _OPS:
            ops = _ops(_OPS[path[-1]], folders)
            if kind in ops:
                _report_arguments(low, path, value, ops[kind], read, slips=True)
            elif any(is_slip(kind, name) for name in ops):
                _report_name(low, path, kind, ops)
            continue
        names = _known(registered, path)
        if names and kind not in names:
            _report_name(low, path, kind, names)
        elif kind in names:
            _report_arguments(low, path, value, names[kind], read, slips=_is_loss(path))
        elif not names:
            is_layer = disk is not None and str(path[-1]).endswith("_cfg")  # norm_cfg, act_cfg, conv_cfg
            _report_slips(low, path, value, registered, read, shortest=0 if is_layer else _SHORT + 1)
    _report_metrics(low, registered)


def _report_metrics(low: Lowering, registered: Mapping[tuple[str, str], str]) -> None:
    """Report a misspelt metric, which the dataset would refuse only at the end of the first epoch."""
    written = low.tree.get("evaluation", "metric")
    target = registered.get(("DATASETS", str(low.tree.get("data", "val", "type"))))
    if target is None:
        return
    known = sorted(scan.words_in(target, folders=low.folders))
    for metric in written if isinstance(written, list | tuple) else [written]:
        near = nearest(metric, known) if isinstance(metric, str) and metric not in known else None
        if near is not None and is_slip(metric, near):
            low.error(low.place("evaluation", "metric"), f"no metric is called {metric!r}", f"did you mean {near!r}?")


def _ops(module: str, folders: Sequence[str]) -> Mapping[str, str]:
    """Map name → ``module:attr`` for the ops in a module of mmcv."""
    source = scan.find_source(module, folders)
    return {name: f"{module}:{name}" for name in scan.names_in(source, folders)} if source else {}


class _Taken(NamedTuple):
    """The arguments of a class. ``open`` means that it takes ``**kwargs``, too."""

    keys: list[str]
    required: list[str]
    open: bool


#: Key whose ``type`` is not looked up in a registry → the module of mmcv that has it.
_OPS: dict[str | int, str] = {"nms": "mmcv.ops.nms", "roi_layer": "mmcv.ops"}
_Read = Callable[[str], _Taken | None]


def _arguments_of(folders: Sequence[str], known: scan.Known, target: str) -> _Taken | None:
    """Return the arguments of the class ``target``; None if its source does not show them.

    A class with ``**kwargs`` may read some keys of them and ignore others, as mmcv's transformer layers do.
    """
    signature = scan.signature(target, folders=folders, known=known)
    if signature is None:
        return None
    parameters = [parameter for parameter in signature.parameters if parameter.word]
    looked_up = scan.words_in(target, folders=tuple(folders)) if signature.open else ()
    required = [parameter.key for parameter in parameters if parameter.required]
    return _Taken([*(parameter.key for parameter in parameters), *sorted(looked_up)], required, signature.open)


def _report_slips(
    low: Lowering,
    path: Path,
    value: Mapping[Any, Any],
    registered: Mapping[tuple[str, str], str],
    read: _Read,
    *,
    shortest: int,
) -> None:
    """Report a misspelt name or argument of parts that builders do not read: augments, policies, assigners."""
    kind = value["type"]
    of_data = path[0] == "data"
    names = {
        name: to for (table, name), to in registered.items() if of_data == table.endswith(("PIPELINES", "DATASETS"))
    }
    if kind in names:
        _report_arguments(low, path, value, names[kind], read, slips=True)
    elif (of_data or len(kind) >= shortest) and any(is_slip(kind, name) for name in names):
        _report_name(low, path, kind, names)


def _known(registered: Mapping[tuple[str, str], str], path: Path) -> Mapping[str, str]:
    """Return the names that are allowed at ``path``; empty if they are not known."""
    if path[0] == "data":
        table = "PIPELINES" if _is_step(path) else "DATASETS" if _is_dataset(path) else ""
        return {name: target for (where, name), target in registered.items() if table and where.endswith(table)}
    if path == ("model",) or path[-1] in _PARTS or _is_loss(path):
        return {name: target for (where, name), target in registered.items() if not where.endswith(_OTHERS)}
    return {}


def _is_step(path: Path) -> bool:
    return isinstance(path[-1], int) and len(path) > 2 and path[-2] == "pipeline"


def _is_loss(path: Path) -> bool:
    """Return whether the key is ``loss``, ``loss_cls``, ``loss_pairwise`` …"""
    return isinstance(path[-1], str) and path[-1].partition("_")[0] == "loss"


def _is_dataset(path: Path) -> bool:
    return len(path) == 2 and path[1] in ("train", "val", "test")


def _report_name(low: Lowering, path: Path, kind: str, names: Mapping[str, str]) -> None:
    if low.has_error((*path, "type")) or low.has_error(path) or low.has_unread_modules:
        return
    word = "transform" if "pipeline" in path else "dataset" if path[0] == "data" else "model"
    if word == "model" and path != ("model",):
        keys = [key for key in path if isinstance(key, str)]
        plain = re.sub("_cfg$", "_layer", keys[-1])  # norm_cfg, act_cfg, conv_cfg
        word = "loss" if _is_loss(path) else plain.replace("_", " ").removesuffix("s")
    low.error(low.place(*path, "type"), f"no {word} is called {kind!r}", suggest(kind, sorted(names)))


def _report_arguments(
    low: Lowering, path: Path, value: Mapping[Any, Any], target: str, read: _Read, *, slips: bool = False
) -> None:
    """Report arguments that the class does not take; with ``slips``, only those that are close to one it takes.

    One that ``**kwargs`` may take is only a warning: STARK's configs write ``num_querys``, and train.
    """
    taken = read(target)
    if taken is None:
        return
    known = [*taken.keys, *beside_arguments(path)]
    for key in value:
        if key in (*known, *NOT_ARGUMENTS, *_GIVEN) or not isinstance(key, str) or low.has_error((*path, key)):
            continue
        near = nearest(key, known)
        if (slips or taken.open) and (near is None or not is_slip(key, near)):
            continue
        hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(known)}"
        is_lost = near in taken.required and near not in value
        tell = low.warning if value["type"] in _WRAPPERS or (taken.open and not is_lost) else low.error
        tell(low.place(*path, key), f"{value['type']} has no parameter {key!r}", hint)
