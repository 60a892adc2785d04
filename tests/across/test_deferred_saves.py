"""Training goes on while a dialect's own file is written, unless a hook of the user's could see the difference."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from etude.checkpoint.formats.background import BackgroundWriter
from etude.checkpoint.formats.folders import checkpoints
from etude.checkpoint.storage import chaos, disk
from etude.checkpoint.tools.same_runs import compare_runs
from etude.cli import main
from tests.across.fault_lives import EXAMPLES, SMALL, SMALLER, draw_pictures
from tests.sampling import sample


class Steps:
    """Counts the steps of all optimizers, and waits for the next."""

    def __init__(self) -> None:
        self.count, self.saved_at, self.changed = 0, 0, threading.Condition()

    def __call__(self, *_: Any) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def go_on(self) -> bool:
        """Return whether there are steps after the one of the save."""
        with self.changed:
            return self.changed.wait_for(lambda: self.count > self.saved_at, timeout=60)


@pytest.fixture
def steps() -> Iterator[Steps]:
    made = Steps()
    handle = register_optimizer_step_post_hook(made)
    yield made
    handle.remove()


def train(name: str, folder: str, *words: str) -> int:
    config, *overrides = SMALL[name] + SMALLER.get(name, [])
    return main(["train", str(EXAMPLES / config), *overrides, "--folder", folder, "-q", *words])


@pytest.mark.parametrize("name", sample(SMALL, (0, 2)))
def test_training_goes_on_while_a_file_is_written(
    name: str, steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    draw_pictures()
    assert train(name, "calm") == 0
    went_on: list[bool] = []
    write = BackgroundWriter.write

    def noted_write(self: BackgroundWriter, *args: Any) -> None:
        self.flush()
        steps.saved_at = steps.count
        write(self, *args)

    def hold(call: str, path: str, size: int) -> None:
        """Do not give the first files their names before training has gone on; until then nothing points to them."""
        if call == "rename" and threading.current_thread().name == "etude-save" and ".tmp" not in path:
            file = os.path.basename(path)
            if len(went_on) < 2 and file not in ("last_checkpoint", "latest.pth", "model", "optimizer", "trainer"):
                assert pointed("deferred") in (None, file) or Path("deferred", str(pointed("deferred"))).exists()
                went_on.append(steps.go_on())

    monkeypatch.setattr(BackgroundWriter, "write", noted_write)
    with disk.gated(hold):
        assert train(name, "deferred") == 0
    assert went_on == [True, True]
    assert compare_runs(Path("calm"), Path("deferred")) is None
    assert [one.name for one in checkpoints("calm")] == [one.name for one in checkpoints("deferred")]


def pointed(folder: str) -> str | None:
    """Return the name that the folder's pointer holds."""
    for pointer in (Path(folder, "latest.pth"), Path(folder, "last_checkpoint")):
        if pointer.is_symlink():
            return os.readlink(pointer)
        if pointer.is_file():
            return os.path.basename(pointer.read_text())
    return None


def test_a_hook_of_the_users_finds_every_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    threads: list[str] = []
    monkeypatch.setitem(chaos._listeners, "save.begin", lambda: threads.append(threading.current_thread().name))
    assert train("mmcv1", "run", "custom_hooks.1.type=LargestGradHook") == 0
    assert threads and set(threads) == {threading.main_thread().name}
