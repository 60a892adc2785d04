"""Encodes state as plain data: a tree for JSON, and tensors by name. Refuses at save time what could not be restored.

JSON has fewer kinds of values than Python. A value of another kind is an object with the single key ``"$"`` + kind
(``{"$tuple": [...]}``, ``{"$tensor": "name"}``); a dict whose own keys could be mistaken for one is written as pairs.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch

from etude.checkpoint.formats.safetensors import CODES
from etude.dist.layout.shards import Piece, piece_of
from etude.errors import ResumeError, UserCodeError, printable

MAX_DEPTH = 200


@dataclass
class Part:
    """One part of a checkpoint: its tree, its tensors (each memory once), and further names of the same tensors.

    Of a tensor in shards the piece of this rank is entered.
    """

    tree: Any = None
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    pieces: dict[str, Piece] = field(default_factory=dict)
    #: Address → names of the tensors that begin there.
    _seen: dict[int, list[str]] = field(default_factory=dict)

    @property
    def sources(self) -> list[torch.Tensor]:
        return list(self.tensors.values())

    def use(self, copies: list[torch.Tensor]) -> None:
        """Put ``copies`` in place of the tensors, which may be freed from then on."""
        self.tensors = dict(zip(self.tensors, copies, strict=True))

    def encoded(self) -> Part:
        return self

    def name(self, path: tuple[Any, ...], tensor: torch.Tensor) -> str:
        """Enter ``tensor`` under a name made of its path; one that is there already keeps its first name."""
        name = wanted = ".".join(map(str, path)) or "value"
        at = self._seen.setdefault(tensor.data_ptr(), [])
        # Empty tensors all have the address 0, whatever they are.
        for other in at if tensor.numel() else ():
            if _are_same(tensor, self.tensors[other]):
                self.aliases[wanted] = other
                return other
        # `a.b` may be one key or two. safetensors keeps `__metadata__` for itself.
        while name in self.tensors or name == "__metadata__":
            name += "'"
        self.tensors[name] = tensor
        at.append(name)
        return name


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors that begin at the same address are the same numbers."""
    alike = one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
    return alike and one.device == other.device


def encode(part: str, state: Any) -> Part:
    """Encode the ``state`` of ``part``. Raise :class:`~etude.errors.UserCodeError` with the name of a value that
    cannot be saved."""
    made = Part()
    made.tree = _encode(state, (), part, made)
    return made


def decode(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the state that :func:`encode` was given."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((key, value),) = tree.items()
        if key.startswith("$"):
            return _decode_kind(key, value, tensors)
    return {key: decode(value, tensors) for key, value in tree.items()}


def _encode(value: Any, path: tuple[Any, ...], part: str, made: Part) -> Any:
    kind = type(value)
    # The type itself, not subclasses: JSON would give an IntEnum back as a plain number.
    if kind in _SIMPLE:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if len(path) > MAX_DEPTH:
        raise _odd(value, path, part, "nested too deeply")
    if isinstance(value, torch.Tensor | Piece):
        return _encode_tensor(value, path, part, made)
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, part, made)
    if kind in _SEQUENCES:
        items = [_encode(item, (*path, index), part, made) for index, item in enumerate(_SEQUENCES[kind](value))]
        return _wrap_sequence(value, items)
    return _encode_rare(value, path, part, made)


#: Types that JSON has.
_SIMPLE = frozenset((type(None), bool, int, str))
#: Tensors that are whole. Asking each of them costs as much as all else.
WHOLE = frozenset((torch.Tensor, torch.nn.Parameter))
#: Types that are written as lists, and what puts their items in order.
_SEQUENCES: dict[type, Callable[[Any], Any]] = {
    list: iter, tuple: iter, torch.Size: iter, deque: iter,
    # A set has no order; sorted, the same state gives the same bytes.
    set: lambda items: sorted(items, key=repr), frozenset: lambda items: sorted(items, key=repr),
}  # fmt: skip


def _wrap_sequence(value: Any, items: list[Any]) -> Any:
    if isinstance(value, list):
        return items
    if isinstance(value, deque):
        return {"$deque": [value.maxlen, items]}
    return {"$tuple" if isinstance(value, tuple) else f"${type(value).__name__}": items}


def _encode_mapping(value: Mapping[Any, Any], path: tuple[Any, ...], part: str, made: Part) -> Any:
    simple = all(type(key) is str and not key.startswith("$") for key in value)
    items = {key: _encode(item, (*path, key), part, made) for key, item in value.items()}
    if simple and not isinstance(value, Counter):
        return items
    pairs = [[_encode(key, (*path, key), part, made), item] for key, item in items.items()]
    return {"$counter" if isinstance(value, Counter) else "$dict": pairs}


def _encode_tensor(value: torch.Tensor | Piece, path: tuple[Any, ...], part: str, made: Part) -> Any:
    piece = None if type(value) in WHOLE else piece_of(value)
    if piece is not None:
        if piece.local.dtype not in CODES:
            raise _odd(value, path, part, f"{piece.local.dtype} has no place in safetensors")
        name = made.name(path, piece.local)
        made.pieces[name] = piece
        return {"$tensor": name}
    assert isinstance(value, torch.Tensor)
    if value.layout is not torch.strided or value.is_quantized:
        raise _odd(value, path, part, "only dense tensors are stored")
    if value.dtype is torch.complex128:
        # safetensors has complex64 only. A conjugate that is only marked as such has no real view.
        return {"$complex128": made.name(path, torch.view_as_real(value.detach().resolve_conj()))}
    if value.dtype not in CODES:
        raise _odd(value, path, part, f"{value.dtype} has no place in safetensors")
    return {"$tensor": made.name(path, value.detach() if value.requires_grad else value)}


def _encode_rare(value: Any, path: tuple[Any, ...], part: str, made: Part) -> Any:
    if isinstance(value, Enum):
        raise _odd(value, path, part, "store its value")
    if isinstance(value, np.ndarray):
        return _encode_array(value, path, part, made)
    if isinstance(value, np.generic):
        return _encode_scalar(value, path, part, made)
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, complex):
        return {"$complex": [repr(value.real), repr(value.imag)]}
    # Attributes of a subclass would be lost.
    if isinstance(value, int | float | str) and not hasattr(value, "__dict__"):
        base = next(kind for kind in (int, float, str) if isinstance(value, kind))
        return _encode(base(value), path, part, made)
    raise _odd(value, path, part, "")


def _encode_array(value: np.ndarray[Any, Any], path: tuple[Any, ...], part: str, made: Part) -> Any:
    try:
        # `ascontiguousarray` gives an array of no dimension one.
        tensor = torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    except TypeError:
        raise _odd(value, path, part, f"an array of {value.dtype} has no place in safetensors") from None
    return {"$array": _encode_tensor(tensor, path, part, made)}


def _encode_scalar(value: np.generic, path: tuple[Any, ...], part: str, made: Part) -> Any:
    plain = value.item()
    # `plain == plain`: NaN may differ from itself.
    if type(plain) not in (bool, int, float, str, complex) or (type(value)(plain) != value and plain == plain):
        raise _odd(value, path, part, "it does not fit a Python number")
    return _encode(plain, path, part, made)


def _odd(value: Any, path: tuple[Any, ...], part: str, why: str) -> UserCodeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    steps = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    rule = why or "a checkpoint holds numbers, texts, bytes, tensors, arrays, and lists and dicts of these"
    return UserCodeError(f"cannot save {printable(part + steps)}: it is {kind}; {rule}")


def _decode_kind(kind: str, value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if kind == "$tensor":
        return tensors[value]
    if kind == "$complex128":
        return torch.view_as_complex(tensors[value])
    if kind == "$array":
        return decode(value, tensors).numpy()
    if kind in ("$dict", "$counter"):
        items = {decode(key, tensors): decode(item, tensors) for key, item in value}
        return items if kind == "$dict" else Counter(items)
    if kind in _PLAIN_KINDS:
        return _PLAIN_KINDS[kind](value)
    if kind in _ITEM_KINDS:
        return _ITEM_KINDS[kind](decode(item, tensors) for item in value)
    if kind == "$deque":
        return deque((decode(item, tensors) for item in value[1]), maxlen=value[0])
    raise ResumeError(f"state.json holds an unknown kind {printable(kind)[:40]}; needs a newer etude")


_PLAIN_KINDS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$bytes": base64.b64decode,
    "$complex": lambda parts: complex(float(parts[0]), float(parts[1])),
}
_ITEM_KINDS: dict[str, Callable[[Any], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
