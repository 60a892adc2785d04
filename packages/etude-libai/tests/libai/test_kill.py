"""A run that was killed without a word, at any point, ends after ``--resume`` in the same bits and the same lines."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.formats import foreign
from etude.errors import ResumeError
from tests.sampling import sample

#: What the clock says differs between any two runs.
CLOCK = ("time", "data_time", "eta_seconds", "rank_data_time")


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(train: Callable[[], None]) -> None:
    """Run ``train`` in a process of its own, which has to be killed in it."""

    process = multiprocessing.get_context("fork").Process(target=train)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def lines(folder: str) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in Path(folder, "metrics.json").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in read]


def files_of(folder: str) -> dict[Path, bytes]:
    passing = (".lock", "status.json", "facts.json", "lives.jsonl")  # who was here last
    found = [path for path in Path(folder).rglob("*") if path.is_file() and path.name not in passing]
    return {path: path.read_bytes() for path in found}


def flat(value: Any, way: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{way}.{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for n, item in enumerate(value) for k, v in flat(item, f"{way}.{n}").items()}
    return {way: value}


def assert_same(left: Any, right: Any) -> None:
    left, right = flat(left), flat(right)
    assert left.keys() == right.keys()
    for way, value in left.items():
        equal = torch.equal(value, right[way]) if isinstance(value, torch.Tensor) else value == right[way]
        assert equal, way


def assert_same_end(whole: str, parts: str, entries: tuple[str, ...] = ("model", "optimizer", "lr_scheduler")) -> None:
    for entry in entries:
        assert_same(*(foreign.read(Path(folder, "model_final", entry)) for folder in (whole, parts)))
    assert lines(whole) == lines(parts)


def at_step(number: int) -> Callable[[Any], None]:
    def plan(trainer: Any) -> None:
        from libai.engine.hooks import CallbackHook

        trainer.register_hooks([CallbackHook(before_step=lambda trainer: trainer.iter == number and die())])

    return plan


def before_line(number: int) -> Callable[[Any], None]:
    """Kill right before the ``number``-th line is written: checkpoint and evaluation of that iteration are done."""

    def plan(trainer: Any) -> None:
        from etude_libai.live.events.writers import JSONWriter

        written, write = [0], JSONWriter.write

        def counting(self: Any) -> None:
            written[0] += 1
            die() if written[0] == number else write(self)

        JSONWriter.write = counting  # type: ignore[method-assign]  # of this process, which will not live long

    return plan


def in_evaluation(number: int) -> Callable[[Any], None]:
    """Kill in the ``number``-th evaluation; that after the last iteration comes behind all checkpoints and lines."""

    def plan(trainer: Any) -> None:
        looked, test = [0], type(trainer).test

        def counting(*args: Any) -> Any:
            looked[0] += 1
            return die() if looked[0] == number else test(*args)

        trainer.test = counting

    return plan


NOISY = ("model.dropout=0.5", "dataloader.train.dataset.0.noisy=true", "train.checkpointer.period=4")


@pytest.mark.parametrize(
    ("plan", "options"),
    sample(
        [
            pytest.param(at_step(6), NOISY, id="between-two-lines"),
            pytest.param(at_step(9), (*NOISY, "dataloader.train.num_workers=2"), id="with-workers"),
            pytest.param(before_line(2), NOISY, id="between-checkpoint-and-line"),
            pytest.param(before_line(3), NOISY, id="in-the-last-iteration"),
            pytest.param(in_evaluation(3), NOISY, id="in-the-last-evaluation"),
            pytest.param(
                at_step(7),
                (*NOISY, "train.num_accumulation_steps=3", "train.train_iter=4", "dataloader.train.num_workers=2"),
                id="between-two-updates",
            ),
        ],
        (1, 2, 4, 5),
    ),
)
def test_a_killed_run_ends_in_the_same_bits(
    trainer_of: Callable[..., Any], plan: Callable[[Any], None], options: tuple[str, ...]
) -> None:
    trainer_of(*options, "train.output_dir=whole").train()

    def doomed() -> None:
        trainer = trainer_of(*options, "train.output_dir=parts")
        plan(trainer)
        trainer.train()

    killed(doomed)
    trainer_of(*options, "train.output_dir=parts", resume=True).train()
    assert_same_end("whole", "parts")
    assert_same(*(foreign.read(Path(folder, "model_best", "model")) for folder in ("whole", "parts")))


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_with_empty_records(
    trainer_of: Callable[..., Any],
) -> None:
    trainer_of("train.output_dir=whole").train()

    def doomed() -> None:
        trainer = trainer_of("train.output_dir=parts", "train.log_period=1")
        at_step(3)(trainer)
        trainer.train()

    killed(doomed)
    trainer_of("train.output_dir=parts", resume=True).train()
    assert_same_end("whole", "parts")


# -- damaged checkpoints -----------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    """One bit of a stored tensor."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = next(info.header_offset for info in archive.infolist() if "/data/" in info.filename)
    words = content[start + 26 : start + 30]  # how long the name and what is added to it are
    content[start + 30 + int.from_bytes(words[:2], "little") + int.from_bytes(words[2:], "little")] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "entry"),
    sample([(damage, entry) for damage in (cut, flip, Path.unlink) for entry in ("model", "optimizer")], (0, 3, 4)),
)
def test_a_damaged_checkpoint_is_named_and_the_newest_whole_one_taken(
    trainer_of: Callable[..., Any], damage: Callable[[Path], None], entry: str
) -> None:
    options = ("train.checkpointer.period=4", "train.train_iter=12")
    trainer_of(*options, "train.output_dir=whole").train()
    killed(lambda: _train_until(trainer_of, 9, *options, "train.output_dir=parts"))
    damage(Path("parts/model_0000007", entry))
    trainer = trainer_of(*options, "train.output_dir=parts", resume=True)
    assert trainer.start_iter == 4
    log = Path("parts/log.txt").read_text()
    assert (
        f"WARNING: the checkpoint parts/model_0000007 cannot be used ({'it has no entry' if damage is Path.unlink else entry}"
        in log
    )
    trainer.train()
    assert_same_end("whole", "parts")


def _train_until(trainer_of: Callable[..., Any], number: int, *options: str) -> None:
    trainer = trainer_of(*options)
    at_step(number)(trainer)
    trainer.train()


def test_without_a_whole_checkpoint_a_resume_is_refused(trainer_of: Callable[..., Any]) -> None:
    killed(lambda: _train_until(trainer_of, 6))
    cut(Path("out/model_0000004/model"))
    with pytest.raises(ResumeError, match="none of the checkpoints"):
        trainer_of(resume=True)


def test_a_signal_ends_a_script_after_a_save_and_the_run_resumes_exactly(trainer_of: Callable[..., Any]) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the signal would end this process"
    from libai.engine.hooks import CallbackHook

    def ask(trainer: Any) -> None:
        if trainer.iter == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    trainer_of(*NOISY, "train.output_dir=whole").train()
    trainer = trainer_of(*NOISY, "train.output_dir=parts")
    trainer.register_hooks([CallbackHook(before_step=ask)])
    with pytest.raises(SystemExit) as ended:
        trainer.train()
    assert ended.value.code == 143 and Path("parts", "model_0000005").is_dir()
    trainer_of(*NOISY, "train.output_dir=parts", resume=True).train()
    for entry in ("model", "optimizer", "lr_scheduler"):
        assert_same(*(foreign.read(Path(folder, "model_final", entry)) for folder in ("whole", "parts")))
