"""Resolves recorded uses: ``python resolve_names.py etude|originals MODULE… < uses.json`` prints use → what it lacks.

``MODULE…`` are imported first: what is imported first decides between two generations of ``mmcv``.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import json
import sys
import types
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

_NOTHING = object()


class Missing(Exception):
    """The part of a use that Étude does not have."""


def resolve(use: str) -> None:
    """Raise :class:`Missing` with the shortest part of ``use`` that cannot be had."""
    name, _, keyword = use.partition("(")
    owner, _, attribute = name.partition("#")
    found = _object(owner)
    if attribute and not inspect.isclass(found):
        return  # a function with the name of a class
    if attribute:
        if not _has(found, attribute, called=use.endswith("()")):
            raise Missing(name)
        found = inspect.getattr_static(found, attribute, None)
        found = getattr(found, "__func__", found)  # of a static or a class method
    if keyword != ")" and keyword and callable(found) and not _takes(found, keyword.rstrip(")")):
        raise Missing(use)


@cache
def _imported(module: str) -> types.ModuleType | str:
    try:
        return importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _object(name: str) -> Any:
    module, _, rest = name.partition(":")
    found: Any = _imported(module)
    if isinstance(found, str):
        raise Missing(f"{module}:", found)
    path = f"{module}:"
    for part in filter(None, rest.split(".")):
        if isinstance(found, Mapping):  # a part of a config
            return None
        path = path + part if path.endswith(":") else f"{path}.{part}"
        if inspect.isclass(found) and _has(found, part, called=False) and not hasattr(found, part):
            return None  # of its objects only
        try:
            found = getattr(found, part)
        except Exception as error:
            below = _imported(path.replace(":", ".")) if isinstance(found, types.ModuleType) else ""
            if isinstance(below, str):
                raise Missing(path, f"{type(error).__name__}: {error}") from None
            found = below
    return found


def _has(kind: type, attribute: str, *, called: bool) -> bool:
    if inspect.getattr_static(kind, attribute, _NOTHING) is not _NOTHING or attribute in _stored(kind):
        return True
    answers = getattr(kind, "__getattr__", None)
    return not called and answers is not None and not str(answers.__module__).startswith("torch.nn")


@cache
def _stored(kind: type) -> frozenset[str]:
    """Return the attributes that methods of a class set."""
    found = set()
    for base in kind.__mro__:
        found |= set(getattr(base, "__annotations__", ()))
        for value in vars(base).values():
            code = getattr(inspect.unwrap(getattr(value, "__func__", value)), "__code__", None)
            if code is not None:
                found |= {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_ATTR"}
                found |= {one for one in code.co_consts if isinstance(one, str) and one.isidentifier()}
    return frozenset(found)


def _takes(call: Any, keyword: str) -> bool:
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):  # compiled
        return True
    if keyword in parameters:
        return parameters[keyword].kind is not inspect.Parameter.POSITIONAL_ONLY
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1] == "etude":
        import etude.compat

        etude.compat.install()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    missing = {}
    for use in json.load(sys.stdin):
        try:
            resolve(use)
        except Missing as error:
            missing[use] = [str(one) for one in error.args]
    sys.stdout.write("\n" + json.dumps(missing) + "\n")


if __name__ == "__main__":
    main()
