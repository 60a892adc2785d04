"""Manages a run folder in McQuic's layout: ``saveDir/latest``, and older runs in folders named by time."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml

from etude.checkpoint.formats import foreign
from etude.checkpoint.formats.background import BackgroundWriter
from etude.checkpoint.formats.torch_file import save_file
from etude.checkpoint.storage import chaos
from etude.checkpoint.storage.disk import write_atomically
from etude.events.trackers.outbox import Outbox
from etude.events.trackers.service import is_installed
from etude.events.trackers.tensorboard import EventFiles

_STAMP = "%y%m%d-%H%M%S"
_FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"


class Saver:
    """Logs, writes TensorBoard events and saves checkpoints in the folder of a run.

    An existing ``latest`` is first renamed to the time, unless ``reserve`` is set. Then the oldest folders are removed
    until ``maxItems`` are left, including ``latest``; 0 or less keeps all. A ``saveDir`` that ends in ``latest`` is
    used as it is.
    """

    def __init__(
        self,
        saveDir: str | Path,
        saveName: str = "saved.ckpt",
        loggerName: str = "mcquic",
        loggingLevel: int = logging.INFO,
        config: Any = None,
        autoManage: bool = True,
        maxItems: int = 25,
        reserve: bool = False,
        tensorboard: bool = True,
    ) -> None:
        folder = Path(saveDir)
        self._moved: Path | None = None
        if autoManage and not str(folder).endswith("latest"):
            folder, self._moved = _rotate(folder, maxItems=maxItems, reserve=reserve)
        self._before = _small_files(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.saveName = folder, saveName
        self.logger = logging.getLogger(loggerName)
        self.logger.setLevel(loggingLevel)
        self._handlers: list[logging.Handler] = []
        self._hear(logging.FileHandler(_free(folder, f"{time.strftime(_STAMP)}.log"), encoding="utf-8"), _FORMAT)
        self._files = EventFiles()
        self._outbox = Outbox("TensorBoard", after=self._files.flush)
        self._shows = tensorboard and is_installed(EventFiles.package)
        if self._shows:
            self._outbox.put(self._files.begin, folder)
        if config is not None:
            plain = config.serialize() if hasattr(config, "serialize") else config
            text = yaml.safe_dump(plain, sort_keys=False).encode()
            write_atomically(folder / "config.yaml", lambda file: file.write(text))

    @property
    def SaveDir(self) -> str:
        return str(self.folder)

    @property
    def SavePath(self) -> str:
        return str(self.folder / self.saveName)

    def save(self, path: str | Path | None = None, **objects: Any) -> None:
        """Write the states of these objects into one file, completely or not at all."""
        self.later.flush()
        content = {
            name: value.state_dict() if hasattr(value, "state_dict") else value for name, value in objects.items()
        }
        self.later.write(partial(_write, path or self.SavePath), content)
        # McQuic's log line, where only its own entries are named.
        keys = [name for name in objects if name != "etude"]
        self.later.then(partial(self.debug, "Successfully saved checkpoint with keys: %s", keys))

    @cached_property
    def later(self) -> BackgroundWriter:
        """Return the writer of saves in the background."""
        return BackgroundWriter()

    @staticmethod
    def load(path: str | Path, *, trust: bool = False) -> dict[str, Any]:
        """Read such a file; nothing in it is executed."""
        return foreign.read(str(path), trust=trust)

    def speak(self, level: int) -> None:
        """Log to the screen, too, unless the user's program has a handler for that."""
        if not any(type(handler) is logging.StreamHandler for handler in self.logger.handlers):
            self._hear(logging.StreamHandler(sys.stderr), "%(message)s")
        self.logger.propagate = False
        self.logger.setLevel(level)

    def forget_after(self, step: int) -> None:
        """Hide later steps from TensorBoard: a run that resumes from here reports them again."""
        if self._shows:
            self._outbox.put(self._files.begin_again, step + 1)

    def _hear(self, handler: logging.Handler, form: str) -> None:
        handler.setFormatter(logging.Formatter(form))
        self.logger.addHandler(handler)
        self._handlers.append(handler)

    def close(self) -> None:
        for handler in self._handlers:
            self.logger.removeHandler(handler)
            handler.close()
        if self._shows:
            self._outbox.close(self._files.finish)

    def undo(self) -> None:
        """Restore the folder, for a run that could not be started."""
        self.close()
        if self._before is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._moved is not None:
                self._moved.rename(self.folder)
            elif self.folder.parent.is_dir() and not any(self.folder.parent.iterdir()):
                self.folder.parent.rmdir()
            return
        for path in self.folder.iterdir():
            content = self._before.get(path.name)
            if path.name not in self._before:
                path.unlink()
            elif content is not None:
                path.write_bytes(content)

    def __getattr__(self, name: str) -> Any:
        """Log as a logger does: ``saver.info("…", *args)``."""
        if name not in ("debug", "info", "warning", "error", "critical"):
            raise AttributeError(name)
        return getattr(self.logger, name)

    def add_scalar(self, tag: str, value: Any, global_step: int | None = None, **kwds: Any) -> None:
        self._show("add_scalar", tag, value, global_step=global_step, **kwds)

    def add_images(self, tag: str, images: Any, global_step: int | None = None, **kwds: Any) -> None:
        self._show("add_images", tag, images, global_step=global_step, **kwds)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None, **kwds: Any) -> None:
        self._show("add_histogram", tag, values, global_step=global_step, **kwds)

    def _show(self, method: str, tag: str, value: Any, **options: Any) -> None:
        if self._shows:  # a copy of a tensor: training may change it before the thread reads it
            kept = value.detach().clone() if hasattr(value, "detach") else value
            self._outbox.put(self._files.call, method, tag, kept, **options)


class SilentSaver(Saver):
    """The saver of all ranks except 0: it has the same folder, but writes and logs nothing."""

    def __init__(self, saveDir: str | Path, saveName: str = "saved.ckpt") -> None:
        self.folder = latest_of(saveDir)
        self.saveName, self._shows, self._handlers = saveName, False, []
        self.logger = logging.getLogger("mcquic.silent")
        self.logger.disabled = True

    def save(self, path: str | Path | None = None, **objects: Any) -> None:
        """Do nothing: rank 0 does it."""

    def speak(self, level: int) -> None:
        """Do nothing: rank 0 logs."""

    def undo(self) -> None:
        """Do nothing: rank 0 does it."""


class Restorable:
    """Saves and loads all attributes whose names start with an underscore."""

    def state_dict(self) -> dict[str, Any]:
        return {
            name: value.state_dict() if hasattr(value, "state_dict") else value
            for name, value in self.restorable().items()
        }

    def restorable(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.startswith("_") and name[1:2] != "_"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own = self.restorable()
        missing = [name for name in own if name not in state]
        if missing:
            raise RuntimeError(f"the saved state has no {', '.join(missing)}")
        for name, value in own.items():
            if hasattr(value, "load_state_dict"):
                value.load_state_dict(state[name])
            else:
                setattr(self, name, state[name])


def _write(target: str | Path, content: Any) -> None:
    with chaos.saving(target):
        save_file(target, content, mode=0o666)


def latest_of(saveDir: str | Path) -> Path:
    """Return the folder of the newest run: ``saveDir/latest``, or ``saveDir`` itself if that is its name."""
    return Path(saveDir) if str(saveDir).endswith("latest") else Path(saveDir, "latest")


def _small_files(folder: Path) -> dict[str, bytes | None] | None:
    """Return the names in a folder, with the content of its config; None if there is no folder."""
    if not folder.is_dir():
        return None
    return {path.name: path.read_bytes() if path.name == "config.yaml" else None for path in folder.iterdir()}


def _rotate(root: Path, *, maxItems: int, reserve: bool) -> tuple[Path, Path | None]:
    """Return the folder to use, and the new path of the former ``latest``."""
    latest, moved = root / "latest", None
    if latest.exists() and not reserve:
        moved = _free(root, time.strftime(_STAMP))
        latest.rename(moved)
    older = sorted(path for path in root.iterdir() if path.is_dir() and path.name != "latest") if root.is_dir() else []
    surplus = len(older) + 1 - maxItems if maxItems > 0 else 0
    for path in older[: max(0, surplus)]:
        shutil.rmtree(path)
    return latest, moved


def _free(folder: Path, name: str) -> Path:
    """Return the path of ``name`` in ``folder``, with the next free second as its time."""
    stem, dot, ending = name.partition(".")
    moment = time.mktime(time.strptime(stem, _STAMP))
    while (folder / f"{stem}{dot}{ending}").exists():
        moment += 1
        stem = time.strftime(_STAMP, time.localtime(moment))
    return folder / f"{stem}{dot}{ending}"
