"""Finds everything that is wrong with a plan, at once, without building or importing anything.

``binding`` compares every component with the signature of what it names, ``contradictions`` compares the parts of the
plan with one another, and ``reality`` checks what only the data and the model show, right before the first step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from etude import registry
from etude.config.imports import find_imports, is_folder
from etude.errors import Finding
from etude.fast_dataclass import field_names, replace
from etude.inspection.check.binding import Binder
from etude.inspection.check.contradictions import contradictions, without_step
from etude.inspection.check.packages import missing_trackers
from etude.inspection.index import Index
from etude.inspection.paths import missing_data, wrong_columns
from etude.plan import Place, Plan, Spec

__all__ = ["bind_arguments", "check", "check_settings", "without_step"]


def check(plan: Plan) -> list[Finding]:
    """Return everything that is wrong: errors, and warnings about what runs but is probably not what you meant."""
    return bind_arguments(plan)[1]


def bind_arguments(plan: Plan) -> tuple[Plan, list[Finding]]:
    """Return the plan with every argument converted as its component declares it (``10.0`` becomes ``10`` for an
    int), and everything that is wrong."""
    registry.load_builtins()
    places = [_place_of_import(plan, number) for number in range(len(plan.imports))]
    imports, findings = find_imports(plan.imports, plan.files, places)
    near = list(dict.fromkeys(os.path.dirname(os.path.abspath(file)) for file in plan.files))
    named = [os.path.join(folder, entry) for folder in near for entry in plan.imports if is_folder(entry)]
    folders = [*near, *map(os.path.abspath, named)]
    binder = Binder(Index(imports, folders), complete=not findings)
    bound: Plan = _with_specs(plan, binder.bind)
    binder.check_groups(bound)
    ignored = list(without_step(bound)) if binder.steps_itself(bound) else []
    own = [*ignored, *check_settings(bound, unknown=binder.unknown), *missing_data(bound), *wrong_columns(bound)]
    return bound, [*findings, *binder.findings, *own]


def check_settings(plan: Plan, *, unknown: Collection[str] = ()) -> list[Finding]:
    """Return what is wrong with the settings of a plan, compared with one another. What a script passes to ``Trainer``
    goes through here too. ``unknown`` are kinds of components of which nothing can be said."""
    return [*contradictions(plan, unknown=unknown), *missing_trackers(plan)]


def _place_of_import(plan: Plan, number: int) -> Place:
    first = Place(plan.files[0] if plan.files else "")
    return plan.places.get(("imports", number), plan.places.get(("imports",), first))


def _with_specs(value: Any, change: Callable[[Spec], Spec]) -> Any:
    """Return ``value`` with every outermost spec changed; specs inside specs are left to ``change``."""
    if isinstance(value, Spec):
        return change(value)
    names = [name for name in field_names(value) if name not in ("source", "at", "places")]
    if names:
        return replace(value, **{name: _with_specs(getattr(value, name), change) for name in names})
    if isinstance(value, Mapping):
        return {key: _with_specs(item, change) for key, item in value.items()}
    return tuple(_with_specs(item, change) for item in value) if isinstance(value, tuple) else value
