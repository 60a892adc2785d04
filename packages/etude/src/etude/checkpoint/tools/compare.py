"""Compares two checkpoints bit by bit; of different systems, the parts that both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from etude.checkpoint.formats import safetensors
from etude.checkpoint.tools.content import Content
from etude.errors import printable
from etude.events.jsonl import TIMING_OFFSET
from etude.fast_dataclass import record

#: A longer list of plain numbers (a generator's state) is one value to look at, not so many.
_LONG = 16


@record
class Difference:
    """One path at which two checkpoints differ."""

    path: str
    left: str
    right: str


@record
class Comparison:
    """The differences among common parts, and the names of the parts that only one side has."""

    differences: list[Difference]
    only_left: list[str]
    only_right: list[str]
    compared: list[str]


def compare(left: Content, right: Content) -> Comparison:
    """Compare two checkpoints part by part; those of different layouts under their common names."""
    alike = left.layout == right.layout
    first, second = (one.parts() if alike else one.common_parts() for one in (left, right))
    both = [part for part in first if part in second]
    found = differences({part: first[part] for part in both}, {part: second[part] for part in both})
    return Comparison(
        found, [part for part in first if part not in second], [part for part in second if part not in first], both
    )


def differences(left: Any, right: Any) -> list[Difference]:
    """Return all leaves that differ, except for times. Tensors are compared bit by bit and reported by their largest
    difference."""
    first, second = (
        {path: value for path, value in leaves(tree) if not path.endswith(TIMING_OFFSET)} for tree in (left, right)
    )
    found = []
    for path in [*first, *(path for path in second if path not in first)]:
        if path not in first or path not in second:
            found.append(Difference(path, _side(first, path), _side(second, path)))
        elif not same(first[path], second[path]):
            found.append(Difference(path, *_contrast(first[path], second[path])))
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a tree that is not a container, with its dotted path; a long list of numbers is one
    value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size) and not _is_row(value):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def _is_row(value: list[Any] | tuple[Any, ...]) -> bool:
    return len(value) > _LONG and all(type(item) in (int, float, bool, type(None)) for item in value)


def same(left: Any, right: Any) -> bool:
    """Return whether the bits are the same; NaN equals NaN."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and _bytes(left) == _bytes(right)
    if hasattr(left, "dtype") and hasattr(right, "dtype"):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        return type(left) is type(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right or (left != left and right != right))


def describe(value: Any) -> str:
    """Describe a tensor by dtype, shape and range, a long list of numbers by its length, anything else by its
    beginning."""
    if isinstance(value, torch.Tensor):
        shape = "×".join(map(str, value.shape)) or "scalar"
        kind = str(value.dtype).removeprefix("torch.")
        if value.numel() and value.is_floating_point():
            low, high = torch.aminmax(value.float())
            return f"{kind} {shape}  {float(low):.4g} … {float(high):.4g}"
        return f"{kind} {shape}"
    if isinstance(value, list | tuple) and _is_row(value):
        return f"{len(value)} numbers, from {value[0]!r} to {value[-1]!r}"
    return printable(repr(value))[:80]


def _side(known: Mapping[str, Any], path: str) -> str:
    return describe(known[path]) if path in known else "(none)"


def _contrast(left: Any, right: Any) -> tuple[str, str]:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape == right.shape:
        return describe(left), f"{describe(right)}  ({_gap(left, right)})"
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        at = next(index for index, pair in enumerate(zip(left, right, strict=True)) if not same(*pair))
        return f"{describe(left)}; number {at} is {left[at]!r}", f"{describe(right)}; number {at} is {right[at]!r}"
    return describe(left), describe(right)


def _gap(left: torch.Tensor, right: torch.Tensor) -> str:
    if left.dtype != right.dtype:
        return "another dtype"
    wide = torch.complex128 if left.is_complex() else torch.float64
    gap = (left.to(wide) - right.to(wide)).abs().max() if left.numel() else 0.0
    return f"largest difference {float(gap):.3g}"


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(safetensors.bytes_of(tensor.contiguous()))
