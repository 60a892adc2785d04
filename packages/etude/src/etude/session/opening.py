"""Opens the session that a run needs, and ends a script as a signal would have ended it."""

from __future__ import annotations

from typing import Any

from etude import dialects
from etude.building.options import Options
from etude.core.run import Run
from etude.hooks.signals import SIGNALS
from etude.session.hosted import HostedSession
from etude.session.session import Session

_CTRL_C, _SIGTERM = SIGNALS["SIGINT"][1], SIGNALS["SIGTERM"][1]


def open_session(run: Run, options: Options, **around: Any) -> Session:
    """Return the context to train ``run`` in. A run that drives itself keeps its own log and checkpoints."""
    if dialects.of(run.plan).drives_itself:
        return HostedSession(run, options, **around)
    return Session(run, options, **around)


def end_script(run: Run) -> None:
    """Let the signal that has stopped a run end the script as well, as it would without Étude."""
    if run.exit_code == _CTRL_C:
        raise KeyboardInterrupt(run.stopping)
    if run.exit_code == _SIGTERM:
        raise SystemExit(_SIGTERM)
