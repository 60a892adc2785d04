"""Options of the command line, or of ``etude.train``, that are not in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.dist.jobs import reports
from etude.dist.world import World
from etude.fast_dataclass import field, record, replace


@record(kw_only=True)
class Options:
    """Options of the command line or of ``etude.train`` that are not in the plan: the folder, resume, signals."""

    folder: Path | None = None
    #: None: start anew; ``""``: the newest usable checkpoint of this run; else the one at this path.
    resume: str | None = None
    restart: bool = False
    quiet: bool = False
    trust: bool = False
    allow_change: tuple[str, ...] = ()
    #: Refuse to resume with other code than the run began with.
    strict: bool = False
    chaos: str = ""
    #: Seconds between a signal and the end, for the step and the save.
    grace: float = 30.0
    #: Flags of a dialect's own front end (``work_dir``, ``no_validate``, ``amp`` …).
    extras: Mapping[str, Any] = field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(self, *, folder: Path | str | None = None, **options: Any) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.folder, str):
            object.__setattr__(self, "folder", Path(self.folder))


def options_for_attempt(options: Options) -> Options:
    """Return the options for this attempt: after a restart, those that resume in the same folder without `--chaos`."""
    if not (reports.attempt() or World.from_environment().attempt):
        return options
    before = reports.folder_before() or options.folder
    # `--restart` was meant for the first attempt: done again, it would throw away what that one saved.
    if before is None:
        return replace(options, chaos="")
    return replace(options, folder=before, resume="", restart=False, chaos="")
