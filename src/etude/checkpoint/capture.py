"""Copies the containers of a part and lists its tensors: as little as training must wait for.

Names, JSON and headers are made later, by the thread that writes, from the copies of the tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from etude.checkpoint.encode import MAX_DEPTH, WHOLE, Part, encode
from etude.checkpoint.formats.safetensors import CODES
from etude.records import field, record

_FIXED = frozenset((type(None), bool, int, float, str))
_MAPPINGS = frozenset((dict, OrderedDict))


@record
class Capture:
    """The state of a part: its tensors (``sources``), each memory once, and containers that nobody else changes."""

    part: str
    sources: list[torch.Tensor]
    _root: list[Any]
    #: Of each tensor: the container that holds it, its key there, and its number in ``sources``.
    _containers: list[Any]
    _keys: list[Any]
    _numbers: list[int]

    def use(self, copies: list[torch.Tensor]) -> None:
        """Put ``copies`` in place of the tensors, which may be freed from then on."""
        for container, key, number in zip(self._containers, self._keys, self._numbers, strict=True):
            container[key] = copies[number]
        self.sources.clear()

    def encoded(self) -> Part:
        """Encode the part, with the copies of its tensors."""
        return encode(self.part, self._root[0])


def capture(part: str, state: Any) -> Capture | None:
    """Capture dicts, lists, numbers, texts and whole tensors; None for a state that holds anything else."""
    root, found = [state], _Found()
    try:
        _copy_items(root, enumerate(root), found, 0)
    except _Other:
        return None
    tensors = found.tensors
    if not CODES.keys() >= {one.dtype for one in tensors} or {one.layout for one in tensors} - {torch.strided}:
        return None
    numbers = list(range(len(tensors)))
    if len({one.data_ptr() for one in tensors}) < len(tensors):
        tensors, numbers = _each_once(tensors)
    return Capture(part, tensors, root, found.containers, found.keys, numbers)


@record
class _Found:
    """The tensors of a state, and where they are; three lists, for thousands of pairs wake the garbage collector."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)


class _Other(Exception):
    """A value of a rare kind."""


def _copy_items(made: Any, items: Any, found: _Found, depth: int) -> None:
    """Replace the containers in ``made`` by copies; list its tensors and where they are."""
    for key, item in items:
        kind = type(item)
        if kind in WHOLE:
            found.tensors.append(item)
            found.containers.append(made)
            found.keys.append(key)
        elif kind in _FIXED:
            continue
        elif kind in _MAPPINGS and depth < MAX_DEPTH and _FIXED.issuperset(map(type, item)):
            made[key] = own = dict(item)
            _copy_items(own, own.items(), found, depth + 1)
        elif kind is list and depth < MAX_DEPTH:
            made[key] = copied = list(item)
            _copy_items(copied, enumerate(copied), found, depth + 1)
        elif not _is_fixed(item, depth):
            raise _Other


def _is_fixed(value: Any, depth: int) -> bool:
    kind = type(value)
    return kind in _FIXED or (kind is tuple and depth < MAX_DEPTH and all(_is_fixed(item, depth + 1) for item in value))


def _each_once(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[int]]:
    """Return the tensors without those that are another's memory, and the number of each in that list."""
    known: dict[Any, tuple[int, torch.Tensor]] = {}
    numbers = [known.setdefault(_memory(one, place), (len(known), one))[0] for place, one in enumerate(tensors)]
    return [one for _, one in known.values()], numbers


def _memory(tensor: torch.Tensor, place: int) -> Any:
    """Return what two tensors of the same numbers have in common; an empty one is like no other."""
    if not tensor.numel():
        return place
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device
