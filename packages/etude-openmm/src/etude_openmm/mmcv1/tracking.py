"""Recognises configs of MMTracking, and checks keys that its train function treats differently."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etude.inspection.signatures import Source
from etude_openmm.mmcv1.projects import PARTS
from etude_openmm.shared.checks.lowering import Lowering


def is_tracking(values: Mapping[str, Any], imports: Iterable[Any]) -> bool:
    """Return whether a flag or an imported module of a config shows that MMTracking trains it."""
    return any(key in values for key in PARTS) or any(str(name).startswith("mmtrack.") for name in imports)


def tracks(low: Lowering) -> bool:
    """Return whether MMTracking trains a config, by its keys, imports, or the registry of its model."""
    if is_tracking(low.tree.values, low.imports):
        return True
    kind = str(low.tree.get("model", "type"))
    registries = [name for source in low.sources() for name in _registries_of(kind, low, source)]
    return any(name.startswith("mmtrack") for name in registries) and not any(n.startswith("mmcls") for n in registries)


def _registries_of(kind: str, low: Lowering, source: Source) -> Iterator[str]:
    """Yield the registries in which a file registers the model: those of the decorators, else all that it imports."""
    for target in {target for (_, name), target in low.registered.items() if name == kind}:
        module, _, attribute = target.partition(":")
        if module != source.module:
            continue
        made = source.names.get(attribute)
        used = made.decorator_list if isinstance(made, ast.ClassDef) else []
        names = {node.id for one in used for node in ast.walk(one) if isinstance(node, ast.Name)}
        yield from (str(full) for name, full in source.names.items() if name in names or not names)


def trains_a_part(values: Mapping[str, Any]) -> bool:
    """Return whether only a detector or a re-identification network is trained.

    MMDetection's function trains those and reads ``runner``, while MMTracking's reads ``total_epochs``.
    """
    return any(values.get(key) for key in PARTS)


def trained_model(values: Mapping[str, Any]) -> Any:
    """Return the config of the model, or of the part that a flag selects."""
    model = values["model"]
    for flag, part in PARTS.items():
        if values.get(flag) and isinstance(model, Mapping) and "type" not in model and part in model:
            return model[part]
    return model


def report_tracking(low: Lowering) -> None:
    """Report keys that MMTracking's train function ignores, and ``total_epochs`` if it is missing."""
    values = low.tree.values
    runner, length = values.get("runner"), values.get("total_epochs")
    if trains_a_part(values) or not tracks(low):
        return
    if length is None and not (isinstance(runner, Mapping) and runner.get("max_epochs")):
        low.error(low.place("runner"), "MMTracking's train function needs `total_epochs`", "write total_epochs = 12")
    if not isinstance(runner, Mapping):
        return
    if runner.get("type", "EpochBasedRunner") != "EpochBasedRunner":
        low.warning(low.place("runner"), "MMTracking's train function does not read runner: EpochBasedRunner trains")
    elif length is not None and runner.get("max_epochs") not in (None, length):
        low.warning(
            low.place("runner", "max_epochs"),
            f"MMTracking's train function does not read runner: total_epochs = {length} counts",
        )
