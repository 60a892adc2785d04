"""The part of the engine that a dialect of another package may rely on: ``from etude.dialect_api import Dialect``.

These names stay, and keep their meaning, from one minor release to the next. Each is loaded on first use, so that
reading a config imports no torch. ``docs/architecture.md`` shows how to build a dialect from them, and
``etude.testing.conformance`` tests one.

.. code-block:: text

    the contract      Dialect  Hosted  Flag
    reading           Tree  Place  display  NameTables  signature
    mistakes          ConfigError  UserError  Finding  suggest
    plans             Plan  Spec  lower_native  Options  Draft
    running           Run  Hook  fit  epochs  train_step  evaluate  Record
    files             Layout  RecordFormat  record_points  BackgroundWriter  write_atomically
    import names      original  is_served
    own code          add_package  is_own
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

#: Name → the module it is in, and its name there.
_NAMES = {
    "Dialect": "etude.dialects.base:Dialect",
    "Hosted": "etude.dialects.base:Hosted",
    "Flag": "etude.dialects.base:Flag",
    "Tree": "etude.config.tree:Tree",
    "Place": "etude.plan:Place",
    "display": "etude.config.files:display",
    "NameTables": "etude.dialects.name_tables:NameTables",
    "signature": "etude.inspection.signatures:signature",
    "ConfigError": "etude.errors:ConfigError",
    "UserError": "etude.errors:UserError",
    "Finding": "etude.errors:Finding",
    "suggest": "etude.errors.spelling:suggest",
    "Plan": "etude.plan:Plan",
    "Spec": "etude.plan:Spec",
    "lower_native": "etude.dialects.native.lower:lower",
    "Options": "etude.building.options:Options",
    "Draft": "etude.dialects.draft:Draft",
    "Run": "etude.core.run:Run",
    "Hook": "etude.core.hook:Hook",
    "fit": "etude.core.loop:fit",
    "epochs": "etude.core.loop:epochs",
    "train_step": "etude.core.loop:train_step",
    "evaluate": "etude.core.loop:evaluate",
    "Record": "etude.dialects.rehearsal:Record",
    "Layout": "etude.checkpoint.formats.layouts:Layout",
    "RecordFormat": "etude.report.formats:RecordFormat",
    "record_points": "etude.report.formats:points",
    "BackgroundWriter": "etude.checkpoint.formats.background:BackgroundWriter",
    "write_atomically": "etude.checkpoint.storage.disk:write_atomically",
    "original": "etude.dialects.ownership:original",
    "is_served": "etude.dialects.imports:is_served",
    "add_package": "etude.errors.own_code:add_package",
    "is_own": "etude.errors.own_code:is_own",
}

__all__ = list(_NAMES)

if TYPE_CHECKING:
    from etude.building.options import Options as Options
    from etude.checkpoint.formats.layouts import Layout as Layout
    from etude.checkpoint.storage.disk import write_atomically as write_atomically
    from etude.config.files import display as display
    from etude.config.tree import Tree as Tree
    from etude.core.hook import Hook as Hook
    from etude.core.loop import epochs as epochs
    from etude.core.loop import evaluate as evaluate
    from etude.core.loop import fit as fit
    from etude.core.loop import train_step as train_step
    from etude.core.run import Run as Run
    from etude.dialects.base import Dialect as Dialect
    from etude.dialects.base import Flag as Flag
    from etude.dialects.base import Hosted as Hosted
    from etude.dialects.draft import Draft as Draft
    from etude.dialects.imports import is_served as is_served
    from etude.dialects.name_tables import NameTables as NameTables
    from etude.dialects.ownership import original as original
    from etude.dialects.rehearsal import Record as Record
    from etude.errors import ConfigError as ConfigError
    from etude.errors import Finding as Finding
    from etude.errors import UserError as UserError
    from etude.errors.own_code import add_package as add_package
    from etude.errors.own_code import is_own as is_own
    from etude.errors.spelling import suggest as suggest
    from etude.inspection.signatures import signature as signature
    from etude.plan import Place as Place
    from etude.plan import Plan as Plan
    from etude.plan import Spec as Spec
    from etude.report.formats import RecordFormat as RecordFormat


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _NAMES[name].partition(":")
    globals()[name] = found = getattr(importlib.import_module(module), attribute)
    return found
