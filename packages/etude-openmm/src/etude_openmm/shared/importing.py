"""Imports modules (``custom_imports``) and objects by name."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from types import ModuleType
from typing import Any

from etude.errors.advice import frames_of
from etude.errors.own_code import own_folders
from etude_openmm.shared.errors import ConfigImportError, ConfigTypeError


def import_modules_from_strings(imports: Any, allow_failed_imports: bool = False) -> Any:
    """Import one module (a string) or several (a list). A failure raises, or warns if failures are allowed."""
    if not imports:
        return None
    names = [imports] if isinstance(imports, str) else imports
    if not isinstance(names, list):
        raise ConfigTypeError(f"custom_imports must be a list but got type {type(imports)}")
    modules = [_imported(name, imports, allow_failed_imports) for name in names]
    return modules[0] if isinstance(imports, str) else modules


def _imported(name: Any, imports: Any, allow_failed: bool) -> ModuleType | None:
    if not isinstance(name, str):
        raise ConfigTypeError(f"{name} is of type {type(name)} and cannot be imported.")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if allow_failed:
            warnings.warn(f"{name} failed to import and is ignored.", UserWarning, stacklevel=3)
            return None
        raise ConfigImportError(f"Failed to import {name}: {_place(error)}{error}", hint=_hint(name, error)) from error


def _place(error: ImportError) -> str:
    """Return the line of the failing import inside a module; empty if the module itself is missing."""
    places = [(frame.f_code.co_filename, line) for frame, line in frames_of(error)]
    places = [(file, line) for file, line in places if not file.startswith(("<frozen", *own_folders()))]
    places = [(file, line) for file, line in places if os.path.basename(os.path.dirname(file)) != "importlib"]
    return f"{places[-1][0]}:{places[-1][1]}: " if places else ""


def _hint(name: str, error: ImportError) -> str:
    if not isinstance(error, ModuleNotFoundError) or not f"{name}.".startswith(f"{error.name}."):
        return ""
    if name.endswith(".py"):
        return f"give the module's name, {name[:-3].replace('/', '.')!r}, not its file"
    return "is it on the path (PYTHONPATH, or the folder of the script)?"


def get_object_from_string(obj_name: str) -> Any:
    """Return the object ``package.module.attribute``, or None. A function comes before a module of the same name."""
    parts = obj_name.split(".")
    if len(parts) < 2 or not all(parts):
        return None
    module_name, rest = parts[0], parts[1:]
    try:
        found: Any = importlib.import_module(module_name)
        while rest:
            following = getattr(found, rest[0], None)
            if following is not None and not isinstance(following, ModuleType):
                return functools.reduce(getattr, rest, found)
            module_name = f"{module_name}.{rest.pop(0)}"
            found = importlib.import_module(module_name)
    except (ImportError, AttributeError):
        return None
    return found
