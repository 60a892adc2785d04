"""Resumes inside a step: saves which hooks had acted when a step was interrupted, and calls only the others later.

A signal may abandon an evaluation that a hook runs inside a step, and a hook may raise after the update. Then the
update of the step is done and some of its hooks have acted. A checkpoint of this state has a part ``interrupted`` that
lists them; the run that resumes from it calls the others before its first own step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from itertools import takewhile
from typing import Any

from etude.checkpoint.encode import encode
from etude.checkpoint.state import INTERRUPTED, Generators
from etude.core.hook import Call, Hook, HookTable, Periodic, is_builtin
from etude.core.run import Part, Run, named_hooks
from etude.data.loader import Loader
from etude.errors import UserCodeError

#: Where a run can resume from a hook that raised; the hook's state is copied before it acts there.
COPIED_AT = ("before_epoch", "before_step", "after_step")
#: Where a :class:`~etude.core.hook.Periodic` hook acts.
_PERIODIC_AT = ("after_step", "after_epoch", "after_train")
#: How many numbers a state may have to be copied at every step.
MOST_NUMBERS = 100


class Watch:
    """Watches the calls of hooks: which periodic hook is acting, and the states that hooks had before they acted.

    Only hooks that need it are wrapped: periodic ones, and user-defined ones with a state. A user-defined hook that
    raises half-way may have changed its state already, and a resumed run would have it act on that state once more.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        #: The periodic hook that is acting, or that raised.
        self.acting: Periodic | None = None
        #: (hook, point) → the step of its last call, and its state before that call (None: too large to copy).
        self._before: dict[tuple[int, str], tuple[int, Any]] = {}
        run.hooks.wrap = self.wrap
        run.hooks.compile()

    def wrap(self, hook: Hook, point: str, call: Call) -> Call:
        """Return what the table calls instead of ``call``."""
        if point in COPIED_AT and _has_own_state(hook):
            call = self._copying_state(hook, point, call)
        return self._noting_actor(hook, call) if isinstance(hook, Periodic) and point in _PERIODIC_AT else call

    def _noting_actor(self, hook: Periodic, call: Call) -> Call:
        def act(run: Run) -> None:
            outer, self.acting = self.acting, hook
            call(run)
            self.acting = outer  # after an error the hook that raised stays known

        return act

    def _copying_state(self, hook: Any, point: str, call: Call) -> Call:
        key, is_small = (id(hook), point), True

        def copy() -> Any:
            nonlocal is_small
            try:
                return small_copy(hook.state_dict()) if is_small else None
            except TooLarge:
                is_small = False
            except Exception:
                return None  # the save reports what is wrong with the state
            return None

        def act(run: Run) -> None:
            self._before[key] = (run.step, copy())
            call(run)

        return act

    def parts_before(self, acting: Mapping[str, Iterable[Hook]]) -> dict[str, Any] | str:
        """Return the states that hooks had before they acted at these points of this step, or why one is not known."""
        names = {id(hook): name for name, hook in named_hooks(self.run.hooks)}
        parts: dict[str, Any] = {}
        for point, hooks in acting.items():
            for hook in hooks:
                step, state = self._before.get((id(hook), point), (None, None))
                if step != self.run.step:
                    continue
                if state is None:
                    return f"hook {names[id(hook)]} keeps more than is copied at every step"
                parts.setdefault(f"hook.{names[id(hook)]}", state)
        return parts

    def parts_while_acting(self, *, most: float = math.inf) -> dict[str, Any]:
        """Return the parts of a checkpoint from which the hook that is acting acts again, and the rest of its step."""
        if self.acting is None:
            return {}
        name = next(name for name, hook in named_hooks(self.run.hooks) if hook is self.acting)
        state = self.acting.state_dict()
        parts: dict[str, Any] = {f"hook.{name}": {**state, "acted_at": -1}} if "acted_at" in state else {}
        if self.run.stage == "after_step":
            parts[INTERRUPTED] = step_before(self.run, self.acting, most=most)
        return parts

    def parts_after(self, error: BaseException) -> dict[str, Any] | str:
        """Return further parts for a checkpoint of the state that ``error`` left, or why no run can resume from it."""
        site = getattr(error, "etude_site", None)
        if site is not None:
            return self._parts_after_hook(site.point, site.actor)
        if self.run.stage != "data":
            return ""
        if not isinstance(self.run.data.get("train"), Loader):
            return "a loader of another make may have drawn random numbers before it failed"
        return self.parts_before({"before_epoch": self.run.hooks.before_epoch.hooks} if _is_first(self.run) else {})

    def _parts_after_hook(self, point: str, hook: Hook) -> dict[str, Any] | str:
        run = self.run
        if point == "after_step" and isinstance(hook, Part) and is_builtin(hook):
            return f"hook {hook.name} may have changed its state"
        if point == "after_step" and run.stage == "after_step":
            states = self.parts_before({point: [hook]})
            return states if isinstance(states, str) else {INTERRUPTED: step_before(run, hook), **states}
        if point not in ("before_step", "before_epoch"):
            return "it was raised inside an update" if point in ("after_forward", "before_update") else ""
        acting: dict[str, list[Hook]] = {point: [*_until(getattr(run.hooks, point).hooks, hook), hook]}
        if point == "before_step" and _is_first(run):
            acting = {"before_epoch": run.hooks.before_epoch.hooks, **acting}
        states = self.parts_before(acting)
        position = {} if point == "before_epoch" else position_before_batch(run)
        if point == "before_step" and not position:
            return "the data cannot take the batch back"
        return states if isinstance(states, str) else {**position, **states}


def step_before(run: Run, hook: Hook, *, most: float = math.inf) -> dict[str, Any]:
    """Return the part of a step whose hooks before ``hook`` have acted.

    It holds what the other hooks look at, the batch and the outputs, where they can be saved and each has at most
    ``most`` bytes.
    """
    acted = {id(other) for other in _until(run.hooks.after_step.hooks, hook)}
    outputs = run.outputs
    if isinstance(outputs, Mapping):
        outputs = {key: value for key, value in outputs.items() if _bytes_of({key: value}) <= most}
    return {
        "acted": [name for name, other in named_hooks(run.hooks) if id(other) in acted],
        "batch": run.batch if _bytes_of(run.batch) <= most else None,
        "outputs": outputs if isinstance(outputs, Mapping) or _bytes_of(outputs) <= most else None,
    }


def finish_step(run: Run, step: Mapping[str, Any]) -> None:
    """Call the hooks that the interrupted step did not come to."""
    acted = {id(hook) for name, hook in named_hooks(run.hooks) if name in step["acted"]}
    waiting = [hook for hook in run.hooks.after_step.hooks if id(hook) not in acted]
    rest = HookTable(waiting, steps_per_epoch=run.hooks.steps_per_epoch, clock=run.hooks.clock, wrap=run.hooks.wrap)
    run.batch, run.outputs = step.get("batch"), step.get("outputs")
    # The loop, which does this, has not begun yet.
    run.model.train()
    # Hooks see the number of the step that they belong to; the counters move on after them.
    run.step, run.step_in_epoch, run.stage = run.step - 1, run.step_in_epoch - 1, "step"
    _begin_again(run, rest)
    run.stage = "after_step"
    rest.after_step(run)
    run.step, run.step_in_epoch, run.stage = run.step + 1, run.step_in_epoch + 1, ""


def _begin_again(run: Run, rest: HookTable) -> None:
    """Call the hooks that will finish the step at its start again: what they remember of it (a time) is in no
    checkpoint.

    What a checkpoint does hold, their states, the records and the generators, is afterwards as it was.
    """
    parts: list[Any] = [Generators(), run.events, *(hook for hook in rest if isinstance(hook, Part))]
    states = [deepcopy(part.state_dict()) for part in parts]
    rest.before_step(run)
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)


def position_before_batch(run: Run) -> dict[str, Any]:
    """Return the position of the data without the batch of a step that is not done; nothing where they are a stream."""
    loader = run.data.get("train")
    if not isinstance(loader, Loader) or loader.stream or loader.epoch != run.epoch:
        return {}
    state: Mapping[str, Any] = loader.state_dict()
    return {"data.train": {**state, "batch": run.step_in_epoch + run.done - run.step}}


def _is_first(run: Run) -> bool:
    return run.step_in_epoch == 0


def _until(hooks: Iterable[Hook], hook: Hook) -> list[Hook]:
    return list(takewhile(lambda other: other is not hook, hooks))


def _has_own_state(hook: Hook) -> bool:
    """Return whether ``hook`` has a state that user-defined code may change."""
    return hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict") and not is_builtin(hook)


def _bytes_of(value: Any) -> float:
    """Return the bytes of its tensors; NaN, which compares as false with any limit, where it cannot be saved."""
    try:
        return sum(tensor.numel() * tensor.element_size() for tensor in encode(INTERRUPTED, value).tensors.values())
    except UserCodeError:
        return math.nan


class TooLarge(Exception):
    """A state that is too large to be copied at every step, or that no checkpoint can hold."""


def small_copy(value: Any, most: int = MOST_NUMBERS) -> Any:
    """Return a copy of plain values; raise :class:`TooLarge` when there are more than ``most`` of them.

    >>> small_copy({"seen": [1, 2], "best": 0.5})
    {'seen': [1, 2], 'best': 0.5}
    >>> small_copy(list(range(500)))
    Traceback (most recent call last):
    etude.session.recovery.interrupted.TooLarge
    """
    left = most

    def copied(value: Any) -> Any:
        nonlocal left
        kind = type(value)
        left -= _weight(value, kind)
        if left < 0:
            raise TooLarge
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
        raise TooLarge

    return value if type(value) in _NUMBERS else copied(value)


_NUMBERS: Collection[type] = frozenset({type(None), bool, int, float, complex})
_TEXTS: Collection[type] = frozenset({str, bytes})


def _weight(value: Any, kind: type) -> int:
    """Return how many numbers ``value`` counts for. Tensors and arrays are known by their methods."""
    if kind in _TEXTS:
        return 1 + len(value) // 64
    if hasattr(value, "numel"):
        return 1 + int(value.numel())
    return int(value.size) if hasattr(value, "tobytes") else len(value) if hasattr(value, "__len__") else 1
