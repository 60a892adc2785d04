"""Says how a run ended: its results, where the time went, and the command that continues it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from etude.building.options import Options
from etude.config.dump import public_override
from etude.core.run import Run
from etude.events.console import number
from etude.session.watch import wall_time
from etude.units import counted, duration


def summary(run: Run) -> list[str]:
    """Return the last and best results, for the end of the output."""
    lines = []
    if run.metrics:
        lines.append("  last    " + "  ".join(f"{name} {number(value)}" for name, value in run.metrics.items()))
    for hook in run.hooks:
        describe = getattr(hook, "summary", None)
        if callable(describe) and (text := describe()):
            lines.append(f"  {text}")
    return lines


def resume_command(run: Run, options: Options, call: Sequence[str] = ()) -> str:
    """Return how to continue this run: the command that was typed, with ``--resume``; in a script, the call.

    ``call`` is what ``etude.train`` was called with: the config as written in a script, and the overrides.
    """
    if not options.extras:
        return _call(run, *call) if run.plan is not None else "trainer.fit(…, resume=True)"
    typed = list(options.extras.get("typed", sys.argv[1:]))
    for flag, given in (("--resume", options.resume), ("--chaos", options.chaos)):
        if given and flag in typed and given in typed[typed.index(flag) :]:
            del typed[typed.index(flag) : typed.index(flag) + 2]
    words = ["etude", *(public_override(word, "…") for word in typed if word != "--restart")]
    return shlex.join(words if "--resume" in words else [*words, "--resume"])


def _call(run: Run, config: str = "…", *overrides: str) -> str:
    """Return the call of ``etude.train`` that continues a run."""
    changes = [f"[{', '.join(quoted(public_override(text, '…')) for text in overrides)}]"] if overrides else []
    folder = quoted(relative(run.folder)) if run.folder is not None else "…"
    return f'etude.train({", ".join([config, *changes])}, options=etude.Options(folder={folder}, resume=""))'


def quoted(text: str) -> str:
    """Return ``text`` as a string of Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def relative(path: Path | str) -> str:
    """Return ``path`` relative to the current folder if it is below it; a URL stays as it is."""
    if "://" in str(path):
        return str(path)
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def results(
    run: Run, taken: float, seconds: Mapping[str, float], chance: Collection[str], advice: str
) -> Iterator[str]:
    """Yield what came out of a run, and where its time went."""
    yield f"{run.stopping or 'finished'}: {counted(run.done, 'step')} in {duration(taken)}"
    yield from summary(run)
    for index, line in enumerate(wall_time.table(seconds)):
        yield f"  {'' if index else 'time':<7} {line}"
    if chance:
        yield f"  chance  not deterministic: {', '.join(chance)}"
    if advice:
        yield f"  note    {advice}"


def how_to_resume(run: Run, options: Options, call: Sequence[str], *, unfinished: bool) -> Iterator[str]:
    """Yield the folder of a run and, if it did not finish, what is saved of it and the command that continues it."""
    yield f"  run     {relative(run.folder or '.')}"
    if not unfinished and not run.exit_code:
        return
    if run.store is not None:
        newest, lost = run.store.newest(), run.store.lost(run)
        saved = relative(newest) if newest else "nothing yet"
        yield f"  saved   {saved}{f'; {lost}' if lost else ''}"
    elif run.exit_code:
        yield "  saved   nothing: the run keeps no checkpoints"
    yield f"  resume  {resume_command(run, options, call)}"
