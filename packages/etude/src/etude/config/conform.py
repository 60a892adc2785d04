"""Checks whether a config value fits a parameter's annotation, and converts it only if nothing is lost.

Declarations are the text of annotations (``"float | None"``, ``"Literal['mean', 'sum']"``), so that a cached index
of signatures is enough and nothing has to be imported. A name that is not known here accepts everything.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.plan import Spec
from etude.units import parse

_ANYTHING = ("any",)
_LISTS = {"list", "List", "Sequence", "Iterable", "Collection", "MutableSequence"}
_TUPLES = {"tuple", "Tuple"}
_DICTS = {"dict", "Dict", "Mapping", "MutableMapping"}
_OBJECTS = {"Module", "Optimizer", "Dataset", "Callable", "Generator", "Sampler", "Hook", "Run"}
#: Kinds that take values of one Python type as they are.
_EXACT: dict[str, type] = {"bool": bool, "str": str, "none": type(None), "object": Spec}
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false", "none": "null",
    "list": "a list", "tuple": "a list", "dict": "a mapping", "amount": "an amount like 1ep or 500step",
    "object": "an object", "tensor": "a number or a list of numbers", "any": "anything",
}  # fmt: skip

#: What an annotation declares: ``("int",)``, ``("list", item)``, ``("union", a, b)``, ``("literal", value, …)``.
Want = tuple[Any, ...]


class Misfit(Exception):
    """A value that does not fit; ``str()`` completes the sentence "lr must be …", ``hint`` suggests a valid value."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


def conform(value: Any, annotation: str) -> Any:
    """Convert ``value`` to ``annotation``, or raise :class:`Misfit`.

    >>> conform(10.0, "int"), conform([0.9, 1], "tuple[float, float]"), conform(None, "str | None")
    (10, (0.9, 1.0), None)
    >>> conform("3e-3", "float")
    Traceback (most recent call last):
    etude.config.conform.Misfit: a number, not the string '3e-3'
    """
    return _fit(value, declared(annotation))


@lru_cache(maxsize=4096)
def declared(annotation: str) -> Want:
    """Parse the annotation's text into a :data:`Want`; one that is not understood accepts everything."""
    try:
        return _parse(ast.parse(annotation.strip() or "Any", mode="eval").body)
    except SyntaxError:
        return _ANYTHING


def _parse(node: ast.expr) -> Want:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return declared(node.value)
        return ("none",) if node.value is None else _ANYTHING
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(_parse(node.left), _parse(node.right))
    if isinstance(node, ast.Subscript):
        return _parse_subscript(_last_name(node.value), node.slice)
    return _named(_last_name(node))


def _named(name: str) -> Want:
    if name in ("int", "float", "str", "bool"):
        return (name,)
    if name in _LISTS:
        return ("list", _ANYTHING)
    if name in _TUPLES:
        return ("tuple", _ANYTHING, ...)
    if name in _DICTS:
        return ("dict", _ANYTHING)
    if name in ("Amount", "Tensor"):
        return (name.lower(),)
    return ("object",) if name in _OBJECTS else _ANYTHING


def _parse_subscript(name: str, inner: ast.expr) -> Want:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Optional":
        return _union(_parse(inner), ("none",))
    if name == "Union":
        return _union(*map(_parse, items))
    if name == "Literal":
        return ("literal", *(ast.literal_eval(item) for item in items))
    if name == "Annotated":
        return _parse(items[0])
    if name in _LISTS:
        return ("list", _parse(items[0]))
    if name in _TUPLES:
        return ("tuple", *(... if isinstance(i, ast.Constant) and i.value is ... else _parse(i) for i in items))
    if name in _DICTS:
        return ("dict", _parse(items[-1]))
    return _named(name)


def _union(*wants: Want) -> Want:
    flat = [part for want in wants for part in (want[1:] if want[0] == "union" else (want,))]
    return _ANYTHING if _ANYTHING in flat else ("union", *flat)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _fit(value: Any, want: Want) -> Any:
    kind = want[0]
    if kind == "any" or not _is_plain(value):
        return value
    if kind == "union":
        return _fit_union(value, want)
    if kind == "literal":
        return _fit_literal(value, want)
    if kind == "amount":
        return _fit_amount(value)
    if kind == "tensor":
        return _fit_tensor(value)
    if kind in ("list", "tuple", "dict"):
        return _fit_container(value, want)
    return _fit_scalar(value, kind)


def _fit_scalar(value: Any, kind: str) -> Any:
    if kind == "float" and _is_number(value):
        return float(value)
    if kind == "int" and _is_number(value) and (isinstance(value, int) or value.is_integer()):
        return int(value)
    if isinstance(value, _EXACT.get(kind, ())):
        return value
    raise Misfit(f"{_WORDS[kind]}, not {_shown(value)}", _rewritten(value, kind))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fit_union(value: Any, want: Want) -> Any:
    # Without a conversion first: 1 is the int of `float | int`.
    for exact in (True, False):
        for part in want[1:]:
            try:
                fitted = _fit(value, part)
            except Misfit:
                continue
            if not exact or type(fitted) is type(value):
                return fitted
    parts = [part for part in want[1:] if part[0] not in ("none", "object")] or list(want[1:])
    hints = [_rewritten(value, part[0]) for part in parts]
    raise Misfit(f"{describe(want)}, not {_shown(value)}", next(filter(None, hints), ""))


def _fit_literal(value: Any, want: Want) -> Any:
    for choice in want[1:]:
        # 1 == True in Python.
        if choice == value and isinstance(choice, bool) == isinstance(value, bool):
            return choice
    words = [choice for choice in want[1:] if isinstance(choice, str)]
    raise Misfit(f"{describe(want)}, not {_shown(value)}", suggest(value, words) if isinstance(value, str) else "")


def _fit_amount(value: Any) -> Any:
    try:
        parse(value)
    except (ConfigError, TypeError) as error:
        raise Misfit(f"{_WORDS['amount']}, not {_shown(value)}") from error
    return value


def _fit_tensor(value: Any) -> Any:
    """Accept numbers and lists of them, however deep; whoever builds the component makes a tensor of them."""
    if not isinstance(value, Spec) and not _is_number(value):
        if not isinstance(value, list | tuple) or not value:
            raise Misfit(f"{_WORDS['tensor']}, not {_shown(value)}")
        for item in value:
            _fit_tensor(item)
    return value


def takes_only_tensors(annotation: str) -> bool:
    """Return whether a parameter takes a tensor, and no plain number or list.

    >>> takes_only_tensors("Tensor | None"), takes_only_tensors("float | Tensor")
    (True, False)
    """
    want = declared(annotation)
    parts = want[1:] if want[0] == "union" else (want,)
    return ("tensor",) in parts and all(part in (("tensor",), ("none",)) for part in parts)


def _fit_container(value: Any, want: Want) -> Any:
    kind = want[0]
    if kind == "dict":
        if isinstance(value, Mapping):
            return {key: _fit(item, want[1]) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        if kind == "list":
            return type(value)(_fit(item, want[1]) for item in value)
        return _fit_tuple(value, want[1:])
    raise Misfit(f"{_WORDS[kind]}, not {_shown(value)}")


def _fit_tuple(value: list[Any] | tuple[Any, ...], items: Want) -> tuple[Any, ...]:
    if items and items[-1] is ...:
        return tuple(_fit(item, items[0]) for item in value)
    if len(value) != len(items):
        raise Misfit(f"a list of {len(items)}, not of {len(value)}")
    return tuple(_fit(item, want) for item, want in zip(value, items, strict=True))


def describe(want: Want) -> str:
    """Describe what is wanted: ``a number or null``."""
    if want[0] == "literal":
        return "one of " + ", ".join(map(repr, want[1:]))
    if want[0] == "union":  # a number in a config never means an object, even if the union allows a tensor
        plain = [part for part in want[1:] if part[0] != "object"]
        numbers = [part for part in plain if part[0] != "tensor"]
        plain = numbers if any(part[0] != "none" for part in numbers) else plain
        return " or ".join(dict.fromkeys(map(describe, plain or want[1:])))
    return _WORDS[want[0]]


def _is_plain(value: Any) -> bool:
    """Return whether a data file can hold the value, or it is a spec; objects of a Python config are not checked."""
    return value is None or isinstance(value, bool | int | float | str | list | tuple | Mapping | Spec)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {value!r}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Spec):
        return f"the {value.kind} {value.name}"
    text = repr(value)
    if len(text) <= 60 and "Spec(" not in text:
        return text
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else f"{text[:57]}..."


def _rewritten(value: Any, kind: str) -> str:
    """Return the value written as the ``kind`` that is wanted, if that is obvious."""
    if isinstance(value, str) and kind in ("int", "float"):
        try:
            float(value)
        except ValueError:
            return ""
        return f"write {value.strip().replace('_', '')} without quotes"
    if kind == "bool" and isinstance(value, str | int):
        spelled = str(value).lower()
        if spelled in ("yes", "on", "true", "y", "1"):
            return "write true"
        if spelled in ("no", "off", "false", "n", "0"):
            return "write false"
    if kind == "str" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'write "{value}" in quotes'
    return ""
