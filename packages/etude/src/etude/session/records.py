"""Opens what records a run: its writers, and the status that is seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.building.components import build_component
from etude.config.dump import flat
from etude.core.run import Run
from etude.events.history import History, LiveCurves
from etude.events.jsonl import Jsonl
from etude.events.media import Media
from etude.ledger.rows import file_of
from etude.ledger.writer import Ledger, Noting, OwnLedger
from etude.plan import Plan
from etude.preview.notebook import in_notebook
from etude.session.watch.status import Status, write_facts

if TYPE_CHECKING:
    from etude.session.session import Session


def writers_of(run: Run, plan: Plan | None, given: Sequence[Any]) -> list[Any]:
    """Return what writes the records of a run: its own files, then those that the plan or a script names."""
    if run.folder is None:
        return []
    own: list[Any] = [Jsonl(run.folder / "metrics.jsonl"), Jsonl(run.folder / "timing.jsonl", timing=True)]
    if run.ledger:
        own.append(keep_history(run, Ledger(run.folder / file_of(0))))
    named = plan.writers if plan is not None else ()
    wanted = [build_component(spec, folder=run.folder) for spec in named] + list(given)
    if not any(isinstance(writer, Media) for writer in wanted):
        own.append(Media(run.folder))
    return own + wanted


def open_status(session: Session) -> Status | None:
    """Write down what can be seen of the run from outside."""
    run = session.run
    run.events.writers.append(LiveCurves(run.total_steps) if in_notebook() and not session.options.quiet else History())
    if run.folder is not None and session.lasting and run.world.is_main:
        spent = session.sampler.seconds
        plan = flat(session.folder.plan_text()) | {f"--{name}": value for name, value in session.flags.items()}
        status = Status(
            run.folder, run, time_spent=spent, plan=plan, began=session.began, slow=session.slow.record,
            before=session.folder.before if session.options.resume is not None else None,
            whole_process=bool(session.options.extras),
        )  # fmt: skip
        status.begin()
        write_facts(run.folder, run, session.tree)
        run.events.writers.append(status)
        return status
    return None


def keep_own_history(run: Run, folder: Path) -> None:
    """Keep the ledger of a rank that writes no other records."""
    keep_history(run, OwnLedger(folder / file_of(run.world.rank)))


def close_own_history(run: Run) -> None:
    """Close the ledger where it is none of the writers."""
    if isinstance(run.history, OwnLedger):
        run.history.close()


def keep_history(run: Run, ledger: Ledger) -> Ledger:
    """Let every step of a run be noted in its ledger."""
    run.history = ledger
    noting = Noting(ledger)
    for hook in (noting, *noting.after):
        run.hooks.add(hook)
    return ledger
