"""Copies the containers of a part and lists its tensors: as little as training must wait for.

Names, JSON and headers are made later, by the thread that writes, from the copies of the tensors.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from etude.checkpoint.encode import MAX_DEPTH, WHOLE, Part, encode
from etude.checkpoint.formats.safetensors import CODES
from etude.fast_dataclass import field, record

DTYPE, SHAPE, _LAYOUT = map(operator.attrgetter, ("dtype", "shape", "layout"))
_FIXED = frozenset((type(None), bool, int, float, complex, str, bytes))
_MAPPINGS = frozenset((dict, OrderedDict, Counter))


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
        if len(self._numbers) > len(copies):
            self._part_twins()
        self.sources.clear()

    def _part_twins(self) -> None:
        """Let those that share memory be tensors of their own again."""
        seen: set[int] = set()
        for container, key, number in zip(self._containers, self._keys, self._numbers, strict=True):
            if number in seen:
                # torch.save would write one object once and then refer to it; the original has two objects.
                container[key] = container[key].detach()
            seen.add(number)

    @property
    def content(self) -> Any:
        """The state, with what :meth:`use` put into it."""
        return self._root[0]

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
    # `encode` refuses these with the name of the value.
    if not CODES.keys() >= set(map(DTYPE, tensors)) or set(map(_LAYOUT, tensors)) - {torch.strided}:
        return None
    numbers = list(range(len(tensors)))
    # As many addresses as tensors: nothing is shared, and the slower comparison is left out.
    if len(set(map(torch.Tensor.data_ptr, tensors))) < len(tensors):
        tensors, numbers = _each_once(tensors)
    return Capture(part, tensors, root, found.containers, found.keys, numbers)


class Forms:
    """Remembers what tensors look like, to tell whether others look the same: without a list of what others look like,
    whose thousands of tuples wake the garbage collector."""

    def __init__(self, tensors: list[torch.Tensor], *looks: Callable[[torch.Tensor], Any]) -> None:
        self._known = [(look, list(map(look, tensors))) for look in looks]
        self._count = len(tensors)

    def fit(self, tensors: list[torch.Tensor]) -> bool:
        return len(tensors) == self._count and all(
            all(map(operator.eq, map(look, tensors), known)) for look, known in self._known
        )


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
            made[key] = own = item.copy() if kind is not OrderedDict else _ordered(item)
            _copy_items(own, own.items(), found, depth + 1)
        elif kind is list and depth < MAX_DEPTH:
            made[key] = copied = list(item)
            _copy_items(copied, enumerate(copied), found, depth + 1)
        elif not _is_fixed(item, depth):
            raise _Other


def _ordered(items: OrderedDict[Any, Any]) -> OrderedDict[Any, Any]:
    """Return a copy with the attributes, such as the ``_metadata`` of a module's state."""
    made = items.copy()
    vars(made).update(vars(items))
    return made


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
