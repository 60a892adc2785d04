"""Collects the whole state of a run, and restores it so that the run continues in the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from etude.checkpoint.plan_changes import facts
from etude.checkpoint.ranks import staged
from etude.checkpoint.warm_start import compare, describe
from etude.data.resume import Snapshot
from etude.dist import group
from etude.dist.layout.shards import by_number, scattered, stored_gradient
from etude.errors import ResumeError, printable

if TYPE_CHECKING:
    from etude.core.run import Run
    from etude.plan import Plan

#: The part with what differs from rank to rank.
RANKS = "ranks"
#: The part of a step that some of its hooks did not come to: see :mod:`etude.session.recovery.interrupted`.
INTERRUPTED = "interrupted"


class Unfit(ResumeError):
    """The state of a part is not one that the part can load."""


class Generators:
    """Every generator that training may draw from, as a part."""

    def state_dict(self) -> dict[str, Any]:
        return Snapshot.take().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        Snapshot.of(state).restore()


def collect(run: Run) -> dict[str, Any]:
    """Return part → state, and the plan it belongs to."""
    state: dict[str, Any] = {name: part.state_dict() for name, part in run.parts().items()}
    state["generators"] = Generators().state_dict()
    state["plan"] = _facts_of(run.plan) if run.plan is not None else {}
    return state if run.peers is None else _of_all_ranks(state, run)


_known: list[Any] = [None, {}]


def _facts_of(plan: Plan) -> dict[str, Any]:
    """Return the facts of ``plan``, which is frozen: they are worked out once, not with every save."""
    if _known[0] is not plan:
        _known[:] = [plan, facts(plan)]
    return dict(_known[1])


def _of_all_ranks(state: dict[str, Any], run: Run) -> dict[str, Any]:
    """Return the state of this rank, with the generators of all. Sharded parameters stay sharded: each rank saves
    its own shards, and its own gradients of an incomplete update."""
    update = state.get("update")
    if isinstance(update, Mapping) and update.get("grads"):
        params, share = by_number(run.update), run.place.gradient
        grads = {key: stored_gradient(params.get(key, grad), grad, share) for key, grad in update["grads"].items()}
        state["update"] = {**update, "grads": grads}
    if run.place.sizes["pipeline"] > 1:
        state = staged.joined(state, run)
    ledger = None if run.history is None else dict(run.history.state_dict())
    gathered = group.gather(((run.place.stream.rank, state["generators"]), ledger))
    generators = _by_stream([one for one, _ in gathered])
    return {**state, RANKS: {"generators": generators, "ledgers": [one for _, one in gathered]}}


def _by_stream(gathered: list[tuple[int, Any]]) -> list[Any]:
    """Return the generators of each stream of random numbers, which tensor-parallel ranks have together."""
    return [generators for _, generators in sorted(dict(reversed(gathered)).items())]


def generators_for(run: Run, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return this rank's generators from a checkpoint of any number of ranks; None for a stream of random numbers that
    it does not have."""
    own, stream = (state.get(RANKS) or {}).get("generators", []), run.place.stream
    if stream.rank < len(own):
        return dict(own[stream.rank])
    return dict(state["generators"]) if stream.is_main else None


def ledger_for(run: Run, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of this rank's ledger in a checkpoint of several ranks; None if it has none."""
    ledgers = (state.get(RANKS) or {}).get("ledgers", [])
    return ledgers[run.world.rank] if run.world.rank < len(ledgers) else None


def needed(run: Run) -> list[str]:
    """Return the parts that a checkpoint must have to resume this run: no part silently starts fresh."""
    parts = run.parts()
    return [*(name for name in parts if not name.startswith(("hook.", "events"))), "generators"]


def restore(run: Run, state: Mapping[str, Any], *, say: Callable[[str], Any], allow: Iterable[str] = ()) -> None:
    """Restore ``state`` into ``run``, part by part, the generators last: see :class:`Generators`."""
    parts = run.parts()
    if run.place.sizes["pipeline"] > 1:
        state = staged.own_part(state, run)
    check_weights(run.model, state["model"])
    state = scattered(run, state)
    fresh = [name for name in parts if name not in state]
    allowed = {name for key in allow for name in (key, f"hook.{key}")}
    unknown = [name for name in fresh if not (_is_new(name, state) or allowed & {"all", name})]
    if unknown:
        raise ResumeError(
            f"the checkpoint has no state of {', '.join(map(printable, unknown))}; "
            f"--allow-change {printable(unknown[0])} begins with a fresh one"
        )
    for name in fresh:
        say(f"{printable(name)} was not part of the run before and starts fresh")
    for name in state:
        if name not in parts and name not in ("plan", "generators", INTERRUPTED, "batch", RANKS):
            say(f"the stored state of {printable(name)} is not used: the run has no such part any more")
    for name, part in parts.items():
        if name in state:
            _load(name, part, state[name])


def check_weights(model: torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """Refuse weights that do not fit the model exactly, with the near names."""
    match = compare(model.state_dict(), weights)
    if not match.exact:
        raise ResumeError("the checkpoint does not fit the model:\n" + describe(match))


def _load(name: str, part: Any, state: Any) -> None:
    try:
        part.load_state_dict(state)
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
        raise Unfit(
            f"the stored state does not fit {printable(name)}: {printable(f'{type(error).__name__}: {error}')}"
        ) from error


def _is_new(name: str, state: Mapping[str, Any]) -> bool:
    """Return whether a hook is new, because the stored plan does not name it."""
    plan = state.get("plan") or {}
    hook = name.removeprefix("hook.").partition("#")[0]
    return name.startswith("hook.") and bool(plan) and not any(key.startswith(f"hooks.{hook}.") for key in plan)
