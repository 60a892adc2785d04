"""MMEngine's collate functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.utils.data._utils.collate import default_collate as torch_default_collate

from etude_openmm.shared.live.processes import worker_init_fn as worker_init_fn
from etude_openmm.shared.registries.root import FUNCTIONS

COLLATE_FUNCTIONS = FUNCTIONS


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


def pseudo_collate(data_batch: Sequence[Any]) -> Any:
    """Collate samples into lists, without stacking. A batch of dicts becomes a dict of lists."""
    return _collate_nested(data_batch, lambda leaves: leaves)


def default_collate(data_batch: Sequence[Any]) -> Any:
    """Collate as :func:`pseudo_collate`, but stack numbers, arrays and tensors."""
    return _collate_nested(data_batch, torch_default_collate)


def _collate_nested(batch: Sequence[Any], leaf: Callable[[Any], Any]) -> Any:
    first = batch[0]
    if isinstance(first, str | bytes) or is_element(first):
        return batch
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(_collate_nested(samples, leaf) for samples in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each data_itement in list of batch should be of equal size")
        parts = [_collate_nested(samples, leaf) for samples in zip(*batch, strict=True)]
        # As torch's collate, a batch of tuples becomes a list.
        return _as_sequence(type(first), parts) if not isinstance(first, tuple) else parts
    if isinstance(first, Mapping):
        return type(first)({key: _collate_nested([item[key] for item in batch], leaf) for key in first})  # type: ignore[call-arg]
    return leaf(batch)


FUNCTIONS.register_module(module=pseudo_collate)
FUNCTIONS.register_module(module=default_collate)


def _as_sequence(kind: Any, parts: list[Any]) -> Any:
    """Return ``parts`` as a sequence of type ``kind``, or as a list if that takes no iterable (``range``)."""
    try:
        return kind(parts)
    except TypeError:
        return parts
