"""McQuic's value tuners, which change a value with every ``step()``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from etude_mcquic.files import Restorable
from etude_mcquic.live.registry import ValueTunerRegistry, served_as

_MODULE = "mcquic.train.valueTuners"


@served_as("mcquic.baseClass")
class Serializable(ABC):
    """The base of classes that can be written as plain data and read again."""

    @abstractmethod
    def serialize(self) -> Any: ...

    @staticmethod
    @abstractmethod
    def deserialize(raw: Any) -> Any: ...


@served_as("mcquic.baseClass")
class ValueTuner(Restorable):
    """The base of tuners. :meth:`step` counts ``self._epoch``; :meth:`calc` sets ``self._value`` from it."""

    _value: float

    def __init__(self, initValue: float = 2e-2) -> None:
        self._epoch = 0
        self._initValue = initValue

    @property
    def Value(self) -> float:
        if not hasattr(self, "_value"):
            self.calc()
        return self._value

    def step(self) -> None:
        self._epoch += 1
        self.calc()

    def calc(self) -> None:
        """Set ``self._value`` to the value at ``self._epoch``."""
        self._value = self._initValue


@ValueTunerRegistry.register
@served_as(_MODULE)
class CyclicValue(ValueTuner):
    """Falls to zero and rises again in every block of ``cyclicInterval``; each ``boostInterval``-th stays high."""

    def __init__(
        self,
        initValue: float = 2e-2,
        gamma: float = 1.0,
        cyclicInterval: int = 400,
        boostInterval: int = 3,
        zeroOutRatio: float = 1.0 / 3.0,
    ) -> None:
        super().__init__(initValue)
        self._gamma, self._cyclicInterval = gamma, cyclicInterval
        self._boostInterval, self._zeroOutRatio = boostInterval, zeroOutRatio

    def calc(self) -> None:
        height = self._initValue * self._gamma**self._epoch
        if (self._epoch // self._cyclicInterval) % self._boostInterval == 0:
            self._value = height
            return
        share = (self._epoch % self._cyclicInterval) / self._cyclicInterval
        ratio = self._zeroOutRatio
        down = 2.0 / (ratio - 1.0) * height * share + height
        up = 2.0 / (1.0 - ratio) * height * share + (ratio + 1.0) / (ratio - 1.0) * height
        self._value = max(0, max(up, down))


@ValueTunerRegistry.register
@served_as(_MODULE)
class ExponentialValue(ValueTuner):
    """Multiplies by ``gamma`` at every step."""

    def __init__(self, initValue: float = 2e-2, gamma: float = 0.9999) -> None:
        super().__init__(initValue)
        self._gamma = gamma

    def calc(self) -> None:
        self._value = self._initValue * self._gamma**self._epoch


@ValueTunerRegistry.register
@served_as(_MODULE)
class StepValue(ValueTuner):
    """Multiplies by ``gamma`` every ``stepInterval`` steps."""

    def __init__(self, initValue: float = 2e-2, gamma: float = 0.1, stepInterval: int = 1000) -> None:
        super().__init__(initValue)
        self._gamma, self._stepInterval = gamma, stepInterval

    def calc(self) -> None:
        self._value = self._initValue * self._gamma ** (self._epoch // self._stepInterval)


@ValueTunerRegistry.register
@served_as(_MODULE)
class CosineValue(ValueTuner):
    """Follows a cosine between two values, half a wave in ``totalStep`` intervals. ``revert`` has no effect."""

    def __init__(
        self,
        maxValue: float = 1.0,
        minValue: float = 0.0,
        stepInterval: int = 1,
        totalStep: int = 1000,
        revert: bool = False,
    ) -> None:
        super().__init__(maxValue)
        self._minValue, self._stepInterval = minValue, stepInterval
        self._totalStep, self._revert = totalStep, revert

    def calc(self) -> None:
        wave = math.cos(math.pi * self._epoch / self._stepInterval / self._totalStep)
        self._value = (wave + 1) / 2 * (self._initValue - self._minValue) + self._minValue


@ValueTunerRegistry.register
@served_as(_MODULE)
class CosineValueWithEnd(CosineValue):
    """Follows a cosine and stays at the minimum after ``totalStep``. ``revert`` rises instead of falling."""

    def calc(self) -> None:
        share = self._epoch / self._stepInterval / self._totalStep
        if share >= 1:
            self._value = self._minValue
            return
        wave = math.cos(math.pi * share) * (-1 if self._revert else 1)
        self._value = (wave + 1) / 2 * (self._initValue - self._minValue) + self._minValue


@ValueTunerRegistry.register
@served_as(_MODULE)
class JumpValue(ValueTuner):
    """Falls by ``gamma`` every ``stepInterval`` steps and jumps up again before it would pass ``minValue``."""

    def __init__(
        self, initValue: float = 10.0, gamma: float = 0.9, stepInterval: int = 1000, minValue: float = 0.01
    ) -> None:
        super().__init__(initValue)
        self._gamma, self._stepInterval = gamma, stepInterval
        self._max, self._min = initValue, minValue
        self._iteration = int(math.log(minValue / initValue) / math.log(gamma))

    def calc(self) -> None:
        self._value = self._initValue * self._gamma ** ((self._epoch // self._stepInterval) % self._iteration)


@ValueTunerRegistry.register
@served_as(_MODULE)
class JumpAlter(JumpValue):
    """A :class:`JumpValue`, or a fixed value if there are more than ``milestone`` falls between two jumps."""

    def __init__(
        self,
        initValue: float = 10.0,
        gamma: float = 0.9,
        stepInterval: int = 10,
        minValue: float = 0.01,
        milestone: int = 500,
        valueAfterMilestone: float = 0.01,
    ) -> None:
        super().__init__(initValue, gamma, stepInterval, minValue)
        self._milestone, self._valueAfterMilestone = milestone, valueAfterMilestone

    def calc(self) -> None:
        # As in McQuic, the falls are compared with the milestone, not the epoch.
        if self._iteration > self._milestone:
            self._value = self._valueAfterMilestone
        else:
            super().calc()
