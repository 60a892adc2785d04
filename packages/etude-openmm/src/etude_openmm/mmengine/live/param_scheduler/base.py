"""The base class of MMEngine's parameter schedulers: window, counters, and when a value is written.

A scheduler steps when it is made (global step 0) and then once per :meth:`_ParamScheduler.step`. Inside its
window it computes the next value of every group from the *current* one, so schedulers that overlap multiply, and a
value that a hook has set is the start of the next step. Outside the window nothing is written.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Self

from etude_openmm.mmengine.live.logging.logger import print_log

#: The default end of a scheduler.
INF = int(1e9)

_HOW_TO = "see https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class _ParamScheduler:
    """Changes one entry (``param_name``) of all parameter groups. Subclasses compute the new values.

    ``optimizer`` is a torch optimizer or an optim wrapper: anything with ``param_groups`` and ``step``.
    """

    need_val_args: bool = False

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        begin: int = 0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"``optimizer`` should be an Optimizer, but got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.param_name = param_name
        if end <= begin:
            raise ValueError(f"end should be larger than begin, but got begin={begin}, end={end}")
        self.begin, self.end, self.by_epoch = begin, end, by_epoch
        if not isinstance(last_step, int) or last_step < -1:
            raise AssertionError(f"last_step must be an integer from -1 on, but got {last_step!r}")
        self.base_values = self._base_values(resuming=last_step != -1)
        self.last_step = last_step
        _note_first_step(optimizer)
        self._global_step = -1
        self.verbose = verbose
        self._last_value: list[float] = []
        self._initial_step()

    def _base_values(self, *, resuming: bool) -> list[float]:
        """Return the initial value of every group. It is stored in the group, so that all schedulers share it."""
        key = f"initial_{self.param_name}"
        groups = self.optimizer.param_groups
        for index, group in enumerate(groups):
            if not resuming:
                group.setdefault(key, group[self.param_name])
            elif key not in group:
                raise KeyError(f"param {key!r} is not specified in param_groups[{index}] when resuming an optimizer")
        return [group[key] for group in groups]

    def _initial_step(self) -> None:
        self.step()

    def _get_value(self) -> list[float]:
        """Return the next value of every group, from its current one and ``self.last_step``."""
        raise NotImplementedError(f"{type(self).__name__} gives no values")

    def step(self) -> None:
        """Increase the counter; inside the window, set the next value of every group."""
        waits = getattr(self.optimizer, "_accumulative_counts", 1) > 1  # accumulation: the first step comes later
        if self._global_step == 0 and getattr(self.optimizer, "_global_step", 0) < 0 and not waits:
            warnings.warn(
                "Detected call of `scheduler.step()` before `optimizer.step()`, so the first value is skipped; or "
                f"`optimizer.step()` has been overridden after the scheduler was made; {_HOW_TO}",
                UserWarning,
                stacklevel=2,
            )
        self._global_step += 1
        groups, name = self.optimizer.param_groups, self.param_name
        if self.begin <= self._global_step < self.end:
            self.last_step += 1
            self._write(groups, self._get_value())
        self._last_value = [group[name] for group in groups]

    def _write(self, groups: list[dict[str, Any]], values: list[float]) -> None:
        name = self.param_name
        for group, value in zip(groups, values, strict=False):  # groups may have been added since
            group[name] = value
        if self.verbose:
            for index, value in enumerate(values[: len(groups)]):
                self.print_value(True, index, value)

    def get_last_value(self) -> list[float]:
        """Return the values after the last :meth:`step`, one per group."""
        return self._last_value

    def print_value(self, is_verbose: bool, group: int, value: float) -> None:
        """Log the new value of a group if ``is_verbose``."""
        if is_verbose:
            print_log(f"Adjusting parameter value of group {group} to {value:.4e}.", logger="current")

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes except the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set all attributes from a state of :meth:`state_dict`."""
        self.__dict__.update(state_dict)


class Recurrence(_ParamScheduler):
    """A scheduler that changes each group on its own, and that can be converted from epochs to iterations."""

    #: Arguments that count steps, numbers or lists. They are multiplied when epochs are converted to iterations.
    in_steps: ClassVar[tuple[str, ...]] = ()

    def _next(self, value: float, base: float) -> float:
        """Return the next value of a group from its current ``value`` and its ``base`` value."""
        raise NotImplementedError

    def _get_value(self) -> list[float]:
        groups, name, following = self.optimizer.param_groups, self.param_name, self._next
        return [following(group[name], base) for group, base in zip(groups, self.base_values, strict=False)]

    @classmethod
    def build_iter_from_epoch(
        cls,
        *args: Any,
        begin: float = 0,
        end: float = INF,
        by_epoch: bool = True,
        epoch_length: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build a scheduler from arguments in epochs that steps every iteration."""
        if not by_epoch:
            raise AssertionError("Only epoch-based kwargs whose `by_epoch=True` can be converted to iter-based.")
        if epoch_length is None or epoch_length <= 0:
            raise AssertionError(f"`epoch_length` must be a positive integer, but got {epoch_length}.")
        # As in MMEngine, ``gamma`` is not adapted: an exponential decays at every iteration then.
        for key in cls.in_steps:
            if kwargs.get(key) is not None:
                kwargs[key] = _times(kwargs[key], epoch_length)
        kwargs["begin"] = int(begin * epoch_length)
        kwargs["end"] = INF if end == INF else int(end * epoch_length)
        kwargs["by_epoch"] = False
        return cls(*args, **kwargs)


def _times(steps: Any, length: int) -> Any:
    return [each * length for each in steps] if isinstance(steps, (list, tuple)) else steps * length


def _note_first_step(optimizer: Any) -> None:
    """Record whether the optimizer has stepped: ``_global_step`` is -1 until its first step, then 0.

    The wrapper around ``optimizer.step`` removes itself at the first call, so that it costs nothing later.
    """
    optimizer._global_step = -1
    step: Callable[..., Any] = optimizer.step
    if getattr(step, "_with_counter", False):
        return
    on_instance = "step" in vars(optimizer)

    @wraps(step)
    def first(*args: Any, **kwargs: Any) -> Any:
        optimizer._global_step = 0
        if vars(optimizer).get("step") is first:
            if on_instance:
                optimizer.step = step
            else:
                del optimizer.step
        return step(*args, **kwargs)

    first._with_counter = True  # type: ignore[attr-defined]
    optimizer.step = first
