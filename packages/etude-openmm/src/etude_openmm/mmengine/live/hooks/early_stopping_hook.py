"""Ends training when a metric no longer gets better."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from etude_openmm.mmengine.live.hooks.hook import Hook
from etude_openmm.shared.errors import ConfigRuntimeError
from etude_openmm.shared.metric_rules import BETTER, GREATER_KEYS, LESS_KEYS, WORST, guess, missing_result


class EarlyStoppingHook(Hook):
    """Stops training when the metric ``monitor`` no longer improves in validations.

    A value that is not better than the best by ``min_delta`` counts as a failure. ``patience`` of them in a row stop
    training; so do a value beyond ``stopping_threshold`` and, with ``check_finite``, one that is not finite. A missing
    monitor is a warning, or with ``strict`` an error.
    """

    priority = "LOWEST"
    rule_map = BETTER
    _default_greater_keys = list(GREATER_KEYS)
    _default_less_keys = list(LESS_KEYS)

    def __init__(
        self,
        monitor: str,
        rule: str | None = None,
        min_delta: float = 0.1,
        strict: bool = False,
        check_finite: bool = True,
        patience: int = 5,
        stopping_threshold: float | None = None,
    ) -> None:
        if rule not in ("greater", "less", None):
            raise ValueError(f'`rule` should be either "greater" or "less", but got {rule}')
        rule = rule or guess(monitor, self._default_greater_keys, self._default_less_keys)
        if rule is None:
            raise ValueError(f"Cannot infer the rule for {monitor}, thus rule must be specified: greater or less")
        self.monitor, self.rule = monitor, rule
        self.min_delta = min_delta if rule == "greater" else -1 * min_delta  # added to the best score, see below
        self.strict = strict
        self.check_finite = check_finite
        self.patience = patience
        self.stopping_threshold = stopping_threshold
        self.wait_count = 0
        self.best_score = WORST[rule]

    def before_run(self, runner: Any) -> None:
        assert hasattr(runner.train_loop, "stop_training"), (
            "`train_loop` should contain `stop_training` variable: early stopping sets it"
        )

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        metrics = metrics or {}
        if self.monitor not in metrics:
            self._report_missing(metrics)
            return
        stop, reason = self._check_stop_condition(metrics[self.monitor])
        if stop:
            runner.train_loop.stop_training = True
            runner.logger.info(reason)

    def state_dict(self) -> dict[str, Any]:
        """Return the failures in a row and the best score. They are reset if this hook ended the run, for a resume."""
        if self.wait_count >= self.patience:
            return {"wait_count": 0, "best_score": WORST[self.rule]}
        return {"wait_count": self.wait_count, "best_score": self.best_score}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume counting from a state of :meth:`state_dict`."""
        self.wait_count, self.best_score = int(state["wait_count"]), float(state["best_score"])

    def _report_missing(self, metrics: dict[str, float]) -> None:
        text, hint = missing_result("monitor of EarlyStoppingHook", self.monitor, metrics)
        if self.strict:
            raise ConfigRuntimeError(text, hint=hint)
        warnings.warn(
            f"Skip early stopping process since the evaluation results ({list(metrics)}) do not include `monitor` "
            f"({self.monitor}); {hint}",
            stacklevel=3,
        )

    def _check_stop_condition(self, current_score: float) -> tuple[bool, str]:
        compare = BETTER[self.rule]
        name, score = self.monitor, float(current_score)
        if self.check_finite and not math.isfinite(score):
            return True, f"{name} = {score} is not finite, training stops. The best was {self.best_score}."
        if self.stopping_threshold is not None and compare(score, self.stopping_threshold):
            self.best_score = score
            return True, f"{name} = {score} is beyond {self.stopping_threshold}, training stops."
        # As in MMEngine: better by exactly ``min_delta`` is good enough, and ``rule`` has given it its sign.
        if compare(self.best_score + self.min_delta, score):
            self.wait_count += 1
            if self.wait_count >= self.patience:
                return True, (
                    f"{name} did not improve in the last {self.wait_count} validations. "
                    f"The best was {self.best_score:.3f}, training stops."
                )
        else:
            self.best_score, self.wait_count = score, 0
        return False, ""
