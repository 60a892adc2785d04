"""LiBai's ``EventStorage``, which holds the scalars, images and histograms of training for writers and hooks.

A recorded tensor stays on its device. All waiting tensors are read in one transfer when a value is asked for.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from etude.events.record import numbers_of
from etude_libai.live.events.history import HistoryBuffer

_STACK: list[Any] = []

#: At most this many values wait, so that a run that never reads them does not keep tensors for ever.
_MOST_WAITING = 4096


def get_event_storage() -> Any:
    """Return the storage of the innermost ``with EventStorage(…)``."""
    assert len(_STACK), "get_event_storage() has to be called inside a 'with EventStorage(...)' context!"
    return _STACK[-1]


def has_event_storage() -> bool:
    return len(_STACK) > 0


class EventStorage:
    """Holds scalars with histories, images and histograms, each with its iteration.

    Several threads may record and read at once, as metrics that are written in the background do.
    """

    _samples: int

    def __init__(self, start_iter: int = 0) -> None:
        self._buffers: defaultdict[str, HistoryBuffer] = defaultdict(HistoryBuffer)
        self._smoothing_hints: dict[str, bool] = {}
        self._newest: dict[str, tuple[float, int]] = {}
        self._iter = start_iter
        self._current_prefix = ""
        self._vis_data: list[tuple[str, Any, int]] = []
        self._histograms: list[dict[str, Any]] = []
        self._waiting: list[tuple[str, Any, int]] = []
        self._lock = threading.RLock()

    # -- recording -----------------------------------------------------------------------------------------------

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def put_scalar(self, name: str, value: Any, smoothing_hint: bool = True, cur_iter: int | None = None) -> None:
        """Record a number or a tensor of one element. The hint of a name may not change (``cur_iter``: detectron2)."""
        self._put(name, value, smoothing_hint, self._iter if cur_iter is None else cur_iter)

    def put_scalars(self, *, smoothing_hint: bool = True, cur_iter: int | None = None, **kwargs: Any) -> None:
        """Record several scalars at once: ``put_scalars(loss=…, accuracy=…)``."""
        for name, value in kwargs.items():
            self.put_scalar(name, value, smoothing_hint=smoothing_hint, cur_iter=cur_iter)

    def _put(self, name: str, value: Any, smoothing_hint: bool, iteration: int) -> None:
        name = self._current_prefix + name
        value = held(value)
        known = self._smoothing_hints.get(name)
        assert known is None or known == smoothing_hint, f"Scalar {name} was put with a different smoothing_hint!"
        with self._lock:
            self._smoothing_hints[name] = smoothing_hint
            if self._waiting or hasattr(value, "detach"):
                self._waiting.append((name, value, iteration))
                if len(self._waiting) >= _MOST_WAITING:
                    self._settle()
            else:
                self._record(name, value, iteration)

    def _record(self, name: str, value: float, iteration: int) -> None:
        self._buffers[name].update(value, iteration)
        self._newest[name] = (value, iteration)

    def _settle(self) -> None:
        """Read all waiting tensors in one transfer, in the order of recording."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
            numbers = numbers_of([value for _, value, _ in waiting])
            for (name, _, iteration), number in zip(waiting, numbers, strict=True):
                self._record(name, number, iteration)

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Queue an image (C×H×W) for the TensorBoard writer."""
        self._vis_data.append((img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: Any, bins: int = 1000) -> None:
        """Queue the distribution of a tensor for the TensorBoard writer."""
        self._histograms.append(histogram(hist_name, hist_tensor, bins, self._iter))

    def clear_images(self) -> None:
        self._vis_data = []

    def clear_histograms(self) -> None:
        self._histograms = []

    # -- reading -------------------------------------------------------------------------------------------------

    def history(self, name: str) -> HistoryBuffer:
        found = self.histories().get(name)
        if found is None:
            raise KeyError(f"No history metric available for {name}!")
        return found

    def histories(self) -> Mapping[str, HistoryBuffer]:
        """Return all histories by name, in the order of first use."""
        self._settle()
        return self._buffers

    def latest(self) -> dict[str, tuple[float, int]]:
        """Return the latest value and its iteration, by name."""
        self._settle()
        return self._newest

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """Return :meth:`latest`, with the median of the window for scalars that are to be smoothed."""
        with self._lock:
            return {
                name: (self._smoothed(name, window_size) if self._smoothing_hints[name] else value, iteration)
                for name, (value, iteration) in self.latest().items()
            }

    def _smoothed(self, name: str, window_size: int) -> float:
        return self._buffers[name].median(window_size)

    @property
    def _history(self) -> Mapping[str, HistoryBuffer]:
        """Return the histories. User code reads this private attribute of the original."""
        return self.histories()

    @property
    def _latest_scalars(self) -> dict[str, tuple[float, int]]:
        return self.latest()

    def smoothing_hints(self) -> dict[str, bool]:
        return self._smoothing_hints

    # -- the current iteration -----------------------------------------------------------------------------------

    def step(self) -> None:
        """Go to the next iteration; only for loops that do not set ``iter`` themselves."""
        self._iter += 1

    @property
    def iter(self) -> int:
        return self._iter

    @iter.setter
    def iter(self, value: Any) -> None:
        self._iter = int(value)

    @property
    def iteration(self) -> int:
        return self._iter

    @property
    def samples(self) -> int:
        """Return the number of samples so far; 0 until a trainer sets it."""
        return getattr(self, "_samples", 0)

    @samples.setter
    def samples(self, value: Any) -> None:
        self._samples = int(value)

    # -- for a checkpoint ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the latest values and the last part of the histories, as far back as any writer looks."""
        return {
            "history": {name: history.state_dict() for name, history in self.histories().items()},
            "latest": {name: list(pair) for name, pair in self.latest().items()},
            "hints": dict(self._smoothing_hints),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, held in state["history"].items():
            self._buffers[name].load_state_dict(held)
        self._newest.update({name: (value, iteration) for name, (value, iteration) in state["latest"].items()})
        self._smoothing_hints.update(state["hints"])

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Prefix the names recorded inside with ``name/``. An inner scope replaces the outer one."""
        before = self._current_prefix
        self._current_prefix = name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._current_prefix = before

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __enter__(self) -> Any:
        _STACK.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        assert _STACK[-1] == self
        _STACK.pop()


def held(value: Any) -> Any:
    """Return a number, or a copy of the tensor that later changes do not reach, without reading it from the device."""
    if not hasattr(value, "detach"):
        return float(value)
    if value.numel() != 1:
        raise ValueError(f"a scalar has one element, this tensor has shape {tuple(value.shape)}")
    return value.detach().clone()


def histogram(name: str, tensor: Any, bins: int, step: int) -> dict[str, Any]:
    """Return the arguments of TensorBoard's ``add_histogram_raw``."""
    low, high = tensor.min().item(), tensor.max().item()
    counts = torch.histc(tensor, bins=bins)
    edges = torch.linspace(start=low, end=high, steps=bins + 1, dtype=torch.float32)
    return {
        "tag": name,
        "min": low,
        "max": high,
        "num": len(tensor),
        "sum": float(tensor.sum()),
        "sum_squares": float(torch.sum(tensor**2)),
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": counts.tolist(),
        "global_step": step,
    }
