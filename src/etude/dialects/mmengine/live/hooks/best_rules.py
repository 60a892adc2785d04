"""Reads which metrics decide about the best checkpoint, and whether greater or less is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etude.dialects.mmengine.live.hooks.hook import Hook
from etude.dialects.openmm.metric_rules import BETTER, GREATER_KEYS, LESS_KEYS, WORST, guess


class BestRules(Hook):
    """Reads ``save_best``, ``rule``, ``greater_keys`` and ``less_keys``. Raises an error early if they are wrong."""

    rule_map = BETTER
    init_value_map = WORST
    _default_greater_keys = list(GREATER_KEYS)
    _default_less_keys = list(LESS_KEYS)

    save_best: str | list[str] | None
    key_indicators: list[str]
    rules: list[str | None]
    is_better_than: dict[str, Callable[[float, float], bool]]

    def _read_best(
        self,
        save_best: str | list[str] | None,
        rule: str | list[str] | None,
        greater_keys: Sequence[str] | str | None,
        less_keys: Sequence[str] | str | None,
    ) -> None:
        self.greater_keys = _keys(greater_keys, self._default_greater_keys)
        self.less_keys = _keys(less_keys, self._default_less_keys)
        self.save_best, self.rule = save_best, rule
        if save_best is None:
            return
        assert isinstance(save_best, str) or _all_text(save_best), (
            f'"save_best" should be a str or list of str or None, but got {type(save_best)}'
        )
        names = [save_best] if isinstance(save_best, str) else list(save_best)
        assert len(set(names)) == len(names), f'Find duplicate element in "save_best": {names}'
        assert len(names) == 1 or "auto" not in names, (
            'Only support one "auto" in "save_best" list, and nothing beside it'
        )
        assert rule is None or isinstance(rule, str) or _all_text(rule), (
            f'"rule" should be a str or list of str or None, but got {type(rule)}'
        )
        self.save_best = names
        self._init_rule(rule, names)

    def _init_rule(self, rules: Any, key_indicators: str | list[str]) -> None:
        """Set the names and rules. Called again once ``auto`` has found its metric."""
        names = [key_indicators] if isinstance(key_indicators, str) else key_indicators
        given = [rules] if rules is None or isinstance(rules, str) else list(rules)
        assert len(given) in (1, len(names)), (
            f'Number of "rule" must be 1 or the same as number of "save_best", but got {len(given)}.'
        )
        given = given * len(names) if len(given) == 1 else given
        self.rules, self.is_better_than = [], {}
        for name, rule in zip(names, given, strict=True):
            rule = self._rule_of(name, rule)
            self.rules.append(rule)
            if rule is not None:
                self.is_better_than[name] = BETTER[rule]
        self.key_indicators = names

    def _rule_of(self, name: str, rule: str | None) -> str | None:
        if rule is not None and rule not in BETTER:
            raise KeyError(f"rule must be greater, less or None, but got {rule}")
        if rule is None and name != "auto":
            rule = guess(name, self.greater_keys, self.less_keys)
            if rule is None:
                raise ValueError(f"Cannot infer the rule for key {name}, thus rule must be specified: greater or less")
        return rule


def _keys(given: Sequence[str] | str | None, default: list[str]) -> Sequence[str]:
    if given is None:
        return default
    keys = (given,) if isinstance(given, str) else given
    assert _all_text(keys), f"keys of metrics should be names, got {keys!r}"
    return keys


def _all_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
