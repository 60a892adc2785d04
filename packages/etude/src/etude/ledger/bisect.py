"""Finds the first step at which two runs part, and the first operator in it whose results differ."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from etude.config import run_files
from etude.errors import UserError, printable
from etude.ledger import rows
from etude.ledger.rebuild import described
from etude.ledger.trace import CONSTANT
from etude.report.compare import Difference, compare

Trace = Mapping[str, Any]
#: A run, the interpreter to replay it with, and the rank to look at.
_Side = tuple[Path, str, int]
#: What each kind of cause is called.
_SAMPLES = "other samples"
_NOWHERE = "not in an operator of torch"


@dataclass
class Parting:
    """Where two runs part, and why."""

    #: The first step that differs; None if all common steps are equal.
    step: int | None
    common: int
    #: How the rows of that step differ, in words.
    what: str = ""
    #: The step that was looked into: the one before, if it left different weights.
    traced: int | None = None
    cause: str = ""
    details: list[str] = field(default_factory=list)
    #: Operator, module and position of the first difference in the step.
    operator: tuple[str, str, int] | None = None
    #: What differs in plan, code, data and environment.
    recorded: list[Difference] = field(default_factory=list)


def first_difference(a: rows.Rows, b: rows.Rows) -> tuple[int | None, int]:
    """Return the first step whose rows differ (None if there is none), and how many steps both have."""
    start = max(int(a["step"][0]), int(b["step"][0]))
    end = min(int(a["step"][-1]), int(b["step"][-1]))
    if end < start:
        raise UserError("the two ledgers have no step in common")
    one, two = (side[start - int(side["step"][0]) :][: end - start + 1] for side in (a, b))
    different = np.zeros(len(one), bool)
    for name in ("ids", "loss", "norm"):
        different |= one[name].view(f"u{one[name].itemsize}") != two[name].view(f"u{two[name].itemsize}")
    found = np.flatnonzero(different)
    return (start + int(found[0]) if len(found) else None), len(one)


def bisect(a: Path, b: Path, *, python_a: str = "", python_b: str = "", look: bool = True) -> Parting:
    """Compare two runs step by step, then the first step that differs operator by operator.

    ``look`` replays that step in both runs, each with its own interpreter.
    """
    counts = [run_files.processes(folder) for folder in (a, b)]
    rank, one, two, step, common = 0, rows.read(a), rows.read(b), None, 0
    for number in range(min(counts)):
        mine = rows.read(a, number), rows.read(b, number)
        if not all(map(len, mine)):
            raise UserError("one of the two runs has no step yet")
        apart, common = first_difference(*mine)
        if apart is not None and (step is None or apart < step):
            rank, (one, two), step = number, mine, apart
    recorded = [found for found in compare(a, b) if found.kind != "metric"]
    if step is None:
        return Parting(None, common, recorded=recorded)
    then, now = one[step - int(one["step"][0])], two[step - int(two["step"][0])]
    name = next(key for key in ("ids", "loss", "norm") if then[key].tobytes() != now[key].tobytes())
    what = (
        "the samples differ"
        if name == "ids"
        else described(name, then, now).replace(" now", " in B").replace("was", "is", 1)
    )
    what += f" (rank {rank})" if max(counts) > 1 else ""
    found = Parting(step, common, what=what, traced=step, recorded=recorded)
    if name == "ids":
        found.cause = _SAMPLES
        return found
    if not look:
        return found
    after = None
    sides = (a, python_a, rank), (b, python_b, rank)
    traces = _traces(*sides, step)
    first = max(int(one["step"][0]), int(two["step"][0]))
    if step > first and _starts_apart(*traces):
        found.traced, traces, after = _last_common_start(*sides, first, step, traces)
    _explain(found, *traces)
    if found.cause == _NOWHERE and after is not None:
        _explain_between(found, traces, after)
    return found


def _last_common_start(
    a: _Side, b: _Side, first: int, apart: int, last_traces: tuple[Trace, Trace]
) -> tuple[int, tuple[Trace, Trace], tuple[Trace, Trace] | None]:
    """Return the step that both runs begin alike and that leaves them apart, its traces, and those of the next step.

    ``apart`` is a step that they begin apart although all losses before it are equal: a difference in the last bits of
    the weights may take many steps to reach the loss.
    """
    traces = {apart: last_traces}
    alike, probe = first - 1, apart - 1  # most often it is the step just before
    while apart - alike > 1:
        traces[probe] = _traces(a, b, probe)
        alike, apart = (alike, probe) if _starts_apart(*traces[probe]) else (probe, apart)
        probe = (alike + apart) // 2
    last = max(alike, first)
    return last, traces.get(last) or _traces(a, b, last), traces.get(last + 1)


def _starts_apart(a: Trace, b: Trace) -> bool:
    return any(a[key] != b[key] for key in ("weights", "optimizers"))


def _traces(a: _Side, b: _Side, step: int) -> tuple[Trace, Trace]:
    """Trace a step in both runs, each in a separate process."""
    with tempfile.TemporaryDirectory(prefix="etude-bisect-") as scratch:
        found = []
        for number, (folder, python, rank) in enumerate((a, b)):
            file = Path(scratch, f"{number}.json")
            command = [
                python or sys.executable,
                "-m",
                "etude.ledger.trace",
                str(folder),
                str(step),
                str(file),
                str(rank),
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as error:
                raise UserError(f"{printable(python)} cannot be started: {error.strerror}") from error
            if done.returncode or not file.is_file():
                last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
                raise UserError(f"{printable(str(folder))}: step {step} cannot be replayed: {printable(last)}")
            found.append(json.loads(file.read_text()))
    return found[0], found[1]


def _explain(found: Parting, a: Trace, b: Trace) -> None:
    """Say what differs first in the traced step: state, settings, batch, an operator, or what a hook changed."""
    for side, trace in (("A", a), ("B", b)):
        if trace["different"]:
            step, what = trace["different"]
            found.details.append(f"{side} cannot be replayed exactly here: at step {step} {what}")
    if a["threads"] != b["threads"]:
        found.details.append(f"threads: {a['threads']} in A, {b['threads']} in B")
    found.details += _environment(a["environment"], b["environment"])
    weights = _differing(a["weights"], b["weights"])
    if weights:
        found.cause, detail = _other_weights(weights[0], a["weights"], b["weights"])
        more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
        found.details.insert(0, f"{detail}{more}")
        return
    if a["batch"] != b["batch"]:
        found.cause = "other augmentation or other data under the same sample numbers"
        return
    position = _first_operator(a["operators"], b["operators"])
    settings = _settings(a["settings"], b["settings"])
    if a["generator"] != b["generator"] and position is not None:
        found.details.append("the random generators are in other states before the step")
    if position is None:
        found.cause = f"other settings of the optimizer: {'; '.join(settings)}" if settings else _NOWHERE
        if not settings and a.get("updated") == b.get("updated") and a.get("left") != b.get("left"):
            found.cause = "a hook changes the weights after the update"
            found.details += _hooks(a, b)
        return
    one, other = (side["operators"][position] if position < len(side["operators"]) else None for side in (a, b))
    name, module = (one if one is not None else b["operators"][position])[:2]
    found.operator = name, module, position
    if settings and (one is None or other is None or _is_update(name)):
        found.cause = f"other settings of the optimizer: {'; '.join(settings)}"
    elif one is None or other is None or one[0] != other[0]:
        here, there = ("ends" if side is None else side[0] for side in (one, other))
        found.cause = f"other operators: A {'runs ' if one is not None else ''}{here}, B {there}"
        found.details += _hooks(a, b) if any(side and side[1].startswith("hook ") for side in (one, other)) else []
    elif one[2] != other[2]:
        found.cause = _other_inputs(one[2], other[2])
    else:
        found.cause = (
            "the same operator with the same inputs gives other results: a kernel, its threads or its precision"
        )


def _explain_between(found: Parting, traces: tuple[Trace, Trace], after: tuple[Trace, Trace]) -> None:
    """Name the run whose next step does not begin with the weights that the traced step left.

    That step begins at a checkpoint then: its content is not what the run itself came to.
    """
    for side, left, begun in zip("AB", traces, after, strict=True):
        changed = _differing(left["left"], begun["weights"]) if "left" in left else []
        if changed and begun.get("checkpoint"):
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            found.cause = f"{side} goes on with other weights than it had come to"
            found.details.append(
                f"{begun['checkpoint']} of {side} has been edited, or is of another run: {changed[0]}{more}"
            )
            return


def _other_weights(name: str, a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, str]:
    """Return in words how the weights differ before the step: in name, type, shape, or only in value."""
    one, two = (side.get(name, "missing").rpartition(" ")[0].strip() for side in (a, b))
    if name not in a or name not in b:
        return "other parameters in the model", f"{name} is only in {'A' if name in a else 'B'}"
    if one.partition(" ")[0] != two.partition(" ")[0]:
        return "other types of weights", f"{name} {one} in A, {two} in B"
    if one != two:
        return "other initial weights: other shapes", f"{name} {one} in A, {two} in B"
    return "other initial weights", name


def _other_inputs(one: Sequence[str], two: Sequence[str]) -> str:
    """Return in words how the inputs of one operator differ in two runs."""
    pairs = [(x, y) for x, y in zip(one, two, strict=False) if x != y]
    if len(one) == len(two) and all(x.startswith(CONSTANT) and y.startswith(CONSTANT) for x, y in pairs):
        said = "; ".join(f"{x.removeprefix(CONSTANT)} in A, {y.removeprefix(CONSTANT)} in B" for x, y in pairs)
        return f"the same operator with another constant: {said}"
    return "an operator gets other values, which none of torch's operators made"


def _hooks(a: Trace, b: Trace) -> list[str]:
    """Return the hooks that only one run has."""
    found = []
    for side, mine, theirs in (("A", a, b), ("B", b, a)):
        only = [name for name in dict.fromkeys(mine.get("hooks", ())) if name not in theirs.get("hooks", ())]
        found += [f"only in {side}: hook {name}" for name in only]
    return found


def _is_update(name: str) -> bool:
    return name.startswith(("_fused_", "_foreach_", "mul_", "add_", "addcmul_", "addcdiv_", "lerp_"))


def _first_operator(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Return the position of the first operator that differs in name, inputs or outputs."""
    for position, (one, two) in enumerate(zip(a, b, strict=False)):
        if list(one) != list(two):
            return position
    return None if len(a) == len(b) else min(len(a), len(b))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = []
    for name, groups in a.items():
        kinds = [side[0].get("type") for side in (groups, b.get(name) or [{}])]
        if kinds[0] != kinds[1]:
            found.append(f"{kinds[0]} in A, {kinds[1]} in B")
            continue
        for number, (one, two) in enumerate(zip(groups, b.get(name, ()), strict=False)):
            for key in _differing(one, two):
                place = f"group {number} " if len(groups) > 1 else ""
                found.append(f"{place}{key} {one.get(key)} in A, {two.get(key)} in B")
    return list(dict.fromkeys(found))


def _environment(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = [f"{key}: {a[key]} in A, {b[key]} in B" for key in ("python", "torch") if a[key] != b[key]]
    packages = _differing(a["packages"], b["packages"])
    return found + [
        f"package {name}: {a['packages'].get(name, 'none')} in A, {b['packages'].get(name, 'none')} in B"
        for name in packages[:10]
    ]
