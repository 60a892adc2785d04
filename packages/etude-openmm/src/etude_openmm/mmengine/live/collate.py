"""Finds collate functions, and handles the data samples in what they give."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from etude_openmm.shared.registries.root import FUNCTIONS


def function_of(given: Any, what: str) -> Any:
    """Return a function: given itself, by its name in FUNCTIONS, or as ``dict(type=name or callable, **arguments)``."""
    options = dict(given) if isinstance(given, dict) else {"type": given}
    options.pop("_scope_", None)  # written into every dict that comes from another package's config
    kind = options.pop("type")
    if not isinstance(kind, str) and not callable(kind):
        raise TypeError(f"type of {what} should be string or callable object, but got {kind!r}")
    found = FUNCTIONS.get(kind) if isinstance(kind, str) else kind
    assert callable(found), f"{what} names {kind!r}, which is no registered function; {FUNCTIONS.hint(kind)}"
    return partial(found, **options) if options else found


def is_element(value: Any) -> bool:
    """Return whether ``value`` is a data sample (``mmengine.structures``)."""
    return _is_kind_of_element(type(value))  # type: ignore[arg-type]  # mypy takes a class for unhashable


@cache
def _is_kind_of_element(kind: type) -> bool:
    # The class comes from the installed mmengine. Comparing names avoids importing it.
    return any(base.__name__ == "BaseDataElement" for base in kind.__mro__)


def on_cpu(value: Any) -> Any:
    """Return nested data with all its tensors and data samples on the CPU."""
    if isinstance(value, torch.Tensor) or is_element(value):
        return value.to("cpu")
    if isinstance(value, list):
        return [on_cpu(item) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(on_cpu(item) for item in value)
    return {key: on_cpu(item) for key, item in value.items()} if isinstance(value, dict) else value
