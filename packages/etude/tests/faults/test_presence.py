"""The folder of a run is deleted, emptied, moved or replaced while it trains."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.api import train_config as train
from etude.building.options import Options
from etude.checkpoint.storage.lock import Lock
from etude.cli import main
from etude.core.run import Run
from etude.errors import SaveError
from tests.zygote import etude

CONFIG = """
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 64}}
optim: {type: SGD, lr: 1e-2}
train: {epochs: 2, limit_batches: 6}
imports: [harm.py]
hooks: [{type: Harm}]
checkpoint: {every: 4step, keep: null}
log: {every: 5step}
"""
HARM = """
import os, shutil
from etude.registry import HOOKS
from etude.core.hook import Hook

@HOOKS.register
class Harm(Hook):
    priority = 200

    def after_step(self, run):
        self.harm(run, str(run.step + 1))

    def after_train(self, run):
        self.harm(run, "end")

    def harm(self, run, at):
        what, _, when = os.environ.get("HARM", "").partition("@")
        if when != at or not run.world.is_main:
            return
        if run.store is not None:
            run.store.store.wait()
        folder = str(run.folder)
        if what == "move":
            os.rename(folder, folder + "-moved")
        elif what == "empty":
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                shutil.rmtree(path) if os.path.isdir(path) else name == ".lock" or os.unlink(path)
        elif what == "lock":
            os.unlink(os.path.join(folder, ".lock"))
        elif what == "edit":
            with open(os.path.join(folder, "edited"), "w") as file:
                file.write(open(os.path.join(folder, "plan.yaml")).read() + "# a note")
            os.replace(os.path.join(folder, "edited"), os.path.join(folder, "plan.yaml"))
        elif what == "checkpoints":
            shutil.rmtree(os.path.join(folder, "checkpoints"))
        else:
            shutil.rmtree(folder)
        if what == "miss":
            open(os.path.join(folder, "config", "a.txt"))
        if what == "replace":
            os.makedirs(folder)
            open(os.path.join(folder, "plan.yaml"), "w").write("another: run")
"""


@pytest.fixture
def run(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    (workdir / "config.yaml").write_text(CONFIG)
    (workdir / "harm.py").write_text(HARM)

    def start(folder: str, harm: str = "", *words: str, **options: Any) -> Run:
        monkeypatch.setenv("HARM", harm)
        return train("config.yaml", list(words), options=Options(folder=Path(folder), quiet=True, **options))

    return start


@pytest.mark.parametrize(
    ("harm", "saved"),
    [("delete@6", 8), ("delete@3", 4), ("empty@9", 10), ("move@6", 8), ("delete@9", 10)],
)  # fmt: skip
def test_a_folder_that_is_lost_is_made_anew_for_one_checkpoint(run: Callable[..., Run], harm: str, saved: int) -> None:
    """It is noticed at the save of step 4 or 8, or at the record of step 5 or 10, and the run stops after that step."""
    lost = run("a", harm)
    assert lost.exit_code == 6 and "a was deleted, emptied or moved while the run trained" in str(lost.stopping)
    assert os.listdir("a/checkpoints").count("latest") and lost.step <= saved
    log = Path("a/log.txt").read_text()
    assert "a was deleted, emptied or moved" in log or "made anew for the checkpoint of this step" in log
    assert {"plan.yaml", "config", "env.json", "status.json", "facts.json"} <= set(os.listdir("a"))
    resumed = run("a", resume="")
    assert (resumed.step, resumed.exit_code) == (12, 0)
    calm = run("calm")
    assert all(value.equal(calm.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())


def test_a_folder_that_is_lost_after_the_last_save_is_an_error(run: Callable[..., Run]) -> None:
    for name, words in (("a", ["log.every=100step"]), ("b", ["~checkpoint", "log.every=100step"])):
        with pytest.raises(SaveError, match=f"{name} was deleted, emptied or moved while the run trained"):
            run(name, "delete@end", *words)


def test_a_file_that_is_missing_with_its_folder_is_not_blamed_on_a_hook(run: Callable[..., Run]) -> None:
    with pytest.raises(SaveError, match="a was deleted, emptied or moved while the run trained"):
        run("a", "miss@3")


def test_a_folder_that_another_run_has_taken_is_left_to_it(run: Callable[..., Run]) -> None:
    with pytest.raises(SaveError, match="there is another run in its place now"):
        run("a", "replace@6")
    assert Path("a/plan.yaml").read_text() == "another: run" and not Path("a/checkpoints").exists()


def test_a_lock_that_is_deleted_alone_is_taken_again(run: Callable[..., Run]) -> None:
    assert run("a", "lock@6").exit_code == 0
    assert "deleted" not in Path("a/log.txt").read_text() and Path("a/.lock").exists()
    lock = Lock("a")
    assert lock.is_in_place()
    os.unlink("a/.lock")
    assert not lock.is_in_place()
    lock.retake(), lock.retake()
    assert lock.is_in_place()
    lock.release()
    shutil.rmtree("a")


def test_checkpoints_that_are_deleted_alone_are_noticed(run: Callable[..., Run]) -> None:
    assert run("a", "checkpoints@6").exit_code == 0
    assert "step-000000004 was deleted while the run trained; older ones" in Path("a/log.txt").read_text()
    with pytest.raises(SaveError, match="b/checkpoints: step-000000012 was deleted while the run trained"):
        run("b", "checkpoints@end")


def test_a_plan_that_is_edited_or_a_second_start_is_no_loss(run: Callable[..., Run]) -> None:
    assert run("a", "edit@6").exit_code == 0 and run("a", "edit@6", restart=True).exit_code == 0


def test_the_command_ends_with_code_6(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARM", "delete@6")
    assert main(["train", "config.yaml", "--folder", "a"]) == 6
    said = capsys.readouterr().err
    assert "it is made anew for the checkpoint of this step" in said and "Traceback" not in said
    assert (
        "saved   a/checkpoints/step-00000000" in said and "resume  etude train config.yaml --folder a --resume" in said
    )


def test_several_ranks_stop_together_when_the_folder_is_lost(workdir: Path) -> None:
    (workdir / "config.yaml").write_text(CONFIG)
    (workdir / "harm.py").write_text(HARM)
    words = ("train", "config.yaml", "--folder", "a", "--nproc", "2", "--max-restarts", "2")
    lost = etude(*words, env={**os.environ, "HARM": "delete@6"})
    assert lost.returncode == 6 and "a was deleted, emptied or moved while the run trained" in lost.stderr
    assert "starting again" not in lost.stderr
    assert etude("ckpt", "verify", "a").returncode == 0
