"""Reads from a plan how long its run is."""

from __future__ import annotations

from collections.abc import Iterator

from etude.errors import Finding
from etude.plan import Plan
from etude.units import Amount


def check_length(plan: Plan) -> Iterator[Finding]:
    """Report a run without an end."""
    if plan.train.epochs is None and plan.train.steps is None and plan.train.max_seconds is None:
        first = plan.files[0] if plan.files else ""
        yield Finding(first, "nothing says how long to train", "give `epochs` or `steps`")


def length_of(plan: Plan) -> Amount | None:
    """Return how long the run is, as the config says it."""
    if plan.train.steps is not None:
        return Amount(plan.train.steps, "step")
    return None if plan.train.epochs is None else Amount(plan.train.epochs, "epoch")
