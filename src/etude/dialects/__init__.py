"""Foreign config languages, and which of them a file speaks.

Each dialect is a folder: ``lower.py`` (``recognise``, ``read``, ``lower``; no torch), ``live/`` (what their users' code
touches while running), ``files.py`` (their checkpoint layout), ``names.py`` (which import names they answer to).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from etude.config.files import read_text
from etude.config.tree import Tree
from etude.errors import ConfigError, Finding, UserError, suggest
from etude.plan import Plan

#: In the order they are asked whether a file is theirs; the native form takes what is left.
DIALECTS = ("mcquic", "libai", "mmengine", "mmcv1", "native")


def detect(path: str, dialect: str = "") -> str:
    """The dialect that ``path`` is written in; ``dialect`` overrules the guess."""
    if dialect:
        if dialect not in DIALECTS:
            raise UserError(f"no dialect is called {dialect!r}; {suggest(dialect, DIALECTS)}")
        return dialect
    text = read_text(path)
    if _is_plainly_native(path, text):
        return "native"
    return next(name for name in DIALECTS if (module := _lowering(name)) and module.recognise(path, text))


def _is_plainly_native(path: str, text: str) -> bool:
    """A data file with the section ``optim`` and nothing that other systems write beside it. The others are then not
    even asked, which keeps the start of the command quick."""
    if not path.endswith((".yaml", ".yml", ".json", ".toml")) or "_base_" in text or "_target_" in text:
        return False
    return re.search(r"""^(optim\s*:|\s*"optim"\s*:|\[optim[.\]])""", text, re.MULTILINE) is not None


def read(
    path: str, overrides: Sequence[str] = (), *, dialect: str = "", options: Mapping[str, Any] | None = None
) -> tuple[str, Tree]:
    """The dialect of ``path`` and what it says, with overrides applied."""
    name = detect(path, dialect)
    return name, _lowering(name).read(path, overrides, options=options or {})


def lower(name: str, tree: Tree) -> Plan:
    """What the tree, in dialect ``name``, says will run."""
    plan: Plan = _lowering(name).lower(tree)
    return plan if plan.builder == "native" else replace(plan, places=tree.places)


def survey(name: str, tree: Tree) -> tuple[Plan | None, list[Finding]]:
    """The plan together with everything that is wrong with the tree, for ``etude check``; None where a dialect cannot
    go on after a mistake."""
    module = _lowering(name)
    if hasattr(module, "survey"):
        plan, findings = module.survey(tree)
        return plan, list(findings)
    try:
        return module.lower(tree), []
    except ConfigError as error:
        return None, list(error.findings)


def listing(name: str) -> dict[str, dict[str, str]]:
    """What a config of dialect ``name`` can name: table → name → a line about it."""
    if name not in DIALECTS:
        raise UserError(f"no dialect is called {name!r}; {suggest(name, DIALECTS)}")
    tables: dict[str, dict[str, str]] = importlib.import_module(f"etude.dialects.{name}.listing").tables()
    return tables


def _lowering(name: str) -> Any:
    try:
        return importlib.import_module(f"etude.dialects.{name}.lower")
    except ModuleNotFoundError as error:
        if error.name not in (f"etude.dialects.{name}", f"etude.dialects.{name}.lower"):
            raise
        return None
