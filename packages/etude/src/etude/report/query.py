"""Filters runs by text, patterns and comparisons: ``digits* accuracy>0.95 optim.lr<=1e-3 -failed``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import ge, gt, le, lt
from typing import Any

from etude.errors import UserError, printable
from etude.errors.spelling import suggest
from etude.report.runs import RunInfo, metric_of

_TERM = re.compile(r"([\w./*-]+?)(>=|<=|!=|=|~|>|<)(.*)", re.DOTALL)
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {">": gt, "<": lt, ">=": ge, "<=": le}
#: What a run has besides metrics and keys of its plan.
FIELDS = ("name", "state", "dialect", "step", "total", "seconds", "began", "tags", "note")

Test = Callable[[RunInfo], bool]


def matching(text: str, runs: Iterable[RunInfo], changed: Mapping[Any, Mapping[str, Any]]) -> list[RunInfo]:
    """Return the runs that fulfil every term of ``text``; ``changed`` has the keys of each that differ.

    A term is a word or pattern of the name, state, dialect, tags, note or differing keys; ``KEY=VALUE`` (``!=``;
    ``~`` for a text that contains the value); or ``KEY<NUMBER``. KEY is a metric (its best value), a key of the plan or
    its end, or one of :data:`FIELDS`. A minus sign before a word excludes. There are no regular expressions: a visitor
    of the board could write one that never ends.
    """
    runs = list(runs)
    tests = [_test(term, runs, changed) for term in _terms(text)]
    return [run for run in runs if all(test(run) for test in tests)]


def _terms(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that is still being typed
        return text.replace('"', " ").replace("'", " ").split()


def _test(term: str, runs: Sequence[RunInfo], changed: Mapping[Any, Mapping[str, Any]]) -> Test:
    found = _TERM.fullmatch(term)
    if found is not None:
        return _comparison(found[1], found[2], found[3], runs)
    if term.startswith("-") and len(term) > 1:
        wanted = _words(term[1:], changed)
        return lambda run: not wanted(run)
    return _words(term, changed)


def _words(word: str, changed: Mapping[Any, Mapping[str, Any]]) -> Test:
    pattern = word.lower() if any(sign in word for sign in "*?[") else None

    def has(run: RunInfo) -> bool:
        own = [f"{key}={value}" for key, value in changed.get(run.path, {}).items()]
        said = [*run.notes.tags, run.notes.note, "archived" if run.notes.archived else ""]
        texts = [text.lower() for text in (run.name, run.state, run.dialect, *said, *own)]
        if pattern is None:
            return any(word.lower() in text for text in texts)
        return any(fnmatchcase(text, pattern) for text in texts)

    return has


def _comparison(key: str, sign: str, given: str, runs: Sequence[RunInfo]) -> Test:
    value_of = _reader(key, runs)
    if sign in _ORDER:
        limit = _number(given)
        if limit is None:
            raise UserError(f"the filter {key}{sign}{given} needs a number after {sign}, as in {key}{sign}0.5")
        order = _ORDER[sign]
        return lambda run: (value := _number(value_of(run))) is not None and order(value, limit)
    if sign == "~":
        return lambda run: any(given.lower() in text.lower() for text in _texts(value_of(run)))
    return lambda run: _equals(value_of(run), given) == (sign == "=")


def _equals(value: Any, given: str) -> bool:
    wanted, have = _number(given), _number(value)
    if wanted is not None and have is not None:
        return wanted == have
    return any(fnmatchcase(text.lower(), given.lower()) for text in _texts(value))


def _number(value: Any) -> float | None:
    """Return a number, also of a text such as ``1e-3``; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _texts(value: Any) -> list[str]:
    return [] if value is None else [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


def _reader(key: str, runs: Sequence[RunInfo]) -> Callable[[RunInfo], Any]:
    """Return what reads ``key`` of a run; a name that no run has is an error that names the near ones."""
    if key in FIELDS:
        return lambda run: getattr(run.notes if key in ("tags", "note") else run, key)
    if any(metric_of(run, key) is not None for run in runs):
        return lambda run: metric_of(run, key)
    known = {name for run in runs for name in run.plan}
    if key in known:
        return lambda run: run.plan.get(key)
    ends = sorted(name for name in known if name.endswith(f".{key}"))
    if len(ends) == 1:
        return lambda run: run.plan.get(ends[0])
    if ends:
        raise UserError(f"the filter's {key!r} may mean {', '.join(ends[:6])}; say which")
    metrics = {name for run in runs for name in run.best}
    near = suggest(key, sorted({*metrics, *(name.partition("/")[2] for name in metrics), *known, *FIELDS}))
    raise UserError(f"no run has a metric or key {printable(key)!r}; {near}")
