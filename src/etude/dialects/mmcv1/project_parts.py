"""Checks the models and data of a config against the sources of the installed project that it is for. No torch.

Only what the sources show is reported: a name where a class of the project has to stand, and arguments of classes whose
signature takes no others. Elsewhere, and in losses, other code may take what a class does not: only words that are one
slip away from a right one are reported there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path
from etude.dialects.openmm.checks.lowering import NOT_ARGUMENTS, Lowering
from etude.errors import is_slip, nearest, suggest
from etude.inspection import signatures as scan

#: Keys whose dict is a part of a model that the project, or a module of the user, registers.
_PARTS = (
    "backbone", "neck", "head", "bbox_head", "mask_head", "rpn_head", "roi_head", "detector", "reid", "tracker",
    "motion", "track_head", "embed_head", "aggregator",
)  # fmt: skip
#: Registries that hold no part of a model.
_OTHERS = ("DATASETS", "PIPELINES", "HOOKS", "OPTIMIZERS", "OPTIMIZER_BUILDERS", "RUNNERS", "SAMPLERS")
#: Data sets around others; builders make them by hand, and pass over keys that they do not know.
_WRAPPERS = (
    "ConcatDataset", "RepeatDataset", "ClassBalancedDataset", "KFoldDataset", "MultiImageMixDataset",
    "RandomSampleConcatDataset",
)  # fmt: skip
#: Names of layers (``ReLU6``, ``GELU``) are this short, and one letter apart.
_SHORT = 6
#: Arguments that the project's builders add to those of the config.
_GIVEN = ("test_mode", "train_cfg", "test_cfg", "default_args")


def report_project_parts(low: Lowering, registered: Mapping[tuple[str, str], str]) -> None:
    """Add to the findings of ``low`` what no registry will have, and arguments that a class will refuse.

    ``registered`` is what the project and the modules of the config register: (table, name) → ``module:attr``.
    """
    for path, value in low.tree.walk():
        kind = value.get("type") if isinstance(value, Mapping) else None
        if not isinstance(kind, str) or path[0] not in ("model", "data") or "." in kind:
            continue
        names = _known(registered, path)
        if names and kind not in names:
            _tell_name(low, path, kind, names)
        elif kind in names:
            _tell_arguments(low, path, value, names[kind], slips=_is_loss(path))
        elif not names:
            _tell_slips(low, path, value, registered)
    _report_metrics(low, registered)


def _report_metrics(low: Lowering, registered: Mapping[tuple[str, str], str]) -> None:
    """Report a misspelt metric: the dataset knows its metrics, and would refuse it at the end of the first epoch."""
    written = low.tree.get("evaluation", "metric")
    target = registered.get(("DATASETS", str(low.tree.get("data", "val", "type"))))
    if target is None:
        return
    known = sorted(scan.words_in(target, folders=low.folders))
    for metric in written if isinstance(written, list | tuple) else [written]:
        near = nearest(metric, known) if isinstance(metric, str) and metric not in known else None
        if near is not None and is_slip(metric, near):
            low.error(low.place("evaluation", "metric"), f"no metric is called {metric!r}", f"did you mean {near!r}?")


def _tell_slips(low: Lowering, path: Path, value: Mapping[Any, Any], registered: Mapping[tuple[str, str], str]) -> None:
    """Report a misspelt name or argument of what other code than a builder may read: augments, policies, assigners."""
    kind = value["type"]
    of_data = path[0] == "data"
    names = {name: to for (table, name), to in registered.items() if of_data == (table in ("PIPELINES", "DATASETS"))}
    if kind in names:
        _tell_arguments(low, path, value, names[kind], slips=True)
    elif len(kind) > _SHORT and any(is_slip(kind, name) for name in names):
        _tell_name(low, path, kind, names)


def _known(registered: Mapping[tuple[str, str], str], path: Path) -> Mapping[str, str]:
    """Return the names that may stand at ``path``; empty where that cannot be reported."""
    if path[0] == "data":
        table = "PIPELINES" if _is_step(path) else "DATASETS" if _is_dataset(path) else ""
        return {name: target for (where, name), target in registered.items() if where == table}
    if path == ("model",) or path[-1] in _PARTS or _is_loss(path):
        return {name: target for (where, name), target in registered.items() if where not in _OTHERS}
    return {}


def _is_step(path: Path) -> bool:
    return isinstance(path[-1], int) and len(path) > 2 and path[-2] == "pipeline"


def _is_loss(path: Path) -> bool:
    """``loss``, ``loss_cls``, ``loss_pairwise``, …"""
    return isinstance(path[-1], str) and path[-1].partition("_")[0] == "loss"


def _is_dataset(path: Path) -> bool:
    return len(path) == 2 and path[1] in ("train", "val", "test")


def _tell_name(low: Lowering, path: Path, kind: str, names: Mapping[str, str]) -> None:
    if low.has_error((*path, "type")) or low.has_error(path) or low.has_unread_modules:
        return
    word = "transform" if "pipeline" in path else "dataset" if path[0] == "data" else "model"
    if word == "model" and path != ("model",):
        keys = [key for key in path if isinstance(key, str)]
        word = "loss" if _is_loss(path) else keys[-1].replace("_", " ").removesuffix("s")
    low.error(low.place(*path, "type"), f"no {word} is called {kind!r}", suggest(kind, sorted(names)))


def _tell_arguments(low: Lowering, path: Path, value: Mapping[Any, Any], target: str, *, slips: bool = False) -> None:
    """Report arguments that the class does not take; with ``slips``, only those that are close to one it takes."""
    signature = scan.signature(target, folders=low.folders)
    if signature is None or signature.open:
        return
    taken = [parameter.key for parameter in signature.parameters if parameter.word]
    for key in value:
        if key in (*taken, *NOT_ARGUMENTS, *_GIVEN) or not isinstance(key, str) or low.has_error((*path, key)):
            continue
        near = nearest(key, taken)
        if slips and (near is None or not is_slip(key, near)):
            continue
        hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(taken)}"
        tell = low.warning if value["type"] in _WRAPPERS else low.error
        tell(low.place(*path, key), f"{value['type']} has no parameter {key!r}", hint)
