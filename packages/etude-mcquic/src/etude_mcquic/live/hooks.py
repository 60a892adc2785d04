"""McQuic's six kinds of hooks. An object acts for all kinds that it implements, a function for its marked one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

import torch

from etude_mcquic.live.registry import HookRegistry, served_as

F = TypeVar("F", bound=Callable[..., Any])


class HookType(Enum):
    """The kinds of hooks."""

    BeforeRunHook = "beforeRunHook"
    AfterRunHook = "afterRunHook"
    EpochStartHook = "epochStartHook"
    EpochFinishHook = "epochFinishHook"
    StepStartHook = "stepStartHook"
    StepFinishHook = "stepFinishHook"


class BeforeRunHook(ABC):
    @abstractmethod
    def beforeRun(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


class AfterRunHook(ABC):
    @abstractmethod
    def afterRun(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


class EpochStartHook(ABC):
    @abstractmethod
    def epochStart(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


class EpochFinishHook(ABC):
    @abstractmethod
    def epochFinish(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


class StepStartHook(ABC):
    @abstractmethod
    def stepStart(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


class StepFinishHook(ABC):
    @abstractmethod
    def stepFinish(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> Any: ...


KINDS: dict[HookType, tuple[type, str]] = {
    HookType.BeforeRunHook: (BeforeRunHook, "beforeRun"),
    HookType.AfterRunHook: (AfterRunHook, "afterRun"),
    HookType.EpochStartHook: (EpochStartHook, "epochStart"),
    HookType.EpochFinishHook: (EpochFinishHook, "epochFinish"),
    HookType.StepStartHook: (StepStartHook, "stepStart"),
    HookType.StepFinishHook: (StepFinishHook, "stepFinish"),
}


def hook(kind: HookType) -> Callable[[F], F]:
    """Mark a plain function as a hook of this kind."""

    def mark(function: F) -> F:
        function.hookType = kind  # type: ignore[attr-defined]
        return function

    return mark


class ChainHook:
    """Calls several hooks in order. Nested chains are flattened, None is skipped."""

    def __init__(self, *hooks: Any) -> None:
        self.hooks: list[Callable[..., Any]] = []
        for item in hooks:
            self.hooks += item.hooks if isinstance(item, ChainHook) else [] if item is None else [item]

    def __len__(self) -> int:
        return len(self.hooks)

    def __call__(self, *args: Any, **kwds: Any) -> None:
        for item in self.hooks:
            item(*args, **kwds)

    def __repr__(self) -> str:
        return "ChainHook(\r\n    " + ",\r\n    ".join(_name(item) for item in self.hooks) + ")"


class FrequecyHook:
    """Calls functions when the step is a multiple of their frequency, 0 included, and returns their results."""

    def __init__(self, *pairs: tuple[int, Callable[..., Any]]) -> None:
        self.byFrequency: dict[int, list[Callable[..., Any]]] = {}
        for frequency, function in pairs:
            self.byFrequency.setdefault(frequency, []).append(function)

    def __call__(self, step: int, *args: Any, **kwds: Any) -> dict[int, list[Any]]:
        return self._due(step, step, *args, **kwds)

    def _due(self, number: int, *args: Any, **kwds: Any) -> dict[int, list[Any]]:
        return {
            frequency: [function(*args, **kwds) for function in functions]
            for frequency, functions in self.byFrequency.items()
            if number % frequency == 0
        }

    def __repr__(self) -> str:
        rows = "\r\n".join(
            f"    {frequency}:\r\n        [{', '.join(f'<{_name(f)}>' for f in functions)}]"
            for frequency, functions in self.byFrequency.items()
        )
        return f"FrequencyHook(\r\n{rows}\r\n)"


class EpochFrequencyHook(FrequecyHook):
    """Calls functions by epoch, in inference mode. They get the epoch as first argument."""

    @torch.inference_mode()
    def __call__(self, step: int, epoch: int, *args: Any, **kwds: Any) -> dict[int, list[Any]]:
        return self._due(epoch, epoch, step, epoch, *args, **kwds)


def getAllHooks(hooks: Iterable[Any]) -> dict[str, ChainHook]:
    """Build the hooks of all entries (``key``, ``params``), and return them in six chains."""
    made = []
    for entry in hooks:
        key = entry["key"] if isinstance(entry, Mapping) else entry.Key
        params = entry["params"] if isinstance(entry, Mapping) else entry.Params
        found = HookRegistry.get(key)
        # As in McQuic, the params of a function are ignored.
        made.append(found if hasattr(found, "hookType") else found(**params))
    return splitHooks(*made)


def splitHooks(*hooks: Any) -> dict[str, ChainHook]:
    """Return one chain per kind. An object is in the chain of every kind that it implements."""
    chains: dict[HookType, list[Any]] = {kind: [] for kind in KINDS}
    for item in hooks:
        kinds = [kind for kind, (base, _) in KINDS.items() if isinstance(item, base)]
        for kind in kinds:
            chains[kind].append(getattr(item, KINDS[kind][1]))
        if not kinds:
            if not hasattr(item, "hookType"):
                raise ValueError(f"Unknown hook type of given value `{item}`.")
            chains[item.hookType].append(item)
    return {kind.value: ChainHook(*items) for kind, items in chains.items()}


@HookRegistry.register
@served_as("mcquic.train.hooks")
class DisablePostProcessAfterEpoch(EpochStartHook):
    """Turns the model's post-processing off after this epoch; never for 0 and less."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def epochStart(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> None:
        # Strictly greater, as in McQuic 0.1.40: the epoch of that number still has it.
        trainer._model.PostProcessEnabled = not (epoch > self.epoch > 0)


@HookRegistry.register
@served_as("mcquic.train.hooks")
class CodebookReassign(EpochFinishHook):
    """Reassigns unused code words every ``freq`` epochs."""

    def __init__(self, freq: int) -> None:
        if freq < 1:
            raise ValueError(f"freq must be at least 1, not {freq}")
        self.freq = freq

    def epochFinish(self, step: int, epoch: int, trainer: Any, *args: Any, logger: Any, **kwds: Any) -> None:
        if epoch % self.freq == 0:
            proportion = trainer._model.refresh(trainer.rank)
            logger.add_scalar("Stat/ReAssignProportion", proportion, global_step=step)


def _name(function: Any) -> str:
    if isinstance(function, FrequecyHook):
        return repr(function)
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{function.__name__}"
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
