"""The warm-up of ``lr_config`` as a native curve. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.schedules import curves as native
from etude.schedules.phases import python_names


@dataclass(frozen=True)
class Warmed:
    """A native curve over the whole run, multiplied by a warm-up in its first ``length``, as in mmcv.

    To do without it, write two phases, the warm-up `until` its end and the curve; the curve begins there then.
    """

    curve: str
    length: str
    arguments: Mapping[str, Any]
    warmup: str = "linear"
    ratio: float = 0.1
    by_epoch: bool = False

    def prepare(self, window: native.Window) -> native.Factor:
        curve = getattr(native, self.curve)(**python_names(self.arguments))
        regular = curve.prepare(window) if hasattr(curve, "prepare") else native.by_share(curve, window)
        length, unit = window.steps(self.length), (window.steps_per_epoch or 1) if self.by_epoch else 1

        def factor(step: float) -> float:
            value = regular(step // unit * unit)
            return value * self._ramp(step / length) if step < length else value

        return factor

    def _ramp(self, at: float) -> float:
        if self.warmup == "linear":
            return 1 - (1 - at) * (1 - self.ratio)
        return self.ratio ** (1 - at) if self.warmup == "exp" else self.ratio
