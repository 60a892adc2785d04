"""Accounts the time of a run over all its lives: the processes that trained it, and the time between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.errors import printable
from etude.report.status import is_alive
from etude.units import counted, duration

COUNTS, REPEATED, START, DOWN, OTHER = (
    "training that counts", "repeated after a loss", "start-up", "down between lives", "other",
)  # fmt: skip
#: What the account of one process calls it → what it is here; hooks are named one by one there.
_KINDS = {
    "forward/backward": COUNTS, "update": COUNTS, "data": "data", "evaluation": "evaluation", "checkpoint": "saving",
    "waiting for other processes": "waiting for other ranks", "start": START, "end": "end",
}  # fmt: skip
#: What a process does once, whether its steps count later or not.
_ONCE = (START, "end")
ORDER = (
    COUNTS, REPEATED, START, "data", "evaluation", "saving", "waiting for other ranks", "hooks", "end", DOWN, OTHER,
)  # fmt: skip


@dataclass(frozen=True)
class Life:
    """One process that trained a run."""

    began: float
    ended: float
    first: int
    last: int
    #: ``running``, ``finished``, ``interrupted``, ``failed`` or ``killed``.
    state: str
    #: How many of its steps later lives did not have to do again.
    kept: int
    #: Seconds by kind, before repeated ones are taken out.
    spent: Mapping[str, float] = field(repr=False)

    @property
    def lost(self) -> int:
        return self.last - self.first - self.kept


def lives_of(folder: Path) -> list[Life]:
    """Return the lives of a run, the oldest first."""
    known = run_files.lives(folder)
    while known and len(known) > 1 and known[-1]["state"] == "finished" and known[-1]["from"] == known[-1]["to"]:
        known.pop()  # it found nothing left to train
    made: list[Life] = []
    for number, one in enumerate(known):
        is_last, state = number == len(known) - 1, one["state"]
        ended = one["began"] + one["elapsed"]
        if state == "running" and is_last:
            if is_alive(run_files.status(folder)):
                ended = max(ended, time.time())
            else:
                state, ended = "killed", max(ended, run_files.last_sign(folder))
        ended = max(ended, one.get("seen", 0.0)) if state == "killed" else ended
        resumed = min((later["from"] for later in known[number + 1 :]), default=one["to"])
        kept = max(0, min(one["to"], resumed) - one["from"])
        last = max(one["from"], one["to"])
        made.append(Life(one["began"], ended, one["from"], last, state, kept, _kinds(one, ended - one["began"])))
    return made


def _kinds(life: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Return what a process spent, by kind. What its samples do not cover is shared out as they say.

    A process that is killed has samples until some seconds before its end.
    """
    found: dict[str, float] = {}
    for name, spent in life["time"].items():
        kind = _KINDS.get(name, "hooks" if name.startswith("hook ") else OTHER)
        found[kind] = found.get(kind, 0.0) + spent
    covered = sum(found.values())
    if covered > seconds:  # two clocks
        return {kind: spent * seconds / covered for kind, spent in found.items()}
    while_running = max(0.0, life["elapsed"] - covered)
    after = seconds - covered - while_running
    found[OTHER] = found.get(OTHER, 0.0) + while_running
    steady = {kind: spent for kind, spent in found.items() if kind not in (*_ONCE, OTHER)}
    whole = sum(steady.values())
    if after > 0 and whole > 0:
        for kind, spent in steady.items():
            found[kind] += after * spent / whole
    elif after > 0:
        kind = COUNTS if life["to"] > life["from"] else START
        found[kind] = found.get(kind, 0.0) + after
    return found


def account(lives: Sequence[Life]) -> dict[str, float]:
    """Return the seconds of a run by kind, from its first start to its end. They add up to the whole."""
    found = dict.fromkeys(ORDER, 0.0)
    for number, life in enumerate(lives):
        steps = life.last - life.first
        share = life.lost / steps if steps else 0.0
        for kind, spent in life.spent.items():
            repeated = 0.0 if kind in _ONCE else spent * share
            found[REPEATED] += repeated
            found[kind] += spent - repeated
        if number:
            found[DOWN] += max(0.0, life.began - lives[number - 1].ended)
    return {kind: spent for kind, spent in found.items() if spent > 0}


def shown(folder: Path) -> list[str]:
    """Return where the time of a run went, over all its lives, as lines."""
    lives = lives_of(folder)
    if not lives:
        return ["nothing is known of where the time went: the run was made by an older etude, or by another system"]
    spent = account(lives)
    whole = sum(spent.values()) or 1.0
    lines = [
        f"{printable(folder.name)}: {len(lives)} {'life' if len(lives) == 1 else 'lives'} in {duration(whole)}",
        "",
    ]
    for kind in ORDER:
        if kind in spent:
            share = spent[kind] / whole
            lines.append(f"  {kind:<24} {spent[kind]:>10.1f} s {share:>6.1%} {'█' * round(24 * share)}".rstrip())
    lines += [f"  {'all':<24} {whole:>10.1f} s", "", f"goodput {spent.get(COUNTS, 0.0) / whole:.1%}"]
    if len(lives) > 1:
        lines.append("")
    for number, life in enumerate(lives if len(lives) > 1 else [], 1):
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(life.began))
        lost = f", {counted(life.lost, 'step')} done again" if life.lost else ""
        took = duration(life.ended - life.began)
        lines.append(
            f"  {number:>3}  {began}  {took:>8}  steps {life.first} to {life.last}, {printable(life.state)}{lost}"
        )
    return lines
