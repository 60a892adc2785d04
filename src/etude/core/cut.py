"""A step that was cut off between its hooks: what was done, so that a resumed run does the rest and nothing twice.

An evaluation inside a step may take long and is abandoned on a signal; a hook may raise after the update. Both leave a
state in which the step's update is done and some of its hooks have acted. A checkpoint of such a state has a part
``cut`` that names them; the run that resumes from it calls the others before its first step of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from traceback import walk_tb
from typing import Any

from etude.checkpoint.encode import encode
from etude.core.hook import Hook
from etude.core.run import Part, Run, named_hooks
from etude.core.state import Generators
from etude.data.loader import Loader
from etude.errors import UserCodeError

PART = "cut"
_LOOP = "etude.core.loop"


def within_step(run: Run) -> bool:
    """Whether the update of the current step is done and its hooks are acting."""
    return run.done == run.step + 1


def before(run: Run, hook: Hook, *, most: float = math.inf) -> dict[str, Any]:
    """The part ``cut`` for a step whose hooks before ``hook`` have acted, with what the others will look at: the batch
    and the outputs, as far as they can be saved and each has no more than ``most`` bytes."""
    acted = run.hooks.after_step.until(hook)
    outputs = run.outputs
    if isinstance(outputs, Mapping):
        outputs = {key: value for key, value in outputs.items() if _bytes_of({key: value}) <= most}
    return {
        "acted": [name for name, other in named_hooks(run.hooks) if _is_among(other, acted)],
        "batch": run.batch if _bytes_of(run.batch) <= most else None,
        "outputs": outputs if isinstance(outputs, Mapping) or _bytes_of(outputs) <= most else None,
    }


def finish(run: Run) -> None:
    """The rest of the step that a checkpoint left unfinished, if it did."""
    if run.cut is None:
        return
    cut, run.cut = run.cut, None
    acted = [hook for name, hook in named_hooks(run.hooks) if name in cut["acted"]]
    run.batch, run.outputs = cut.get("batch"), cut.get("outputs")
    run.model.train()
    run.step, run.step_in_epoch, run.done = run.step - 1, run.step_in_epoch - 1, run.done - 1
    _remind(run, acted)
    run.done += 1
    run.hooks.after_step.rest(run, acted)
    run.step, run.step_in_epoch = run.step + 1, run.step_in_epoch + 1


def _remind(run: Run, acted: list[Hook]) -> None:
    """Have those that will end the step begin it once more: what they note then (a time) is in no checkpoint.

    What a checkpoint does hold, their states, the records and the generators, is afterwards as it was.
    """
    waiting = [hook for hook in run.hooks.after_step.hooks if not _is_among(hook, acted)]
    others = [hook for hook in run.hooks.before_step.hooks if not _is_among(hook, waiting)]
    parts: list[Any] = [Generators(), run.events, *(hook for hook in waiting if isinstance(hook, Part))]
    states = [deepcopy(part.state_dict()) for part in parts]
    run.hooks.before_step.rest(run, others)
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)


def left_by(run: Run, point: str, hook: Hook) -> dict[str, Any] | str:
    """Further parts for a checkpoint of the state in which ``hook`` raised at ``point``, or why there is no state to go
    on from: inside an update, or where a hook whose own state is not known any more would act twice."""
    if point == "after_step" and isinstance(hook, Part) and run.hooks.after_step.kept(hook) is None:
        return f"hook {hook.name} may have changed its state"
    if point == "after_step" and within_step(run):
        states = _states_before(run, {point: [hook]})
        return states if isinstance(states, str) else {PART: before(run, hook), **states}
    if point not in ("before_step", "before_epoch"):
        return "it was raised inside an update" if point in ("after_forward", "before_update") else ""
    acting = {point: [*getattr(run.hooks, point).until(hook), hook]}
    if point == "before_step" and run.step_in_epoch == 0:
        acting = {"before_epoch": run.hooks.before_epoch.hooks, **acting}
    states = _states_before(run, acting)
    position = {} if point == "before_epoch" else handed_back(run)
    if point == "before_step" and not position:
        return "the data cannot take the batch back"
    return states if isinstance(states, str) else {**position, **states}


def left_between(run: Run, error: BaseException) -> dict[str, Any] | str:
    """The same for an error that came while the next batch was being made, when no step was under way."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == _LOOP]
    if not frames or frames[-1].f_code.co_name != "train_epoch":
        return ""
    if not isinstance(run.data.get("train"), Loader):
        return "a loader of another make may have drawn random numbers before it failed"
    return _states_before(run, {"before_epoch": run.hooks.before_epoch.hooks} if run.step_in_epoch == 0 else {})


def _states_before(run: Run, acting: Mapping[str, Iterable[Hook]]) -> dict[str, Any] | str:
    """The states that hooks had before they acted at these points of this step, or which of them is not known."""
    names = {id(hook): name for name, hook in named_hooks(run.hooks)}
    states: dict[str, Any] = {}
    for point, hooks in acting.items():
        for hook in hooks:
            kept = getattr(run.hooks, point).kept(hook)
            if kept is None or kept.step != run.step:
                continue
            if kept.state is None:
                return f"hook {names[id(hook)]} keeps more than is copied at every step"
            states.setdefault(f"hook.{names[id(hook)]}", kept.state)
    return states


def handed_back(run: Run) -> dict[str, Any]:
    """The position of the data without the batch of a step that is not done; nothing where they are a stream."""
    loader = run.data.get("train")
    if not isinstance(loader, Loader) or loader.stream or loader.epoch != run.epoch:
        return {}
    state: Mapping[str, Any] = loader.state_dict()
    return {"data.train": {**state, "batch": run.step_in_epoch + run.done - run.step}}


def _is_among(hook: Hook, hooks: Iterable[Hook]) -> bool:
    return any(hook is one for one in hooks)


def _bytes_of(value: Any) -> float:
    """What its tensors take; NaN, which is no more and no less than anything, where it cannot be saved."""
    try:
        return sum(tensor.numel() * tensor.element_size() for tensor in encode(PART, value).tensors.values())
    except UserCodeError:
        return math.nan
