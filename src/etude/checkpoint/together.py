"""One store for the ranks of a run: rank 0 owns the folder, the others follow what it finds there.

Every rank calls the same methods in the same order. Whatever depends on the disk or the clock is what rank 0 says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from etude.checkpoint.load import Loaded
from etude.checkpoint.store import Store
from etude.dist import group


class Leader(Store):
    """The store of rank 0."""

    def is_free(self, within: float = 0.0) -> bool:
        return group.first(lambda: super(Leader, self).is_free(within))

    def resume(self, *, need: Collection[str] = ()) -> Loaded | None:
        """The newest usable checkpoint, which the other ranks read too."""
        found: list[Loaded | None] = []

        def find() -> str | None:
            found.append(super(Leader, self).resume(need=need))
            return found[0].path if found[0] is not None else None

        group.first(find)
        return found[0]

    def resume_alone(self, *, need: Collection[str] = ()) -> Loaded | None:
        """The same where only rank 0 is asked."""
        return super().resume(need=need)


class Follower(Store):
    """The store of the other ranks: nothing is written, and what is read is what rank 0 reads."""

    def __init__(self, folder: Any, **options: Any) -> None:
        super().__init__(folder, **{**options, "write": False})

    def save(self, state: Mapping[str, Any], **options: Any) -> None:
        """Rank 0 saves."""

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Rank 0 needs memory for it."""

    def commit(self) -> None:
        """Rank 0 has the copy."""

    def prune(self) -> list[str]:
        return []

    def is_free(self, within: float = 0.0) -> bool:
        return group.first(lambda: True)

    def resume(self, *, need: Collection[str] = ()) -> Loaded | None:
        path: str | None = group.first(lambda: None)
        return self.load(path, need=need) if path else None
