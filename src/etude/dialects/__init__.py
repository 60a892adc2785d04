"""Finds the dialect (config language) of a file. :mod:`etude.dialects.base` has the protocol of dialects.

Each dialect is a folder: ``dialect.py`` (the protocol), ``lower.py`` (config → plan, without torch), ``live/`` (what
its users' code uses while running), ``files.py`` (checkpoint layout), ``names.py`` (its import names).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from etude.config.files import display, read_text
from etude.config.tree import Tree
from etude.dialects.base import Dialect
from etude.errors import ConfigError, UserError
from etude.errors.spelling import suggest
from etude.plan import Plan

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "etude.dialects"
#: The entry points of Étude's own distribution, in the order in which they are asked to recognise a file. They are
#: here, too, so that no package metadata is read: that takes longer than recognising a file, and may be out of date.
BUILT_IN = {
    "mcquic": "etude.dialects.mcquic.dialect:McQuic",
    "libai": "etude.dialects.libai.dialect:LiBai",
    "mmengine": "etude.dialects.mmengine.dialect:MMEngine",
    "mmcv1": "etude.dialects.mmcv1.dialect:Mmcv1",
    "native": "etude.dialects.native.dialect:Native",
}


def find(name: str) -> Dialect:
    """Return the dialect of that name."""
    found = _load(name) if name in BUILT_IN else None
    if found is None and name in _installed():
        found = _load_installed(name)
    if found is None:
        raise UserError(f"no dialect is called {name!r}; {suggest(name, names())}")
    return found


def of(plan: Plan | None) -> Dialect:
    """Return the dialect of a plan; a run without one is native."""
    return find("native" if plan is None else plan.dialect)


def names() -> list[str]:
    """Return the names of all dialects: those that come with Étude, then installed ones."""
    return [*(name for name in BUILT_IN if _load(name) is not None), *_installed()]


def built_in() -> list[Dialect]:
    """Return the dialects that come with Étude and are there."""
    return [found for name in BUILT_IN if (found := _load(name)) is not None]


def detect(path: str, dialect: str = "") -> Dialect:
    """Return the dialect of ``path``, or the one called ``dialect`` if given."""
    if dialect:
        return find(dialect)
    text = read_text(path)
    _refuse_script(path, text)
    if _is_plainly_native(path, text):
        return find("native")
    *others, last = BUILT_IN
    for found in filter(None, map(_load, others)):
        if found.recognise(path, text):
            return found
    return next((one for one in map(_load_installed, _installed()) if one.recognise(path, text)), None) or find(last)


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


@cache
def _load(name: str) -> Dialect | None:
    """Return one of Étude's dialects, or None if its folder is missing."""
    module, _, attribute = BUILT_IN[name].partition(":")
    try:
        made: Dialect = getattr(importlib.import_module(module), attribute)()
    except ModuleNotFoundError as error:
        if error.name not in (module, module.rpartition(".")[0]):
            raise
        return None
    return made


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the dialects of other distributions."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


@cache
def _load_installed(name: str) -> Dialect:
    try:
        made: Dialect = _installed()[name].load()()
    except Exception as error:
        where = _installed()[name].value
        raise UserError(f"the dialect {name!r} ({where}) cannot be loaded: {type(error).__name__}: {error}") from error
    return made
