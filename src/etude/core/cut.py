"""A step that was cut off between its hooks: what was done, so that a resumed run does the rest and nothing twice.

An evaluation inside a step may take long and is abandoned on a signal; a hook may raise after the update. Both leave a
state in which the step's update is done and some of its hooks have acted. A checkpoint of such a state has a part
``cut`` that names them; the run that goes on from it calls the others before its first step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.core.hook import Hook
from etude.core.run import Part, Run, named_hooks
from etude.data.loader import Loader

PART = "cut"


def within_step(run: Run) -> bool:
    """Whether the update of the current step is done and its hooks are acting."""
    return run.done == run.step + 1


def before(run: Run, hook: Hook) -> dict[str, Any]:
    """The part ``cut`` for a step whose hooks before ``hook`` have acted."""
    acted = run.hooks.after_step.until(hook)
    return {"acted": [name for name, other in named_hooks(run.hooks) if any(other is one for one in acted)]}


def finish(run: Run) -> None:
    """The rest of the step that a checkpoint left unfinished, if it did."""
    if run.cut is None:
        return
    cut, run.cut = run.cut, None
    acted = [hook for name, hook in named_hooks(run.hooks) if name in cut["acted"]]
    run.batch, run.outputs = cut.get("batch"), cut.get("outputs")
    run.model.train()
    run.step, run.step_in_epoch = run.step - 1, run.step_in_epoch - 1
    run.hooks.after_step.rest(run, acted)
    run.step, run.step_in_epoch = run.step + 1, run.step_in_epoch + 1


def left_by(run: Run, point: str, hook: Hook) -> dict[str, Any] | None:
    """Further parts for a checkpoint of the state in which ``hook`` raised at ``point``; None where it is no state to
    go on from: inside an update, or where a hook that keeps a state of its own would act twice."""
    if point == "after_step" and within_step(run) and not isinstance(hook, Part):
        return {PART: {**before(run, hook), "batch": run.batch, "outputs": run.outputs}}
    if point not in ("before_step", "before_epoch"):
        return None
    calls = [getattr(run.hooks, point).until(hook), [hook]]
    if point == "before_step" and run.step_in_epoch == 0:
        calls.append(list(run.hooks.before_epoch.hooks))
    if any(isinstance(other, Part) for some in calls for other in some):
        return None
    return {} if point == "before_epoch" else _handed_back(run)


def _handed_back(run: Run) -> dict[str, Any] | None:
    """The position of the data without the batch of the step that has not begun."""
    loader = run.data.get("train")
    if not isinstance(loader, Loader) or loader.stream:
        return None
    state: Mapping[str, Any] = loader.state_dict()
    return {"data.train": {**state, "batch": run.step_in_epoch}}
