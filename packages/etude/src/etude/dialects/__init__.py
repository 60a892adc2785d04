"""Finds the dialect (config language) of a file. :mod:`etude.dialects.base` has the contract of dialects.

Étude's own language is the dialect ``native``. Others come from packages that name their class in the entry point group
``etude.dialects``: Étude's guests (``etude-openmm``, ``etude-libai``, ``etude-mcquic``) and anybody else's.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from etude.config.files import display, read_text
from etude.config.tree import Tree
from etude.dialects import guests
from etude.dialects.base import Dialect
from etude.errors import ConfigError, UserError
from etude.errors.own_code import add_package
from etude.errors.spelling import suggest
from etude.inspection.entry_points import entry_points
from etude.plan import Plan

GROUP = "etude.dialects"
#: Always there, also where Étude runs from a folder that is not installed.
_NATIVE = {"native": "etude.dialects.native.dialect:Native"}


def find(name: str) -> Dialect:
    """Return the dialect of that name."""
    if name not in _points():
        raise guests.missing(name) or UserError(f"no dialect is called {name!r}; {suggest(name, names())}")
    return _load(name)


def of(plan: Plan | None) -> Dialect:
    """Return the dialect of a plan; a run without one is native."""
    return find("native" if plan is None else plan.dialect)


def names() -> list[str]:
    """Return the names of all dialects, in the order in which they are asked to recognise a file."""
    return [dialect.name for dialect in known()]


@cache
def known() -> tuple[Dialect, ...]:
    """Return all dialects, in the order in which they are asked to recognise a file."""
    return tuple(sorted(map(_load, _points()), key=lambda dialect: (dialect.asked, dialect.name)))


def detect(path: str, dialect: str = "") -> Dialect:
    """Return the dialect of ``path``, or the one called ``dialect`` if given."""
    if dialect:
        return find(dialect)
    text = read_text(path)
    _refuse_script(path, text)
    if _is_plainly_native(path, text):
        return find("native")
    *others, last = known()
    found = next((one for one in others if one.recognise(path, text)), None)
    if found is None:
        guests.refuse_missing(path, text, set(_points()))
    return found or last


def read(
    path: str, overrides: Sequence[str] = (), *, dialect: str = "", options: Mapping[str, Any] | None = None
) -> tuple[Dialect, Tree]:
    """Return the dialect of ``path``, and its config with overrides applied."""
    found = detect(path, dialect)
    return found, found.read(path, overrides, options=options or {})


def listed(name: str) -> Dialect:
    """Return the dialect of that name, for listing; a project checked out in the current folder is included."""
    from etude.dialects.ownership import enter_checkout

    enter_checkout()
    return find(name)


def _refuse_script(path: str, text: str) -> None:
    """Raise for a script: read as a config, it would run, or fail on a name that it rightly calls."""
    if not path.endswith(".py"):
        return
    from etude.config.files import script_line

    if line := script_line(text):
        hint = f"run it by `etude exec {display(path)}`"
        raise ConfigError("this is a script, not a config", at=f"{display(path)}:{line}", hint=hint)


def _is_plainly_native(path: str, text: str) -> bool:
    """Return whether a data file has the section ``optim`` and nothing of other systems.

    Other dialects are not imported for it then, which makes the command start faster.
    """
    if not path.endswith((".yaml", ".yml", ".json", ".toml")) or "_base_" in text or "_target_" in text:
        return False
    return re.search(r"""^(optim\s*:|\s*"optim"\s*:|\[optim[.\]])""", text, re.MULTILINE) is not None


def _points() -> dict[str, str]:
    return entry_points(GROUP) | _NATIVE


@cache
def _load(name: str) -> Dialect:
    module, _, attribute = _points()[name].partition(":")
    try:
        made: Dialect = getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        where = f"{module}:{attribute}"
        raise UserError(f"the dialect {name!r} ({where}) cannot be loaded: {type(error).__name__}: {error}") from error
    add_package(module.partition(".")[0])
    return made
