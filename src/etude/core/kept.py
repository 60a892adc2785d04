"""What a user-defined hook knew before it acted, so that a mistake in it costs no step.

A hook that raises half-way may have changed its own state already: a run that went on from there would have it act on
that state once more. So a small state is copied before the hook acts, at the points from which a run can go on; one
that is large is not, and then the steps since the last checkpoint are done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.core.hook import Hook
    from etude.core.run import Run

#: Where a run can resume from a hook that raised.
POINTS = ("before_epoch", "before_step", "after_step")
#: How many numbers a state may have to be copied at every step.
MOST = 100


class Large(Exception):
    """A state that is too much to be copied at every step, or of a kind that no checkpoint holds."""


class Kept:
    """A call of a hook that keeps a state; ``state`` is a copy of the one before the call in step ``step``."""

    def __init__(self, hook: Hook, call: Callable[[Run], Any]) -> None:
        self.hook, self.call = hook, call
        self.step = -1
        self.state: Any = None
        self._is_small = True

    def __call__(self, run: Run) -> None:
        if run.store is not None:
            self.step = run.step
            self.state = self._copy() if self._is_small else None
        self.call(run)

    def _copy(self) -> Any:
        try:
            return small_copy(self.hook.state_dict())  # type: ignore[attr-defined]
        except Large:
            self._is_small = False
        except Exception:
            return None  # what is wrong with it is said when it is to be saved
        return None


def keeps_state(hook: Hook) -> bool:
    """Whether ``hook`` has a state, and code that is not Étude's own may change it."""
    return hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict") and not is_own(hook)


def is_own(hook: Hook) -> bool:
    """Étude's own hooks change nothing that they keep before a step."""
    return type(hook).__module__.startswith("etude.")


def small_copy(value: Any, most: int = MOST) -> Any:
    """A copy of plain values, when there are no more than ``most`` of them.

    >>> small_copy({"seen": [1, 2], "best": 0.5})
    {'seen': [1, 2], 'best': 0.5}
    >>> small_copy(list(range(500)))
    Traceback (most recent call last):
    etude.core.kept.Large
    """
    left = most

    def copied(value: Any) -> Any:
        nonlocal left
        kind = type(value)
        left -= _weight(value, kind)
        if left < 0:
            raise Large
        if kind in _TEXTS:
            return value
        if isinstance(value, Mapping):
            return {key: item if type(item) in _NUMBERS else copied(item) for key, item in value.items()}
        if kind is list or kind is tuple:
            return kind([item if type(item) in _NUMBERS else copied(item) for item in value])
        if hasattr(value, "detach"):
            return value.detach().clone()
        if hasattr(value, "tobytes"):
            return value.copy()
        raise Large

    return value if type(value) in _NUMBERS else copied(value)


_NUMBERS = frozenset({type(None), bool, int, float, complex})
_TEXTS = frozenset({str, bytes})


def _weight(value: Any, kind: type) -> int:
    """Tensors and numpy's arrays are known by what they can do: a hook alone does not need either package."""
    if kind in _TEXTS:
        return 1 + len(value) // 64
    if hasattr(value, "numel"):
        return 1 + int(value.numel())
    return int(value.size) if hasattr(value, "tobytes") else len(value) if hasattr(value, "__len__") else 1
