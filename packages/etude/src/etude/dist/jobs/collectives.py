"""Compares the collectives that ranks have begun, to name the rank that did not come, or where ranks disagree.

torch's flight recorder keeps the last collectives of each group of ranks, with a number, kind, shapes and types. A rank
that makes no progress leaves them in its heartbeat (:mod:`etude.dist.jobs.heartbeat`); whoever reads these compares
them. Imports no torch by itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

#: How many collectives torch keeps, and how many of each group a heartbeat has.
_KEPT, _SHOWN = 256, 4
_MOST_GROUPS = 8
#: What torch calls types, where that is not the name in Python.
_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "Int": "int32", "Long": "int64", "Byte": "uint8",
    "Short": "int16", "Char": "int8",
}  # fmt: skip
#: Of these, each rank may have its own shapes.
_UNEVEN = ("gather", "scatter", "alltoall", "all_to_all", "barrier")


class Call(NamedTuple):
    """A collective that a rank has begun: ``what`` is its kind, with types and shapes."""

    number: int
    what: str
    pending: bool

    @property
    def kind(self) -> str:
        return self.what.partition(" ")[0]

    def agrees(self, other: Call) -> bool:
        return self.what == other.what or (self.kind == other.kind and any(word in self.kind for word in _UNEVEN))


#: Collectives by group: its ranks, as text, and the calls.
Groups = dict[str, tuple[list[int], list[Call]]]


def keep() -> None:
    """Let torch keep the last collectives. Call it before the first one."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_KEPT))


def of_this_rank() -> str:
    """Return the last collectives of this process as JSON; empty if there are none, or torch does not tell."""
    if "torch.distributed" not in sys.modules:
        return ""
    from etude import torch_private

    groups: dict[str, list[list[Any]]] = {}
    with suppress(Exception):  # a report of a hang must not end what still runs
        entries, members = torch_private.collectives(), torch_private.ranks_of_groups()
        for entry in entries:
            if not entry["is_p2p"]:
                call = [entry["collective_seq_id"], _worded(entry), not entry["retired"]]
                name = str(entry["process_group"][0])
                groups[name] = [*groups.pop(name, [])[-_SHOWN + 1 :], call]  # the group of the newest call comes last
        newest = list(groups)[-_MOST_GROUPS:]
        return json.dumps({name: [members.get(name, []), groups[name]] for name in newest})
    return ""


def _worded(entry: Mapping[str, Any]) -> str:
    kind = str(entry["profiling_name"]).rpartition(":")[2]
    tensors = zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    words = [f"{_TYPES.get(kind_of, kind_of.lower())}{list(size)}" for kind_of, size in tensors]
    more = [f"and {len(words) - 3} more"] if len(words) > 3 else []
    return " ".join([kind, *words[:3], *more])[:120]


def read(text: str) -> Groups:
    """Return what :func:`of_this_rank` wrote; nothing where that was cut."""
    with suppress(ValueError, TypeError, AttributeError):
        return {
            name: ([int(rank) for rank in ranks], [Call(int(n), str(what), bool(p)) for n, what, p in calls])
            for name, (ranks, calls) in json.loads(text or "{}").items()
        }
    return {}


def last(rank: int, text: str) -> list[str]:
    """Return the newest collective of a rank, as a line; none where it is not known."""
    newest = [calls[-1] for _, calls in list(read(text).values())[-1:] if calls]
    return [f"rank {rank} was in collective {call.number} of its group: {call.what}" for call in newest]


class Verdict(NamedTuple):
    """The ranks to blame for a hang, and why, in words."""

    ranks: list[int]
    why: str


def judge(texts: Mapping[int, str]) -> Verdict | None:
    """Return who is to blame, from the collectives of every rank that has left them; None if they do not tell."""
    known = {rank: groups for rank, text in texts.items() if (groups := read(text))}
    return _disagreement(known) or _missing(known)


def _groups(known: Mapping[int, Groups]) -> Iterator[tuple[str, dict[int, list[Call]]]]:
    """Yield each group that is known, with the calls of its ranks; none for a rank that has called nothing in it."""
    members: dict[str, set[int]] = {}
    for groups in known.values():
        for name, (ranks, _) in groups.items():
            members.setdefault(name, set()).update(ranks)
    for name, everyone in members.items():
        # Names of groups that only some ranks have made may stand for several groups.
        own = {r: g[name][1] if name in g else [] for r, g in known.items() if r in everyone}
        if len(own) > 1 and all(set(known[r][name][0]) == everyone for r in own if name in known[r]):
            yield name, own


def _disagreement(known: Mapping[int, Groups]) -> Verdict | None:
    """Return the first collective that ranks have called with other kinds, types or shapes."""
    for _, calls in _groups(known):
        numbers = sorted({call.number for own in calls.values() for call in own})
        for number in numbers:
            said = {r: call for r, own in calls.items() for call in own if call.number == number}
            first = next(iter(said.values()))
            if all(first.agrees(call) for call in said.values()):
                continue
            ways: dict[str, list[int]] = {}
            for rank, call in said.items():
                ways.setdefault(call.what, []).append(rank)
            words = "; ".join(f"{_ranks(ranks)} calls {what}" for what, ranks in ways.items())
            return Verdict(sorted(said), f"the ranks disagree on collective {number} of their group: {words}")
    return None


def _missing(known: Mapping[int, Groups]) -> Verdict | None:
    """Return the ranks that others wait for, and that wait for nobody themselves; else those in a circle."""
    lines: dict[int, str] = {}
    waiting: set[int] = set()
    for _, calls in _groups(known):
        last = {rank: own[-1].number if own else 0 for rank, own in calls.items()}
        pending = {rank: call for rank, own in calls.items() for call in own if call.pending}
        if not pending:
            continue
        # The first one that not everybody has begun.
        wanted = min((c for c in pending.values() if c.number > min(last.values())), default=None)
        if wanted is None:
            continue
        there = [rank for rank in calls if last[rank] >= wanted.number]
        waiting.update(there)
        for rank in calls:
            if last[rank] < wanted.number:
                what = f"collective {wanted.number} ({wanted.what})"
                lines.setdefault(rank, f"rank {rank} did not come to {what}, where {_ranks(there)} waits")
    blamed = [rank for rank in lines if rank not in waiting] or sorted(lines)
    return Verdict(blamed, "; ".join(lines[rank] for rank in blamed)) if blamed else None


def _ranks(ranks: Iterable[int]) -> str:
    found = sorted(ranks)
    return f"rank {found[0]}" if len(found) == 1 else f"each of ranks {', '.join(map(str, found))}"
