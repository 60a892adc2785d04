"""Makes one state of what the stages of a pipeline hold, by names and numbers of the whole model, and gives each its
part of such a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from etude.dist import group
from etude.dist.layout.shards import Piece, piece_of

if TYPE_CHECKING:
    from etude.core.run import Run

#: The way to a value below a part.
Way = tuple[Any, ...]


def joined(state: dict[str, Any], run: Run) -> dict[str, Any]:
    """Return the state of this rank with an entry for everything that other stages hold. Every rank calls it."""
    own = dict(_leaves(state))
    pieces = {way: _piece(value, run) for way, value in own.items() if isinstance(value, torch.Tensor | Piece)}
    about = {
        way: (tuple(pieces[way].shape), pieces[way].local.dtype) if way in pieces else (None, value)
        for way, value in own.items()
    }
    made = dict(state)
    everyone = group.gather(about)
    for way in dict.fromkeys(way for one in everyone for way in one):
        if way in pieces:
            _put(made, state, way, pieces[way])
        elif way not in own:
            shape, what = next(one[way] for one in everyone if way in one)
            _put(made, state, way, what if shape is None else _absent(shape, what))
    return made


def _absent(shape: tuple[int, ...], dtype: torch.dtype) -> Piece:
    return Piece(torch.empty(0, dtype=dtype), shape, (0,) * len(shape), saved_here=False)


def _leaves(state: Mapping[str, Any]) -> Iterator[tuple[Way, Any]]:
    """Yield what belongs to single parameters."""
    for part, value in state.items():
        if part == "model":
            yield from (((part, name), one) for name, one in value.items())
        elif part == "optimizer" or part.startswith("optimizer."):
            for number, values in value["state"].items():
                yield from (((part, "state", number, key), one) for key, one in values.items())
        elif part == "update" and isinstance(value, Mapping):
            yield from (((part, "grads", key), one) for key, one in (value.get("grads") or {}).items())
        elif part.startswith("hook.") and isinstance(value, Mapping) and isinstance(value.get("average"), Mapping):
            yield from (((part, "average", name), one) for name, one in value["average"].items())


def _piece(value: Any, run: Run) -> Piece:
    if isinstance(value, Piece):
        return value
    own, first = piece_of(value), run.place.is_first(value)
    if own is None:
        return Piece(value.detach(), tuple(value.shape), (0,) * value.ndim, saved_here=first)
    return Piece(own.local.detach(), own.shape, own.offset, saved_here=own.saved_here and first)


def _put(made: dict[str, Any], original: Mapping[str, Any], way: Way, value: Any) -> None:
    """Set a value in ``made``, whose mappings are copied before they change."""
    place, known = made, original
    for key in way[:-1]:
        below = known.get(key) if isinstance(known, Mapping) else None
        if place.get(key) is below or key not in place:
            place[key] = dict(below or {})
        place, known = place[key], below if isinstance(below, Mapping) else {}
    place[way[-1]] = value


def own_part(state: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return what belongs to this rank of a state of the whole model; numbered entries are separated when the state is
    loaded."""
    made = dict(state)
    names = set(run.model.state_dict())
    # What no stage of this run has is kept, so that it is refused by its name.
    whole = {name for one in group.gather(names) for name in one}
    made["model"] = {name: value for name, value in state["model"].items() if name in names or name not in whole}
    for part, value in state.items():
        if part.startswith("hook.") and isinstance(value, Mapping) and isinstance(value.get("average"), Mapping):
            average = {name: one for name, one in value["average"].items() if name in names or name not in whole}
            made[part] = {**value, "average": average}
    return made
