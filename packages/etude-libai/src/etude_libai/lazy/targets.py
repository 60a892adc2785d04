"""Finds the object of a ``_target_``, and the shortest name of an object."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from etude.errors.own_code import is_own
from etude.fast_dataclass import is_dataclass

#: Packages that Étude provides if the original is not installed.
SERVED = ("libai", "detectron2", "fvcore", "oneflow", "hydra", "iopath", "yacs")


def locate(name: str) -> Any:
    """Return the object called ``name``: a module, nested class, static method or builtin."""
    if name.split(".")[0] in SERVED:
        from etude.dialects import imports

        imports.install()
    # As detectron2 does: pydoc first, then Hydra's walk for what pydoc misses (torch.optim.sgd.SGD).
    import pydoc  # slow to import, and not needed for a check

    try:
        found = pydoc.locate(name)
    except pydoc.ErrorDuringImport:  # the walk raises it again and names the part
        found = None
    return found if found is not None else _walk(name)


def _walk(name: str) -> Any:
    """Find the object part by part, so that the error can name the part that is missing."""
    parts = name.split(".")
    if not all(parts):
        if name == "":
            return builtins
        raise ValueError(f"Error loading '{name}': invalid dotstring.\nRelative imports are not supported.")
    try:
        found: Any = importlib.import_module(parts[0])
    except Exception as error:
        raise ImportError(
            f"Error loading '{name}':\n{error!r}\nAre you sure that module '{parts[0]}' is installed?"
        ) from error
    for index in range(1, len(parts)):
        found = _step(found, parts, index, name)
    return found


def _step(found: Any, parts: list[str], index: int, name: str) -> Any:
    part, above = parts[index], ".".join(parts[:index])
    try:
        return getattr(found, part)
    except AttributeError as missing:
        if type(found).__name__ not in ("module", "Served"):
            raise ImportError(
                f"Error loading '{name}':\n{missing!r}\nAre you sure that '{part}' is an attribute of '{above}'?"
            ) from missing
        try:
            return importlib.import_module(f"{above}.{part}")
        except Exception as error:
            raise ImportError(
                f"Error loading '{name}':\n{error!r}\nAre you sure that '{part}' is importable from module '{above}'?"
            ) from error


def name_of(target: Any) -> str:
    """Return ``module.qualname`` with the shortest package in which the same object is found.

    Étude's replacements have the name of the original, so that a saved config also works there.
    """
    module, qualname = target.__module__, target.__qualname__
    served = _served_names().get(f"{module}:{qualname}")
    if served is not None:
        return served
    parts = module.split(".")
    for length in range(1, len(parts)):
        candidate = f"{'.'.join(parts[:length])}.{qualname}"
        try:
            if locate(candidate) is target:
                return candidate
        except (ImportError, ValueError):
            continue
    return f"{module}.{qualname}"


def target_name(target: Any) -> str:
    """Return the dotted name of a ``_target_``, which is a name, a callable or another lazy call."""
    if isinstance(target, str):
        return target
    if isinstance(target, Mapping):
        return target_name(target.get("_target_", ""))
    try:
        return name_of(target)
    except (AttributeError, TypeError):
        return getattr(target, "__qualname__", str(target))


def with_target_names(plain: Any) -> Any:
    """Return plain containers with targets by name; those that a config defines itself have no name."""
    if isinstance(plain, list):
        items = [with_target_names(item) for item in plain]
        return items if any(new is not old for new, old in zip(items, plain, strict=True)) else plain
    if not isinstance(plain, dict):
        return plain
    named = {key: with_target_names(value) for key, value in plain.items()}
    target = named.get("_target_")
    if callable(target) and getattr(target, "__module__", None):
        named["_target_"] = name_of(target)
    return named if any(named[key] is not plain[key] for key in plain) else plain


def is_served(target: Any, names: Sequence[str]) -> bool:
    """Return whether a target is one of these ``names`` of LiBai or detectron2, and not of another package."""
    module, _, name = target_name(target).rpartition(".")
    return name in names and (is_own(module) or module.split(".")[0] in ("libai", "detectron2"))


@cache
def _served_names() -> dict[str, str]:
    from etude_libai.names import MODULES

    names: dict[str, str] = {}
    for module, table in MODULES.items():
        for attribute, target in table.items():
            if target.startswith("torch"):  # keeps its own name
                continue
            dotted = f"{module}.{attribute}"
            known = names.get(target)
            if known is None or dotted.count(".") < known.count("."):
                names[target] = dotted
    return names


def dump_dataclass(obj: Any) -> dict[str, Any]:
    """Return a dataclass instance as a nested ``_target_`` mapping that instantiates to an equal one."""
    if not is_dataclass(obj) or isinstance(obj, type):
        raise TypeError("dump_dataclass() requires an instance of a dataclass.")
    from dataclasses import fields

    made: dict[str, Any] = {"_target_": name_of(type(obj))}
    for field in fields(obj):
        made[field.name] = _dump(getattr(obj, field.name))
    return made


def _dump(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return dump_dataclass(value)
    if isinstance(value, list | tuple):
        return [_dump(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _dump(item) for key, item in value.items()}
    return value
