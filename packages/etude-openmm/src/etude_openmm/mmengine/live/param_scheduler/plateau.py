"""Reduces the learning rate when a metric of the validation stops improving (ReduceOnPlateau)."""

from __future__ import annotations

from numbers import Number
from typing import Any

from etude_openmm.mmengine.checks.results import missing_result
from etude_openmm.mmengine.live.param_scheduler.base import INF, _ParamScheduler
from etude_openmm.shared.errors import ConfigKeyError
from etude_openmm.shared.registries.root import PARAM_SCHEDULERS


@PARAM_SCHEDULERS.register_module()
class ReduceOnPlateauParamScheduler(_ParamScheduler):
    """Multiplies the value by ``factor`` after more than ``patience`` validations without a better ``monitor``.

    Epoch steps (``step()``) only count; the decision is made with the metrics of a validation
    (``step(metrics)``), so epochs without a validation do not count as bad.
    """

    need_val_args = True

    def __init__(
        self,
        optimizer: Any,
        param_name: str,
        monitor: str = "loss",
        rule: str = "less",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_rule: str = "rel",
        cooldown: int = 0,
        min_value: float | list[float] | tuple[float, ...] = 0.0,
        eps: float = 1e-8,
        begin: int = 0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        if not by_epoch:
            raise AssertionError(f"Now {type(self).__name__} only support by_epoch=True: it needs validations")
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, but got {factor}.")
        self.factor = factor
        if not isinstance(threshold, Number) or not 0 <= threshold < 1:
            raise ValueError(f"threshold should be a number from 0 to below 1, but got {threshold!r}")
        super().__init__(optimizer, param_name, begin, end, last_step, by_epoch, verbose)
        self.min_values = self._floors(min_value)
        self.patience, self.cooldown, self.eps, self.monitor = patience, cooldown, eps, monitor
        self.cooldown_counter = 0
        self._init_is_better(rule, threshold, threshold_rule)
        self._reset()

    def _initial_step(self) -> None:
        # As in MMEngine, it counts from 0 and writes nothing when it is made.
        self._global_step = 0
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _floors(self, min_value: float | list[float] | tuple[float, ...]) -> list[float]:
        """Return one floor per group; the wrapper's base group, if there is one, has the floor of the last."""
        groups = len(self.optimizer.param_groups)
        if not isinstance(min_value, (list, tuple)):
            return [min_value] * groups
        real = len(getattr(self.optimizer, "optimizer", self.optimizer).param_groups)
        if len(min_value) != real:
            raise ValueError(f"expected {real} min_lrs, got {len(min_value)}")
        return list(min_value) + [min_value[-1]] * (groups - real)

    def _init_is_better(self, rule: str, threshold: float, threshold_rule: str) -> None:
        if rule not in ("less", "greater"):
            raise ValueError(f"mode {rule} is unknown! It is 'less' or 'greater'")
        if threshold_rule not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_rule} is unknown! It is 'rel' or 'abs'")
        self.rule, self.threshold, self.threshold_rule = rule, threshold, threshold_rule
        self.rule_worse = INF if rule == "less" else -INF  # MMEngine's INF is 1e9, not infinity

    def _reset(self) -> None:
        """Reset the best value, the count of bad validations and the cooldown."""
        self.best: Any = self.rule_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def _in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def _is_better(self, value: Any, best: Any) -> bool:
        sign = -1 if self.rule == "less" else 1
        bar = best * (1 + sign * self.threshold) if self.threshold_rule == "rel" else best + sign * self.threshold
        return bool(value < bar) if self.rule == "less" else bool(value > bar)

    def _get_value(self) -> list[float]:
        groups = self.optimizer.param_groups
        return [
            max(group[self.param_name] * self.factor, floor)
            for group, floor in zip(groups, self.min_values, strict=False)
        ]

    def step(self, metrics: dict[str, Any] | None = None) -> None:
        """Count an epoch (without metrics), or decide by the metrics of a validation if inside the window."""
        if metrics is None:
            self._global_step += 1
            return
        if not isinstance(metrics, dict):
            raise TypeError(f"metrics type should be dict, but got type {type(metrics)}")
        if self.begin <= self._global_step < self.end:
            self.last_step += 1
            if self.monitor not in metrics:
                text, hint = missing_result(f"monitor of {type(self).__name__}", self.monitor, metrics)
                raise ConfigKeyError(text, hint=hint)
            self._decide(metrics[self.monitor])
        self._last_value = [group[self.param_name] for group in self.optimizer.param_groups]

    def _decide(self, value: Any) -> None:
        if self._is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self._in_cooldown():
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _reduce(self) -> None:
        for index, (group, value) in enumerate(zip(self.optimizer.param_groups, self._get_value(), strict=False)):
            if group[self.param_name] - value > self.eps:
                group[self.param_name] = value
                self.print_value(self.verbose, index, value)
