"""What several tests of this room share."""

from __future__ import annotations


def every(hook, amount: str):
    hook.every = amount
    return hook


def scripted(run, results: list[float], name: str = "accuracy") -> None:
    """Let the evaluations of a run give these results."""
    remaining = iter(results)
    run.evaluation.end = lambda: {name: next(remaining)}
