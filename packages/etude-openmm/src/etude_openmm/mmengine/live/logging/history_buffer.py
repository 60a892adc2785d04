"""MMEngine's HistoryBuffer: the values of a scalar over the iterations, and statistics of the last ones.

A tensor stays a tensor until the buffer is read. :func:`settle` turns the tensors of many buffers into numbers
together, so that a log line costs one transfer from the device, not one per scalar and iteration.
"""

from __future__ import annotations

import warnings
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

#: A buffer turns its tensors into numbers by itself after this many entries, so that it does not hold ever more.
_MOST_WAITING = 4096


class HistoryBuffer:
    """Holds values and the number of samples of each. The mean is the sum of values by the sum of counts."""

    _statistics_methods: ClassVar[OrderedDict[str, Callable[..., Any]]] = OrderedDict()

    def __init__(
        self, log_history: Sequence[Any] = (), count_history: Sequence[Any] = (), max_length: int = 1000000
    ) -> None:
        if len(log_history) != len(count_history):
            raise AssertionError("The lengths of log_history and count_histroy should be equal")
        if len(log_history) > max_length:
            warnings.warn(
                f"The length of history buffer({len(log_history)}) exceeds the max_length({max_length}): only the last "
                "entries are kept",
                stacklevel=2,
            )
        self._max_length = max_length
        self._set_default_statistics()
        self._values, self._counts = array("d", _floats(log_history)), array("d", _floats(count_history))
        self._waiting: list[Any] = []
        self._waiting_counts: list[float] = []
        self._whole = bool(len(log_history)) and _all_integers(log_history)
        self._trim()

    @classmethod
    def of_first_kind(cls) -> HistoryBuffer:
        """Return an empty buffer that gives back integers as long as only integers are added."""
        made = cls()
        made._whole = True
        return made

    @classmethod
    def _set_default_statistics(cls) -> None:
        for name in ("min", "max", "current", "mean"):
            cls._statistics_methods.setdefault(name, getattr(HistoryBuffer, name))

    # -- filling -------------------------------------------------------------------------------------------------

    def update(self, log_val: float, count: float = 1) -> None:
        """Add a number."""
        if not isinstance(log_val, (int, float)) or not isinstance(count, (int, float)):
            raise TypeError(
                f"log_val must be int or float but got {type(log_val)}, count must be int but got {type(count)}"
            )
        self.append(log_val, count)

    def append(self, value: Any, count: float = 1) -> None:
        """Add a number, or a detached tensor of one element that will not change any more.

        The tensor is read when the buffer is read.
        """
        if type(value) is float and not self._waiting:
            self._values.append(value)
            self._counts.append(count)
            self._whole = False
            if len(self._values) > self._max_length:
                self._trim()
            return
        self._waiting.append(value)
        self._waiting_counts.append(count)
        if len(self._waiting) >= _MOST_WAITING:
            settle((self,))

    def _trim(self) -> None:
        extra = len(self._values) - self._max_length
        if extra > 0:
            del self._values[:extra], self._counts[:extra]

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def max_length(self) -> int:
        """Return the largest number of entries that are kept."""
        return self._max_length

    @property
    def _log_history(self) -> np.ndarray:
        settle((self,))
        return np.array(self._values, dtype=np.int64 if self._whole and self._values else np.float64)

    @property
    def _count_history(self) -> np.ndarray:
        settle((self,))
        return np.array(self._counts)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and the counts."""
        return self._log_history, self._count_history

    def __len__(self) -> int:
        return min(len(self._values) + len(self._waiting), self._max_length)

    def _last(self, window_size: int | None) -> slice:
        """Return a slice of the last ``window_size`` entries; of all entries for None and 0."""
        settle((self,))
        if window_size is None:
            return slice(None)
        if not isinstance(window_size, int):
            raise AssertionError(f"The type of window size should be int, but got {type(window_size)}")
        return slice(-window_size, None) if window_size else slice(None)

    def mean(self, window_size: int | None = None) -> float:
        last = self._last(window_size)
        # As in MMEngine, values are not multiplied by their counts. These are the bits of np.sum, without its wrapper.
        return float(np.add.reduce(np.array(self._values[last])) / np.add.reduce(np.array(self._counts[last])))

    def max(self, window_size: int | None = None) -> float:
        return self._as_added(max(self._values[self._last(window_size)]))

    def min(self, window_size: int | None = None) -> float:
        return self._as_added(min(self._values[self._last(window_size)]))

    def current(self) -> float:
        """Return the newest value."""
        settle((self,))
        if not self._values:
            raise ValueError("HistoryBuffer._log_history is an empty array: call update first")
        return self._as_added(self._values[-1])

    def _as_added(self, value: float) -> float:
        """Return ``value`` as an int if only ints were added, so that a log line shows ``3`` and not ``3.0``."""
        return int(value) if self._whole else value

    def statistics(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Return the statistic ``mean``, ``max``, ``min``, ``current``, or one that was registered."""
        if method_name not in self._statistics_methods:
            raise KeyError(
                f"{method_name} has not been registered in HistoryBuffer._statistics_methods; "
                f"known: {', '.join(self._statistics_methods)}"
            )
        return self._statistics_methods[method_name](self, *args, **kwargs)

    @classmethod
    def register_statistics(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Make ``method(buffer, ...)`` available to :meth:`statistics` and to log configs, under its own name."""
        name = method.__name__
        if name in cls._statistics_methods:
            raise AssertionError(f"method_name cannot be registered twice, but {name} is known already")
        cls._statistics_methods[name] = method
        return method

    # -- saving --------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        values, counts = self.data
        return {"_max_length": self._max_length, "_log_history": values, "_count_history": counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_log_history"], state["_count_history"], state["_max_length"])  # type: ignore[misc]


def settle(buffers: Iterable[HistoryBuffer]) -> None:
    """Turn the waiting tensors of all ``buffers`` into numbers, with one transfer per device and dtype."""
    unsettled = [buffer for buffer in buffers if buffer._waiting]
    kinds: dict[tuple[torch.device, torch.dtype], list[tuple[list[Any], int]]] = {}
    for buffer in unsettled:
        for index, value in enumerate(buffer._waiting):
            if isinstance(value, torch.Tensor):
                kinds.setdefault((value.device, value.dtype), []).append((buffer._waiting, index))
    for places in kinds.values():
        scalars = [waiting[index] for waiting, index in places]
        if any(value.dim() for value in scalars):
            scalars = [value.reshape(()) for value in scalars]
        numbers = torch.stack(scalars).tolist()
        for (waiting, index), number in zip(places, numbers, strict=True):
            waiting[index] = number
    for buffer in unsettled:
        buffer._whole = buffer._whole and _all_integers(buffer._waiting)
        buffer._values.extend(buffer._waiting)
        buffer._counts.extend(buffer._waiting_counts)
        buffer._waiting.clear()
        buffer._waiting_counts.clear()
        buffer._trim()


def _all_integers(history: Sequence[Any]) -> bool:
    if isinstance(history, np.ndarray):
        return bool(history.dtype.kind in "iu")
    if isinstance(history, torch.Tensor):
        return not history.is_floating_point() and history.dtype is not torch.bool
    return all(type(value) is int or isinstance(value, np.integer) for value in history)


def _floats(history: Sequence[Any]) -> list[float]:
    if isinstance(history, (np.ndarray, torch.Tensor)):
        if history.ndim > 1:
            raise TypeError(
                f"a HistoryBuffer holds one number per entry, but got an array of {history.ndim} dimensions"
            )
        return [float(value) for value in history.tolist()]
    return [float(value) for value in history]
