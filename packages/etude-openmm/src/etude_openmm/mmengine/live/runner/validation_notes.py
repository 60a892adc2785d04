"""Notes what a validation changes after the checkpoint before it was written, in a small file beside the checkpoint.

A checkpoint is saved at the end of a step or an epoch. The validation that follows adds to the hub, moves plateau
schedulers and patience, and finds a best score. These changes go into ``.etude/<checkpoint>.note``. There is one note,
about the newest checkpoint, until the run ends without an error. A resumed run reads it; without a note it validates
first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from etude.checkpoint.formats.background import BackgroundWriter
from etude.data.resume import Snapshot
from etude.errors import ResumeError
from etude_openmm.mmengine import files
from etude_openmm.mmengine.live import exact
from etude_openmm.mmengine.live.dist.collectives import gather_object
from etude_openmm.mmengine.live.dist.utils import is_main_process
from etude_openmm.mmengine.live.runner.views import Views
from etude_openmm.mmengine.live.visualization.backend import LocalVisBackend


class ValidationNotes(Views):
    """The part of a runner that keeps what happens between a save and the next step."""

    #: The newest checkpoint of this process: its path, its id, and the epoch and iteration it stands for.
    _newest: tuple[str, str, tuple[int, int]] | None = None
    #: Whether a stop came before a validation that was due: a note says so, and the resumed run validates first.
    owes_validation: bool = False
    validates_first: bool = False

    #: Hub and rows of scalars as they were before the current validation, and whether that one was cut off.
    _before: tuple[Any, Any] | None = None
    _cut: bool = False

    @cached_property
    def later(self) -> BackgroundWriter:
        """Return what is written while training continues."""
        return BackgroundWriter()

    def begin_validation(self) -> None:
        """Remember what a validation will change, in case that it is cut off."""
        self._before = self.message_hub.remembered(), self._scalars()
        self._cut = False

    def cut_validation(self) -> None:
        """Forget what a validation that was cut off has noted. It is owed: a resumed run does it."""
        assert self._before is not None
        self.message_hub.go_back(self._before[0])
        self._cut = True
        for hook in self.hooks:  # type: ignore[attr-defined]
            undo = getattr(hook, "cut_evaluation", None)
            if undo is not None:
                undo(self)
        self.owes_validation = True

    def note_validation(self) -> None:
        """Note what a validation changed, if the checkpoint right before it is on the disk.

        One of the last iteration of an epoch is not: a run that is resumed from it ends the epoch first.
        """
        self.later.flush()
        own = Snapshot.take().state_dict()
        generators = gather_object(own) if self.world_size > 1 else [own]
        if self._newest is None or not is_main_process():
            return
        path, identity, counters = self._newest
        if counters == (self.epoch, self.iter):
            note = {
                "id": identity,
                "message_hub": self.message_hub.state_dict(),
                "param_schedulers": scheduler_states(self.param_schedulers),
                "groups": exact.groups_of(self.optim_wrapper),
                "hooks": exact.hooks_of(self),
                "scalars": self._scalars(),
                "generators": generators,
            }
            self._forget_notes(path)
            files.write(files.note_path(path), files.plain(note))

    def _forget_notes(self, checkpoint: str) -> None:
        if is_main_process():
            files.remove(os.path.dirname(files.note_path(checkpoint)))

    def _forget_if_over(self) -> None:
        """Remove the notes of a run that has come to its end."""
        if self._newest is not None and not self.engine.exit_code:
            self._forget_notes(self._newest[0])

    def _note_about(self, path: str, saved: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the note about the checkpoint at ``path``, if there is one and it is about this very save."""
        target = files.note_path(os.path.realpath(path))
        if "id" not in saved or not os.path.isfile(target):
            return None
        try:
            note = files.read(target)
        except ResumeError:
            return None
        return note if note.get("id") == saved["id"] else None

    def _is_owed(self, checkpoint: str, saved: Mapping[str, Any]) -> bool:
        """Return whether a validation is done again behind a checkpoint without a note.

        It is, so that training goes on with the random numbers that it left; but not behind the end of a run.
        """
        scalars = saved.get("scalars")
        if saved.get("cut") or not saved.get("owes_validation"):
            return bool(saved.get("cut"))
        if self.iter < self.max_iters or not scalars:
            return True
        earlier = _beside(checkpoint, scalars)
        return not os.path.isfile(earlier) or os.path.getsize(earlier) <= int(scalars["size"])

    # -- the rows of scalars.json ---------------------------------------------------------------------------------

    def _scalars(self) -> dict[str, Any] | None:
        """Return how far ``scalars.json`` is written."""
        for backend in self._local_backends():
            path, size = backend.written()
            return {"file": os.path.relpath(path, self.work_dir), "size": size}
        return None

    def _go_on_with_scalars(self, checkpoint: str, scalars: Mapping[str, Any] | None) -> None:
        """Begin this start's ``scalars.json`` with the rows up to the checkpoint: no step twice, none missing."""
        if not scalars or not is_main_process():
            return
        for backend in self._local_backends():
            backend.go_on_from(_beside(checkpoint, scalars), int(scalars["size"]))

    def _local_backends(self) -> list[LocalVisBackend]:
        backends = getattr(self.visualizer, "_vis_backends", {}).values()
        return [backend for backend in backends if isinstance(backend, LocalVisBackend)]


def _beside(checkpoint: str, scalars: Mapping[str, Any]) -> str:
    return os.path.join(os.path.dirname(os.path.realpath(checkpoint)), str(scalars["file"]))


def scheduler_states(schedulers: Any) -> Any:
    """Return the states of built schedulers, by optimizer name where there are several."""
    if schedulers is None:
        return None
    if isinstance(schedulers, dict):
        return {name: scheduler_states(one) for name, one in schedulers.items()}
    return [scheduler.state_dict() for scheduler in schedulers]
