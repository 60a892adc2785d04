"""A run that was interrupted anywhere and resumed ends in the same bits as one that was not."""

from __future__ import annotations

import errno
import shutil
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from etude.checkpoint.storage import disk
from etude.data.torch_loader.epoch_seeds import end_workers
from etude.errors import ResumeError, SaveError
from tests.mmcv1.toys import Net, Noisy, assert_same_bits, noisy_loader, weights

from mmcv.runner import EvalHook, Hook, set_random_seed  # isort: skip
from tests.sampling import sample

EPOCHS = {"max_epochs": 4}
ITERS = {"max_iters": 17}
#: Tells a runner that it is one of ``etude train``; it looks no further.
PLAN: Any = object()


class Killed(RuntimeError):
    """Stands for a process that ends."""


class KillHook(Hook):
    """Ends the run at a moment of choice."""

    def __init__(self, stage: str, epoch: int = -1, iteration: int = -1) -> None:
        self.stage, self.epoch, self.iteration = stage, epoch, iteration

    def after_train_iter(self, runner: Any) -> None:
        if self.stage == "after_train_iter" and runner.iter == self.iteration:
            raise Killed

    def before_train_epoch(self, runner: Any) -> None:
        if self.stage == "before_train_epoch" and runner.epoch == self.epoch:
            raise Killed

    def after_train_epoch(self, runner: Any) -> None:
        if self.stage == "after_train_epoch" and runner.epoch == self.epoch:
            raise Killed


class Bad(Noisy):
    """One sample cannot be read."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.index:
            raise OSError(f"cannot read {index}")
        return super().__getitem__(index)


def _prepared(
    make_runner: Any,
    folder: Path,
    length: dict[str, int],
    *,
    checkpoint: dict[str, Any],
    ema: str = "ABOVE_NORMAL",
    accumulate: int = 0,
) -> Any:
    several = {"type": "GradientCumulativeOptimizerHook", "cumulative_iters": accumulate} if accumulate else {}
    runner = make_runner(Net(), folder=folder, **length)
    runner.register_training_hooks(
        lr_config={"policy": "step", "step": [2], "warmup": "linear", "warmup_iters": 7},
        optimizer_config={"grad_clip": {"max_norm": 1.0}, **several},
        checkpoint_config=dict(checkpoint),
        custom_hooks_config=[{"type": "EMAHook", "momentum": 0.2, "warm_up": 2, "priority": ema}],
    )
    by_epoch = "max_epochs" in length
    hook = EvalHook(noisy_loader(), by_epoch=by_epoch, interval=1 if by_epoch else 3, save_best="acc")
    runner.register_hook(hook, priority="LOW")
    return runner


def _train(runner: Any, workers: int = 0) -> Any:
    set_random_seed(7)
    try:
        runner.run([noisy_loader(workers), noisy_loader()], [("train", 2), ("val", 1)])
    finally:
        end_workers([], runner._open_passes())
    return runner


@pytest.mark.parametrize(
    ("length", "checkpoint", "file", "workers"),
    sample(
        [
            pytest.param(EPOCHS, {"interval": 1}, "epoch_1.pth", 0, id="between two epochs of one turn"),
            pytest.param(EPOCHS, {"interval": 1}, "epoch_2.pth", 0, id="before a validation turn"),
            pytest.param(EPOCHS, {"interval": 1}, "epoch_2.pth", 2, id="two workers"),
            pytest.param(EPOCHS, {"interval": 4, "by_epoch": False}, "epoch_2.pth", 0, id="inside an epoch"),
            pytest.param(
                EPOCHS, {"interval": 4, "by_epoch": False}, "epoch_2.pth", 2, id="inside an epoch, two workers"
            ),
            pytest.param(ITERS, {"interval": 5}, "iter_5.pth", 0, id="iterations"),
            pytest.param(ITERS, {"interval": 6}, "iter_6.pth", 0, id="iterations, at the end of a pass"),
            pytest.param(ITERS, {"interval": 5}, "iter_10.pth", 2, id="iterations, two workers"),
        ],
        (1, 4, 6),
    ),
)
def test_a_resumed_run_ends_in_the_same_bits(
    make_runner: Any, tmp_path: Path, length: Any, checkpoint: Any, file: str, workers: int
) -> None:
    whole = _train(_prepared(make_runner, tmp_path / "whole", length, checkpoint=checkpoint), workers)
    again = _prepared(make_runner, tmp_path / "again", length, checkpoint=checkpoint)
    again.resume(str(tmp_path / "whole" / file))
    assert 0 < again.iter < whole.iter
    _train(again, workers)
    assert_same_bits(weights(again), weights(whole))
    assert (again.iter, again.epoch) == (whole.iter, whole.epoch)
    best = again.meta["hook_msgs"]["best_score"], whole.meta["hook_msgs"]["best_score"]
    assert best[0] == best[1]


@pytest.mark.parametrize(
    ("length", "checkpoint", "file"),
    [
        pytest.param(EPOCHS, {"interval": 1}, "epoch_2.pth", id="between two epochs"),
        pytest.param(EPOCHS, {"interval": 4, "by_epoch": False}, "epoch_2.pth", id="inside an epoch"),
        pytest.param(ITERS, {"interval": 8}, "iter_8.pth", id="iterations"),
    ],
)
def test_a_generator_of_the_loaders_own_goes_on_too(
    make_runner: Any, tmp_path: Path, length: Any, checkpoint: Any, file: str
) -> None:
    def train(runner: Any) -> Any:
        set_random_seed(7)
        own = torch.Generator().manual_seed(9)
        runner.run([DataLoader(Noisy(), batch_size=4, shuffle=True, generator=own)], [("train", 1)])
        return runner

    whole = train(_prepared(make_runner, tmp_path / "whole", length, checkpoint=checkpoint))
    again = _prepared(make_runner, tmp_path / "again", length, checkpoint=checkpoint)
    again.resume(str(tmp_path / "whole" / file))
    assert_same_bits(weights(train(again)), weights(whole))


def test_averages_that_are_swapped_after_the_save_resume_too(make_runner: Any, tmp_path: Path) -> None:
    """The validation epoch after the checkpoint sees them, in a resumed run too."""
    settings = {"checkpoint": {"interval": 1}, "ema": "NORMAL"}
    whole, again = (_prepared(make_runner, tmp_path / name, EPOCHS, **settings) for name in ("whole", "again"))
    seen: dict[Any, list[float]] = {whole: [], again: []}

    class Losses(Hook):
        def after_val_iter(self, runner: Any) -> None:
            seen[runner].append(runner.outputs["loss"].item())

    whole.register_hook(Losses())
    _train(whole)
    again.register_hook(Losses())
    again.resume(str(tmp_path / "whole" / "epoch_2.pth"))
    assert_same_bits(weights(_train(again)), weights(whole))
    assert seen[again] == seen[whole]


@pytest.mark.parametrize(("length", "file"), [(EPOCHS, "epoch_1.pth"), (ITERS, "iter_5.pth")])
def test_gradients_that_wait_for_their_update_travel_along(
    make_runner: Any, tmp_path: Path, length: dict[str, int], file: str
) -> None:
    settings = {"checkpoint": {"interval": 1}, "accumulate": 4}
    whole = _train(_prepared(make_runner, tmp_path / "whole", length, **settings))
    again = _prepared(make_runner, tmp_path / "again", length, **settings)
    again.resume(str(tmp_path / "whole" / file))
    assert_same_bits(weights(_train(again)), weights(whole))


@pytest.mark.parametrize("ema", ["ABOVE_NORMAL", "NORMAL"])
def test_hooks_that_a_killed_run_did_not_reach_are_called_on_resume(make_runner: Any, tmp_path: Path, ema: str) -> None:
    settings = {"checkpoint": {"interval": 1}, "ema": ema}
    whole = _train(_prepared(make_runner, tmp_path / "whole", EPOCHS, **settings))
    killed = _prepared(make_runner, tmp_path / "killed", EPOCHS, **settings)
    killed.register_hook(KillHook("after_train_epoch", epoch=1), priority="BELOW_NORMAL")
    with pytest.raises(Killed):
        _train(killed)
    again = _prepared(make_runner, tmp_path / "killed", EPOCHS, **settings)
    again.auto_resume()
    _train(again)
    assert_same_bits(weights(again), weights(whole))
    evaluation = next(hook for hook in again.hooks if isinstance(hook, EvalHook))
    assert evaluation.dataloader.dataset.evaluations == 3  # that of epoch 2, which the killed run did not reach, too


def test_a_run_that_is_asked_to_stop_saves_where_it_is(make_runner: Any, tmp_path: Path) -> None:
    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 8:
                runner.engine.stop("stopped by SIGTERM", exit_code=143)

    checkpoint = {"interval": 1}
    whole = _train(_prepared(make_runner, tmp_path / "whole", EPOCHS, checkpoint=checkpoint))
    stopped = _prepared(make_runner, tmp_path / "stopped", EPOCHS, checkpoint=checkpoint)
    stopped.register_hook(Stop(), priority="LOWEST")
    _train(stopped)
    assert stopped.iter == 9
    assert (tmp_path / "stopped" / "latest.pth").readlink() == Path("stopped_iter_9.pth")
    again = _prepared(make_runner, tmp_path / "stopped", EPOCHS, checkpoint=checkpoint)
    again.auto_resume()
    _train(again)
    assert_same_bits(weights(again), weights(whole))


@pytest.mark.parametrize(
    ("length", "hook", "file"),
    [
        pytest.param(EPOCHS, KillHook("after_train_iter", iteration=8), "stopped_iter_9.pth", id="inside an epoch"),
        pytest.param(EPOCHS, KillHook("after_train_epoch", epoch=0), "stopped_iter_6.pth", id="at its end"),
        pytest.param(EPOCHS, KillHook("before_train_epoch", epoch=1), "stopped_iter_6.pth", id="before the next"),
        pytest.param(ITERS, KillHook("after_train_iter", iteration=8), "stopped_iter_9.pth", id="iterations"),
        pytest.param(ITERS, KillHook("after_train_iter", iteration=9), "stopped_iter_10.pth", id="after a save"),
    ],
)
def test_a_hook_that_raises_costs_no_step_that_was_done(
    make_runner: Any, tmp_path: Path, length: Any, hook: KillHook, file: str
) -> None:
    """The hooks after it (averages among them) are called by the resumed run; a script's runner leaves nothing."""
    settings = {"checkpoint": {"interval": 10}, "ema": "LOW"}
    whole = _train(_prepared(make_runner, tmp_path / "whole", length, **settings))
    for plan in (None, PLAN):
        broken = _prepared(make_runner, tmp_path / "broken", length, **settings)
        broken.engine.plan = plan
        broken.register_hook(copy(hook))
        with pytest.raises(Killed):
            _train(broken)
        assert (tmp_path / "broken" / file).exists() == (plan is not None)
    again = _prepared(make_runner, tmp_path / "broken", length, **settings)
    again.register_hook(Hook())
    again.auto_resume()
    assert_same_bits(weights(_train(again)), weights(whole))


@pytest.mark.parametrize("length", sample([EPOCHS, ITERS], (0,)))
def test_a_sample_that_raises_in_a_worker_costs_no_step(make_runner: Any, tmp_path: Path, length: Any) -> None:
    settings = {"checkpoint": {"interval": 20}}

    def train(runner: Any, bad: int) -> Any:
        set_random_seed(7)
        try:
            runner.run([DataLoader(Bad(bad), batch_size=4, shuffle=True, num_workers=1)], [("train", 1)])
        finally:
            end_workers([], runner._open_passes())
        return runner

    whole = train(_prepared(make_runner, tmp_path / "whole", length, **settings), -1)
    broken = _prepared(make_runner, tmp_path / "broken", length, **settings)
    broken.engine.plan = PLAN
    with pytest.raises(OSError, match="cannot read"):
        train(broken, 5)
    again = _prepared(make_runner, tmp_path / "broken", length, **settings)
    again.auto_resume()
    assert again.iter == broken.iter > 0
    assert_same_bits(weights(train(again, -1)), weights(whole))


def test_what_has_to_be_repeated_after_an_error_is_told(
    make_runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = _prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1})
    broken.engine.plan = PLAN
    broken.register_hook(KillHook("after_train_iter", iteration=8), priority="HIGH")
    with pytest.raises(Killed):
        _train(broken)
    assert not list(tmp_path.glob("stopped*"))
    said = "the newest checkpoint is epoch_1.pth; 3 iterations are to be repeated: it was raised inside an update"
    assert said in caplog.text


def test_state_of_a_users_hook_travels_along(make_runner: Any, tmp_path: Path) -> None:
    class Counting(Hook):
        def __init__(self) -> None:
            self.count = 0

        def after_train_iter(self, runner: Any) -> None:
            self.count += 1

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    def prepared() -> tuple[Any, Counting]:
        runner = _prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1})
        hook = Counting()
        runner.register_hook(hook)
        return runner, hook

    first, counted = prepared()
    _train(first)
    again, counting = prepared()
    again.resume(str(tmp_path / "epoch_2.pth"))
    _train(again)
    assert counting.count == counted.count == 24


def test_a_damaged_newest_checkpoint_is_skipped(make_runner: Any, tmp_path: Path) -> None:
    _train(_prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1}))
    content = (tmp_path / "epoch_4.pth").read_bytes()
    (tmp_path / "epoch_4.pth").write_bytes(content[: len(content) // 2])
    again = _prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1})
    again.auto_resume()
    assert again.epoch == 3
    for path in tmp_path.glob("*.pth"):
        if not path.is_symlink():
            path.write_bytes(b"no checkpoint at all")
    with pytest.raises(ResumeError, match="no checkpoint can be used"):
        again.auto_resume()


def test_a_checkpoint_is_plain_data_in_mmcvs_layout(make_runner: Any, tmp_path: Path) -> None:
    _train(_prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1}))
    found = torch.load(tmp_path / "epoch_4.pth", weights_only=False)
    assert list(found)[:3] == ["meta", "state_dict", "optimizer"]
    assert {"epoch", "iter", "mmcv_version", "time"} <= set(found["meta"])
    assert "fc1.weight" in found["state_dict"]


def test_a_copied_checkpoint_without_its_note_still_resumes(make_runner: Any, tmp_path: Path) -> None:
    whole = _train(_prepared(make_runner, tmp_path / "whole", EPOCHS, checkpoint={"interval": 1}))
    shutil.copy(tmp_path / "whole" / "epoch_3.pth", tmp_path / "alone.pth")
    again = _prepared(make_runner, tmp_path / "again", EPOCHS, checkpoint={"interval": 1})
    again.resume(str(tmp_path / "alone.pth"))
    _train(again)
    assert_same_bits(weights(again), weights(whole))


def test_the_dataset_of_these_tests_is_random() -> None:
    assert not torch.equal(Noisy()[0]["x"], Noisy()[0]["x"])


def test_a_full_disk_is_forgiven_twice(make_runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing = {"epoch_1.pth", "epoch_2.pth"}

    def gate(call: str, path: str, size: int) -> None:
        if call == "write" and any(name in path for name in failing):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    with disk.gated(gate):
        _train(_prepared(make_runner, tmp_path, EPOCHS, checkpoint={"interval": 1}))
        assert {"epoch_3.pth", "epoch_4.pth"} == {path.name for path in tmp_path.glob("epoch_*")}
        assert "could not be written: No space left on device; training continues" in caplog.text
        failing.update({"epoch_3.pth", "epoch_4.pth"})
        with pytest.raises(SaveError):
            _train(_prepared(make_runner, tmp_path / "again", EPOCHS, checkpoint={"interval": 1}))
