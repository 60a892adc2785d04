"""Holds the state of a training run while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from etude.core.hook import Call, Hook, HookTable
from etude.dist.layout.mesh import Mesh
from etude.dist.world import World
from etude.errors import UserError
from etude.errors.spelling import suggest
from etude.events.record import Events

if TYPE_CHECKING:
    import torch

    from etude.core.update import Update
    from etude.plan import Plan


@runtime_checkable
class Part(Protocol):
    """Has a state that a checkpoint holds."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


@dataclass(repr=False)
class Run:
    """Holds the objects and counters of a run. ``core.loop`` trains it; :meth:`stop` ends it.

    ``step`` and ``epoch`` increase after the hooks of ``after_step`` and ``after_epoch``: a hook sees the number of the
    current step, counted from zero. ``done`` and ``epochs_done`` count finished ones, with the current one at these
    points. ``step_in_epoch`` is the position within the epoch. ``total_steps`` and ``steps_per_epoch`` are None if the
    data has no length. ``outputs`` is what the update returned for the last batch, ``metrics`` what the last evaluation
    gave.
    """

    model: torch.nn.Module
    update: Update
    loop: Callable[[Run], None]
    hooks: HookTable = field(default_factory=HookTable)
    data: dict[str, Iterable[Any]] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    evaluation: Any = None
    events: Events = field(default_factory=Events)
    store: Any = None
    world: World = field(default_factory=World)
    #: Where this rank is among all; None: every rank has a share of the data, and the whole model or shards of it.
    mesh: Mesh | None = None
    #: The other ranks (``dist.peers.Peers``); None where a process is alone.
    peers: Any = None
    #: The time that decisions are taken by: with several ranks the same on all of them.
    clock: Callable[[], float] = monotonic
    plan: Plan | None = None
    #: Whether every step gets a row in ``ledger.bin``.
    ledger: bool = True
    #: The ledger while it is open. A checkpoint that another system writes keeps its ``state_dict()``.
    history: Part | None = None
    #: That state in the checkpoint which the runner of another system, or a rank, resumes from.
    history_state: Mapping[str, Any] | None = None
    folder: Path | None = None
    #: The runner or trainer of another system that this run belongs to.
    runner: Any = None
    #: What trains this run from ``before_run`` to ``after_run``; None: :func:`etude.core.loop.fit`.
    train_fn: Any = None

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    #: Where the loop is: ``data`` (it gets the next batch), ``step``, ``after_step``, ``after_epoch``, or empty.
    stage: str = ""
    #: The hook's call that is at work, or "update", "evaluation", "checkpoint"; read by other threads, to say what
    #: a run does.
    acting: Call | str | None = None
    total_steps: int | None = None
    max_epochs: int | None = None
    steps_per_epoch: int | None = None

    batch: Any = None
    outputs: Any = None
    #: The loss of the last step and the norm of its gradients, on their device; None where the update has none.
    loss: Any = None
    norm: Any = None
    #: The indices of the samples in the last batch, where the loader of ``data["train"]`` does not know them.
    samples: Any = None
    metrics: dict[str, float] = field(default_factory=dict)
    stopping: str | None = None
    exit_code: int = 0
    #: The exception that ended the run, if it failed; set before ``on_error`` and ``after_train``.
    error: BaseException | None = None
    #: Further parts of a checkpoint, by name (a dialect's, a user's); see :meth:`parts`.
    extra_parts: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events.moment = self._moment

    @property
    def place(self) -> Mesh:
        """Where this rank is among all."""
        return self.mesh or Mesh.flat(self.world)

    def stop(self, reason: str, *, exit_code: int = 0) -> None:
        """End the run after the current step. The first reason stays."""
        if self.stopping is None:
            self.stopping, self.exit_code = reason, exit_code

    @property
    def done(self) -> int:
        """Finished steps; at ``after_step`` the current one counts."""
        return self.step + 1 if self.stage == "after_step" else self.step

    @property
    def epochs_done(self) -> int:
        """Finished epochs; at ``after_epoch`` the current one counts."""
        return self.epoch + 1 if self.stage == "after_epoch" else self.epoch

    @property
    def last_epoch(self) -> int:
        """The epoch of the last finished step, from 0: what a record of that step says, whenever it is written."""
        between = self.step_in_epoch == 0 and self.stage != "after_step"
        return max(0, self.epoch - 1) if between else self.epoch

    def _moment(self) -> tuple[int, int]:
        """Step and epoch of what a hook sees now: a step counts from its beginning."""
        return (self.step + 1, self.epoch) if self.stage == "step" else (self.done, self.last_epoch)

    def plot(self, *names: str) -> Any:
        """Return a plotly figure of what this run has recorded: ``run.plot("train/loss")``, or losses and metrics."""
        from etude.preview.notebook import figure

        history = self._history()
        if history and (unknown := [name for name in names if name not in history]):
            raise UserError(f"the run has no curve {unknown[0]!r}; {suggest(unknown[0], history)}")
        usual = [name for name in history if name == "train/loss" or name.startswith("val/")]
        return figure({name: history.get(name, []) for name in names or usual or history})

    def _history(self) -> dict[str, list[tuple[float, float]]]:
        writers = self.events.writers
        return next((writer.curves for writer in writers if hasattr(writer, "curves")), {})

    def __repr__(self) -> str:
        whole = f" of {self.total_steps}" if self.total_steps else ""
        words = [type(self.model).__name__, f"step {self.step}{whole}"]
        words += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        return f"<Run: {', '.join(words)}{f', {self.folder}' if self.folder is not None else ''}>"

    def _repr_html_(self) -> str:
        from etude.preview.draw import svg
        from etude.preview.notebook import table

        whole = f" of {self.total_steps}" if self.total_steps else ""
        rows: dict[str, Any] = {"model": type(self.model).__name__, "step": f"{self.step}{whole}"}
        rows |= {"folder": self.folder} if self.folder is not None else {}
        rows |= {name: f"{value:.5g}" for name, value in self.metrics.items()}
        curves = {name: points for name, points in self._history().items() if len(points) > 1}
        usual = {name: points for name, points in curves.items() if name == "train/loss" or name.startswith("val/")}
        return table(rows, title=self.plan.name if self.plan is not None else "run") + svg(usual, "")

    def parts(self) -> dict[str, Part]:
        """Return everything whose state a checkpoint has to hold for an exact resume, in the order it is loaded."""
        named: dict[str, Any] = {"model": self.model}
        for name, optimizer in self.optimizers.items():
            named[f"optimizer.{name}" if name else "optimizer"] = getattr(optimizer, "etude_part", optimizer)
        named["update"] = self.update
        named["loop"] = self.loop
        named |= {f"data.{split}": loader for split, loader in self.data.items()}
        named |= {f"hook.{name}": hook for name, hook in named_hooks(self.hooks)}
        named["events"] = self.events
        named |= self.extra_parts
        named["counters"] = Counters(self)
        return {name: part for name, part in named.items() if is_part(part)}


def is_part(value: Any) -> bool:
    """Return whether ``value`` has a state, as ``isinstance(value, Part)`` does with far more work."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class Counters:
    """Saves the counters of a run. Saved at a point, they tell a resumed run where to continue after that point."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        run = self.run
        within = 0 if run.stage == "after_epoch" else run.step_in_epoch + run.done - run.step
        # A run that a hook ended stays ended after a resume; one that a signal ended continues.
        ended = run.stopping if run.exit_code == 0 else None
        return {
            "step": run.done,
            "epoch": run.epochs_done,
            "step_in_epoch": within,
            "metrics": dict(run.metrics),
            "ended": ended,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        run = self.run
        run.step, run.epoch, run.stage = int(state["step"]), int(state["epoch"]), ""
        run.step_in_epoch = int(state["step_in_epoch"])
        run.metrics = dict(state.get("metrics", {}))
        run.stopping = state.get("ended")
        run.hooks.rewind()


def named_hooks(hooks: Iterable[Hook]) -> list[tuple[str, Hook]]:
    """Return the hooks with names that are unique within the run: ``Ema``, ``Ema#2``."""
    every = list(hooks)
    return list(zip(numbered(hook.name for hook in every), every, strict=True))


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names, with a number after each repeated one: ``Ema``, ``Ema#2``."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique
