"""Crash images: what a disk may hold after the power fails, built from the log of one save.

Bytes that were not yet synced may be lost from the end of a file, and names that were not yet synced may be missing,
each independently. Every prefix of the log is tried, with the gentlest and the cruellest loss and seeded ones between.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from etude.checkpoint.retention import Retention
from etude.checkpoint.storage import disk
from etude.checkpoint.store import Store

from .test_every_call import check, state


class Recorder:
    """Notes every call of a save with the state of the folder right before it."""

    def __init__(self, folder: Path, images: Path) -> None:
        self.folder, self.images = folder, images
        self.synced: dict[str, int] = {}
        self.settled: dict[str, set[str]] = {}
        self.count = 0
        self.pending: tuple[str, str] | None = None

    def __call__(self, call: str, path: str, size: int) -> None:
        self._complete()
        self.pending = (call, path)
        self.count += 1
        for cruelty in (0.0, 0.5, 1.0):
            self._image(self.images / f"{self.count}-{cruelty}", cruelty)

    def _complete(self) -> None:
        """The call before this one has come back: what it promised is on the disk."""
        if self.pending is None:
            return
        call, path = self.pending
        if call == "fsync" and os.path.exists(path):
            self.synced[str(os.stat(path).st_ino)] = os.path.getsize(path)
        if call == "fsync_folder":
            self.settled[str(os.stat(path).st_ino)] = set(os.listdir(path))

    def _image(self, target: Path, cruelty: float) -> None:
        dice = random.Random(self.count)
        self._copy(self.folder, target, cruelty, dice)

    def _copy(self, source: Path, target: Path, cruelty: float, dice: random.Random) -> None:
        target.mkdir(parents=True)
        settled = self.settled.get(str(source.stat().st_ino))
        for name in os.listdir(source):
            lost = settled is not None and name not in settled and dice.random() < cruelty
            if lost and not (source / name).is_dir():
                continue
            if (source / name).is_dir():
                self._copy(source / name, target / (f".{name}.lost.tmp-0" if lost else name), cruelty, dice)
                continue
            data = (source / name).read_bytes()
            safe = self.synced.get(str((source / name).stat().st_ino), len(data) if settled is None else 0)
            keep = safe if cruelty == 1.0 else len(data) - int((len(data) - safe) * dice.random() * cruelty)
            (target / name).write_bytes(data[:keep])


def test_after_a_power_loss_at_any_call_there_is_a_checkpoint(tmp_path: Path) -> None:
    folder, images = tmp_path / "run", tmp_path / "images"
    store = Store(folder, retention=Retention(last=1), say=lambda line: None)
    for step in (1, 2):
        store.save(state(step), step=step)
    store.close()
    recorder = Recorder(folder, images)
    for path in [folder, *(p for p in folder.iterdir() if p.is_dir())]:
        recorder.settled[str(path.stat().st_ino)] = set(os.listdir(path))
        for file in path.iterdir():
            if file.is_file():
                recorder.synced[str(file.stat().st_ino)] = file.stat().st_size
    with disk.gated(recorder):
        store.save(state(3), step=3)
        store.close()
    steps = set()
    for image in sorted(images.iterdir()):
        steps.add(check(image, at_least=2))
        Store(image, say=lambda line: None)
        shutil.rmtree(image)
    assert steps == {2, 3} and recorder.count > 20
