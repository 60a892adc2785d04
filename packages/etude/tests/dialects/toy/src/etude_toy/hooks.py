"""What ``import toyengine.hooks`` gives."""

from __future__ import annotations

from etude.dialect_api import Hook, Run


class Counter(Hook):
    """Counts the steps of the Toy engine."""

    def __init__(self) -> None:
        self.seen = 0

    def after_step(self, run: Run) -> None:
        self.seen += 1

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]
