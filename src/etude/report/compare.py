"""Tells why two runs differ: plan, code, environment, data, seeds, and where their metrics part."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.errors import printable
from etude.report.records import CLOCK, Records
from etude.report.status import read_json


@dataclass(frozen=True)
class Difference:
    """One thing that differs: ``kind`` is plan, code, environment, data or metric."""

    kind: str
    key: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.key}: {_short(self.a)} → {_short(self.b)}"


def compare(a: Path, b: Path) -> list[Difference]:
    """Return everything that differs between two run folders, causes first."""
    one, two = read_json(a / "env.json"), read_json(b / "env.json")
    found = _keys("plan", plan_of(a), plan_of(b))
    found += _code(a, b, one, two)
    found += _keys("data", _dict(one.get("data")), _dict(two.get("data")))
    plain = {"git", "data", "config"}  # the config is the plan, compared above
    found += _keys("environment", _without(one, plain), _without(two, plain))
    return found + parting(a, b)


def plan_of(folder: Path) -> dict[str, Any]:
    """Return the plan's values by dotted key."""
    plan = read_json(folder / "status.json").get("plan")
    if isinstance(plan, dict) and plan:
        return plan
    from etude.config.dump import flat

    try:
        return flat((folder / "plan.yaml").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}


def _keys(kind: str, one: dict[str, Any], two: dict[str, Any]) -> list[Difference]:
    names = [*one, *(name for name in two if name not in one)]
    return [Difference(kind, n, one.get(n), two.get(n)) for n in names if one.get(n) != two.get(n)]


def _code(a: Path, b: Path, one: dict[str, Any], two: dict[str, Any]) -> list[Difference]:
    first, second = _dict(one.get("git")).get("commit"), _dict(two.get("git")).get("commit")
    found = [Difference("code", "commit", first, second)] if first != second else []
    before, after = _text(a / "code.diff"), _text(b / "code.diff")
    if before != after:
        changed = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
        found.append(Difference("code", "uncommitted changes", f"{len(before.splitlines())} lines", "\n".join(changed)))
    return found


def parting(a: Path, b: Path) -> list[Difference]:
    """Return, per metric that both runs have, the first step whose values differ; the earliest comes first."""
    one, two = Records(a), Records(b)
    one.update()
    two.update()
    found = []
    for name, curve in one.curves.items():
        other = two.curves.get(name)
        if other is None or name.startswith(CLOCK):
            continue
        theirs = dict(zip(other.steps, other.values, strict=True))
        for step, value in zip(curve.steps, curve.values, strict=True):
            if step in theirs and not _same(value, theirs[step]):
                found.append((step, Difference("metric", f"{name} at step {step:.0f}", value, theirs[step])))
                break
    return [difference for _, difference in sorted(found, key=lambda pair: pair[0])]


def _same(one: float, two: float) -> bool:
    return one == two or (one != one and two != two)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _short(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if "\n" in text:
        return "".join(f"\n      {printable(line)}" for line in text.splitlines()[:40])
    return printable(text if len(text) <= 100 else text[:99] + "…")
