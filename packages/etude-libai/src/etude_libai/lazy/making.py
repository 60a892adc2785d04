"""Reports errors while a lazy call is instantiated, with its line in the config."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, dotted
from etude.errors import ConfigError, EtudeError, UserCodeError
from etude_libai.checks.calls import arguments_of
from etude_libai.lazy.reading.errors import near, put_on, raised_by_users, says
from etude_libai.places import ORIGINS

_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")


def explain_build_error(arriving: Exception, error: Exception, cfg: Any, target: Any, label: str) -> None:
    """Attach to ``arriving`` the error to report: one of user code, or of arguments that ``target`` refuses."""
    if hasattr(error, "etude_reported"):
        return
    way = way_in(cfg)
    if isinstance(error, EtudeError):
        if isinstance(error, ConfigError) and way and not any(finding.at for finding in error.findings):
            at = str(ORIGINS.place(way))
            put_on(arriving, ConfigError([replace(finding, at=at) for finding in error.findings]))
        return
    place = str(ORIGINS.place(_argument_in(way, cfg, str(error))))
    if raised_by_users(error):
        raised = UserCodeError(f"{place}: {_path_prefix(way)}{label} raised {says(error)}".removeprefix(": "))
        put_on(arriving, raised)
        raised.__cause__ = error  # so that its traceback is shown
        return
    put_on(
        arriving,
        ConfigError(
            f"{_path_prefix(way)}{label} cannot be made: {says(error)}", at=place, hint=_hint(error, target, label)
        ),
    )


def explain_lookup_error(arriving: Exception, error: Exception, cfg: Any, target: str) -> None:
    """Attach to ``arriving`` the error to report if the target of ``cfg`` cannot be found."""
    way = way_in(cfg)
    module, _, attribute = target.rpartition(".")
    loaded = sys.modules.get(module)
    hint = near(attribute, dir(loaded)) if loaded is not None else ""
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    said = f"there is no {target}" if loaded is not None else says(root) if isinstance(root, Exception) else str(root)
    put_on(arriving, ConfigError(f"{_path_prefix(way)}{said}", at=str(ORIGINS.place((*way, "_target_"))), hint=hint))


def way_in(cfg: Any) -> Path:
    """Return the path of a node in its config; empty if it has no parent."""
    key_in_parent = getattr(cfg, "_key", None)
    key = key_in_parent() if key_in_parent is not None else None
    return (*way_in(cfg._get_parent()), key) if key is not None else ()


def _path_prefix(way: Path) -> str:
    return f"{dotted(way)}: " if way else ""


def _argument_in(way: Path, cfg: Any, message: str) -> Path:
    """Return the path of the only argument whose key or value is in the message; else that of the call."""
    items = getattr(cfg, "items_ex", None)
    plain = {key: value for key, value in items(resolve=False) if key != "_target_"} if items and way else {}
    words = set(re.findall(r"[\w.+-]+", message))
    by_name = [key for key in plain if str(key) in words]
    by_value = [key for key, value in plain.items() if isinstance(value, str | int | float) and str(value) in words]
    found = by_name if len(by_name) == 1 else by_value
    return (*way, found[0]) if len(found) == 1 else way


def _hint(error: Exception, target: Any, label: str) -> str:
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        return ""
    try:
        return near(unknown[1], arguments_of(label)[0] or inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return ""
