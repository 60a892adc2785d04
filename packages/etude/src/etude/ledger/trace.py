"""Traces one step of a run down to its operators: digests of the state before it, of its batch, and of what goes into
each operator and comes out. Run as ``python -m etude.ledger.trace RUN STEP FILE RANK``, in the environment
to be looked at.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude import torch_private
from etude.config import run_files
from etude.core.hook import Hook
from etude.core.run import Run
from etude.dist.world import World
from etude.errors import EtudeError
from etude.ledger.rebuild import ledger_of, newest_before, rebuilt, require_replayable, run_to

#: Operators that only look at a tensor, or make one without values.
_PASSIVE = (
    "detach", "alias", "view", "_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty",
    "new_empty_strided", "lift_fresh",
)  # fmt: skip
#: Operators that overwrite their first argument, whatever it held: memory that nobody has set differs by chance.
_OVERWRITING = (
    "bernoulli_", "uniform_", "normal_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_", "zero_",
    "fill_", "copy_", "arange",
)  # fmt: skip
_MOST_OPERATORS = 200_000
#: What a number or a word among the inputs of an operator begins with; the others are digests of tensors.
CONSTANT = "="


class Tracing(Hook):
    """Traces one step; all other steps are left alone."""

    priority = -(1 << 29)

    def __init__(self, step: int) -> None:
        self.step = step
        self.found: dict[str, Any] = {}
        #: Notes what the other hooks have changed; it has to be added, too.
        self.last = _Leaving(self)
        self._mode: Operators | None = None
        self._handles: list[Any] = []

    def before_step(self, run: Run) -> None:
        if run.step + 1 != self.step:
            return
        self.found = {
            "weights": _weights(run),
            "optimizers": {
                name: [digest(value) for value in _tensors(optimizer.state_dict()["state"])]
                for name, optimizer in run.optimizers.items()
            },
            "generator": digest(torch.get_rng_state()),
            "batch": [digest(value) for value in _tensors(run.batch)],
            "threads": torch.get_num_threads(),
            "training": run.model.training,
            "hooks": [hook.name for hook in run.hooks if hook is not self and hook is not self.last],
        }
        self._mode = Operators(run)
        for name, module in run.model.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._enter(name)))
            self._handles.append(module.register_forward_hook(self._leave))
        self._mode.__enter__()

    def _enter(self, name: str) -> Any:
        return lambda module, inputs: self._mode.modules.append(name) if self._mode else None

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        if self._mode is not None:
            self._mode.modules.pop()

    def after_step(self, run: Run) -> None:
        # The runner of another system may update in a hook.
        if run.step + 1 == self.step and run.train_fn is None:
            self.finish(run)
            self.found["updated"] = _weights(run)

    def finish(self, run: Run) -> None:
        """End the trace of the step. A schedule has set what the step was done with only after it had begun."""
        if self._mode is None:
            return
        self._mode.__exit__(None, None, None)
        if run.train_fn is not None:
            self.found["left"] = _weights(run)
            self.found["batch"] = [digest(value) for value in _tensors(run.batch)]
        self.found["operators"], self._mode = self._mode.seen, None
        self.found["settings"] = {name: _settings(optimizer) for name, optimizer in run.optimizers.items()}
        for handle in self._handles:
            handle.remove()


class _Leaving(Hook):
    """Notes the weights after all other hooks have acted."""

    priority = 1 << 29

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def after_step(self, run: Run) -> None:
        if run.step + 1 == self._tracing.step and run.train_fn is None:
            self._tracing.found["left"] = _weights(run)


class Operators(torch_private.operator_mode()):  # type: ignore[misc]
    """Notes each operator: name, module or hook, digests of its inputs and of its outputs."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self.seen: list[tuple[str, str, list[str], list[str]]] = []
        self.modules: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.")
        kind = name.partition(".")[0]
        if len(self.seen) >= _MOST_OPERATORS or kind in _PASSIVE or name.startswith("profiler."):
            return func(*args, **kwargs)
        read = (args[1:] if kind in _OVERWRITING else args, kwargs)
        before = [digest(value) for value in _tensors(read)] + [f"{CONSTANT}{one!r}" for one in _plain(read)]
        result = func(*args, **kwargs)
        # An operator in place has its result in an argument.
        after = [digest(value) for value in _tensors((result, args, kwargs))]
        self.seen.append((name, self.modules[-1] if self.modules else self._hook(), before, after))
        return result

    def _hook(self) -> str:
        found = None if self._run.acting is None else self._run.hooks.acting(self._run.acting)
        return "" if found is None else f"hook {found[0].name}"


def digest(value: Tensor) -> str:
    """Return a digest of shape, type and bits of a tensor."""
    with torch.no_grad():
        value = value.detach().cpu().contiguous()
        head = f"{tuple(value.shape)}{value.dtype}".encode()
        body = value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return hashlib.blake2b(head + body, digest_size=8).hexdigest()


def _weights(run: Run) -> dict[str, str]:
    """Return type, shape and digest of each entry in the model's state."""
    state = run.model.state_dict().items()
    return {
        name: f"{str(value.dtype).removeprefix('torch.')} {'×'.join(map(str, value.shape))} {digest(value)}"
        for name, value in state
        if isinstance(value, Tensor)
    }


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _tensors(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _plain(value: Any) -> Iterator[Any]:
    if isinstance(value, bool | int | float | str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _plain(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _plain(item)


def _settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the optimizer's type and the plain options of each parameter group."""
    return [
        {"type": type(optimizer).__name__}
        | {key: float(value) if isinstance(value, Tensor) else value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]


def packages() -> dict[str, str]:
    """Return the installed packages with their versions."""
    return {
        str(one.metadata["Name"]): one.version for one in importlib.metadata.distributions() if one.metadata["Name"]
    }


def trace(folder: Path, step: int) -> dict[str, Any]:
    """Run up to ``step`` and return what was seen in it, and whether all steps came out as in the ledger."""
    ledger = ledger_of(folder)
    require_replayable(folder)
    checkpoint = newest_before(folder, step)
    with rebuilt(folder, checkpoint) as (run, session):
        tracing = Tracing(step)
        comparing = run_to(step, run, session, ledger, [tracing, tracing.last])
        environment = {"python": sys.version.split()[0], "torch": torch.__version__, "packages": packages()}
        start = checkpoint.rpartition("/")[2]
        # The state before a step is only that of the checkpoint if the step is the first one after it.
        begun = start if start and step == comparing.start + 1 else ""
        return {**tracing.found, "checkpoint": begun, "different": comparing.different, "environment": environment}


def main(words: list[str]) -> int:
    folder, step, file, rank = words
    count = run_files.processes(folder)
    if count > 1 and "ETUDE_LAUNCHER" not in os.environ:
        from etude.dist.jobs.launch import Launch, launch

        return launch(words, Launch(nproc=count, max_restarts=0), main)
    try:
        found = trace(Path(folder), int(step))
    except EtudeError as error:
        print(f"etude: error: {error}", file=sys.stderr)
        return error.exit_code
    if World.from_environment().rank == int(rank):
        Path(file).write_text(json.dumps(found, default=repr))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
