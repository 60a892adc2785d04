"""Explains why two runs differ: plan, code, environment, data, seeds, and where their metrics diverge."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.errors import printable
from etude.fast_dataclass import record
from etude.report.records import CLOCK, Curve, Records
from etude.units import counted

#: What is compared, causes first.
KINDS = ("plan", "code", "data", "environment", "metric")
_ABSENT = "not recorded"
#: Ends the key of a metric that has values at some steps in one run only.
_OF_ONE = ", values of one run only"
#: A key with what A and B have; a change of a file's text is in B, and A is None.
Found = tuple[str, Any, Any]


@record
class Difference:
    """One thing that differs: ``kind`` is one of :data:`KINDS`."""

    kind: str
    key: str
    a: Any
    b: Any

    def __str__(self) -> str:
        if self.a is None and "\n" in str(self.b):
            return f"{self.key}:{_short(self.b)}"
        if self.key.endswith(_OF_ONE):
            sides = [f"only {run} has {has}" for run, has in (("A", self.a), ("B", self.b)) if has]
            return f"{self.key.removesuffix(_OF_ONE)}: {', '.join(sides)}"
        return f"{self.key}: {_short(self.a)} → {_short(self.b)}"


@record
class Comparison:
    """What differs, what no run has recorded, and whether records were too large to be read whole."""

    found: list[Difference]
    neither: list[str]
    sampled: bool

    @property
    def same(self) -> list[str]:
        other = {*self.neither, *(one.kind for one in self.found)}
        return [kind for kind in KINDS if kind not in other]


def compare(a: Path, b: Path) -> list[Difference]:
    """Return everything that differs between two run folders, causes first."""
    return examine(a, b).found


def examine(a: Path, b: Path) -> Comparison:
    """Compare two run folders. Of what only one of them has recorded, that is all there is to say."""
    one, two = _Side(a), _Side(b)
    found: list[Difference] = []
    neither = []
    for kind in KINDS:
        has = [side.has(kind) for side in (one, two)]
        if all(has):
            found += _differences(kind, one, two)
        elif any(has):
            found.append(Difference(kind, kind, *("recorded" if it else _ABSENT for it in has)))
        else:
            neither.append(kind)
    return Comparison(found, neither, one.sampled or two.sampled)


class _Side:
    """What one run has recorded."""

    def __init__(self, folder: Path) -> None:
        records = Records(folder)
        records.update()
        self.folder, self.plan, self.env = folder, plan_of(folder), run_files.environment(folder)
        self.data = data if isinstance(data := self.env.get("data"), dict) else {}
        #: The machine and its packages; the rest of ``env.json`` is compared by itself.
        self.environment = {name: self.env[name] for name in self.env if name not in ("git", "data", "config", "flags")}
        self.metrics = {name: curve for name, curve in records.curves.items() if not name.startswith(CLOCK)}
        self.sampled = records.sampled

    def has(self, kind: str) -> bool:
        if kind == "code":
            return isinstance(self.env.get("git"), dict) or (self.folder / "code.json").is_file()
        return bool(self.metrics if kind == "metric" else getattr(self, kind))


def _differences(kind: str, one: _Side, two: _Side) -> list[Difference]:
    if kind == "code":
        return [Difference(kind, *found) for found in _code_differences(one.folder, two.folder, one.env, two.env)]
    return _parting(one, two) if kind == "metric" else _keys(kind, getattr(one, kind), getattr(two, kind))


def plan_of(folder: Path) -> dict[str, Any]:
    """Return the plan's values by dotted key."""
    plan: dict[str, Any] = run_files.status(folder).get("plan", {})
    if plan:
        return plan
    from etude.config.dump import flat

    flags = run_files.environment(folder).get("flags")
    given = {f"--{name}": value for name, value in flags.items()} if isinstance(flags, dict) else {}
    return flat(run_files.text(folder, "plan.yaml")) | given


def _keys(kind: str, one: dict[str, Any], two: dict[str, Any]) -> list[Difference]:
    names = [*one, *(name for name in two if name not in one)]
    return [Difference(kind, n, one.get(n), two.get(n)) for n in names if one.get(n) != two.get(n)]


def _parting(one: _Side, two: _Side) -> list[Difference]:
    """Return where the metrics part, the earliest step first; then steps and metrics that only one run has."""
    mine, theirs = one.metrics, two.metrics
    shared = [name for name in mine if name in theirs]
    if not shared:
        return [Difference("metric", "no metric in common", ", ".join(mine), ", ".join(theirs))]
    found, uneven = [], []
    for name in shared:
        first, second = _points(mine[name]), _points(theirs[name])
        apart = next((at for at, value in first.items() if at in second and not _same(value, second[at])), None)
        if apart is not None:
            found.append(
                (apart[0], Difference("metric", f"{name} at step {apart[0]:.0f}", first[apart], second[apart]))
            )
        if first.keys() != second.keys() and not (one.sampled or two.sampled):
            uneven.append(Difference("metric", f"{name}{_OF_ONE}", _more(first, second), _more(second, first)))
    alone = [
        Difference(
            "metric", name, *(counted(len(has[name]), "value") if name in has else _ABSENT for has in (mine, theirs))
        )
        for name in {**mine, **theirs}
        if name not in shared
    ]
    return [difference for _, difference in sorted(found, key=lambda pair: pair[0])] + uneven + alone


def _points(curve: Curve) -> dict[tuple[float, int], float]:
    """Return the values by step; several of one step are counted."""
    seen: Counter[float] = Counter()
    found = {}
    for step, value in zip(curve.steps, curve.values, strict=True):
        found[step, seen[step]] = value
        seen[step] += 1
    return found


def _more(one: dict[tuple[float, int], float], two: dict[tuple[float, int], float]) -> str | None:
    """Return at how many steps ``two`` lacks values, and the first of them."""
    steps = {at[0] for at in one if at not in two}
    if not steps:
        return None
    first = f"step {min(steps):.0f}"
    return f"a value at {first}" if len(steps) == 1 else f"values at {len(steps)} steps, from {first}"


def _same(one: float, two: float) -> bool:
    return one == two or (one != one and two != two)


def _short(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if "\n" in text:
        lines = text.splitlines()
        cut = [f"… {len(lines) - 40} more lines"] if len(lines) > 40 else []
        return "".join(f"\n      {printable(line)}" for line in lines[:40] + cut)
    return printable(text if len(text) <= 100 else text[:99] + "…")


# -- code --------------------------------------------------------------------------------------------------------------


def _code_differences(a: Path, b: Path, one: Mapping[str, Any], two: Mapping[str, Any]) -> list[Found]:
    """Return what differs in the code; ``one`` and ``two`` are the contents of ``env.json``."""
    first, second = _commit(one), _commit(two)
    found: list[Found] = [("commit", first, second)] if first != second else []
    before, after = _kept(a), _kept(b)
    for name in sorted({**before, **after}):
        found += _file_change(name, before.get(name), after.get(name))
    mine, theirs = _uncommitted_of(a), _uncommitted_of(b)
    for name in sorted({**mine, **theirs}):
        if not any(f"/{name}".endswith(f"/{kept}") for kept in {**before, **after}):
            found += _uncommitted(name, mine.get(name, ""), theirs.get(name, ""))
    return found


def _commit(env: Mapping[str, Any]) -> Any:
    git = env.get("git")
    return git.get("commit") if isinstance(git, dict) else None


def _kept(folder: Path) -> dict[str, str]:
    """Return the texts of the imported files by their path in the project."""
    return run_files.code(folder)


def _file_change(name: str, before: str | None, after: str | None) -> list[Found]:
    if before is None or after is None:
        return [(name, _lines_of(before), _lines_of(after))]
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    return [(name, None, "\n".join(lines))] if lines else []


def _lines_of(text: str | None) -> str:
    return "not kept" if text is None else f"{len(text.splitlines())} lines"


def _uncommitted_of(folder: Path) -> dict[str, str]:
    """Return the changes of ``code.diff`` by file, without their headings."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    heading = False
    for line in run_files.text(folder, "code.diff").splitlines():
        if line.startswith("diff --git "):
            lines = found.setdefault(line.rpartition(" b/")[2], [])
            heading = True
        elif line.startswith(("@@", "Binary")) or not heading:
            heading = False
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def _uncommitted(name: str, before: str, after: str) -> list[Found]:
    if before == after:
        return []
    if not before:
        return [(f"{name}, changed in B and not committed", None, f"{after}\n")]
    if not after:
        return [(f"{name}, changed in A and not committed", None, f"{before}\n")]
    return [(f"{name}, uncommitted changes", _extent(before), _extent(after))]


def _extent(change: str) -> str:
    """Return ``+3 −1 lines`` and a mark of the text, since two changes may be as long."""
    signs = [line[:1] for line in change.splitlines()]
    mark = hashlib.sha256(change.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"+{signs.count('+')} −{signs.count('-')} lines ({mark})"
