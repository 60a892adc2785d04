"""What a resume takes from which side, through the same door as the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from etude.api import train_config as train
from etude.building.options import Options
from etude.checkpoint.find import find
from etude.checkpoint.storage.lock import FolderInUse, Lock
from etude.checkpoint.store import Store
from etude.checkpoint.tools.listing import rows
from etude.core.run import Run
from etude.debug_options import DebugOptions
from etude.errors import ConfigError, NoCheckpoint, ResumeError, UserError

CONFIG = """
model: {type: MLP, sizes: [64, 16, 10], dropout: 0.1}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 1e-2}
schedule: {lr: [{type: Cosine, until: end}]}
train: {epochs: 2, limit_batches: 6}
metrics: [Accuracy]
hooks: [{type: EMA, momentum: 0.1}, {type: EarlyStop, metric: loss, patience: 50}]
checkpoint: {every: 4step, keep: null, best: accuracy}
log: {every: 3step}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def run(config: Path, folder: Path, *overrides: str, trial: DebugOptions | None = None, **options: Any) -> Run:
    chosen = Options(folder=folder, quiet=True, **options)
    return train(config, list(overrides), options=chosen, trial=trial)


def weights(run: Run) -> list[torch.Tensor]:
    return [value.clone() for value in run.model.state_dict().values()]


def same(left: Run, right: Run) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(left), weights(right), strict=True))


def test_a_stopped_run_goes_on_in_the_same_bits(config: Path, tmp_path: Path) -> None:
    calm = run(config, tmp_path / "calm")
    stopped = run(config, tmp_path / "a", chaos="sigterm@step=4")
    assert (stopped.exit_code, stopped.step) == (143, 4)
    resumed = run(config, tmp_path / "a", resume="")
    assert resumed.step == 12 and same(calm, resumed) and calm.metrics == resumed.metrics
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "calm/metrics.jsonl").read_bytes()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_time_limit_saves_and_asks_to_be_queued_again(config: Path, tmp_path: Path) -> None:
    stopped = run(config, tmp_path / "a", trial=DebugOptions(max_seconds=1e-6))
    assert stopped.exit_code == 75 and "time is up" in str(stopped.stopping)
    for life in (2, 3):  # each does one step at least
        stopped = run(config, tmp_path / "a", resume="", trial=DebugOptions(max_seconds=1e-6))
        assert stopped.step == life
    stopped = run(config, tmp_path / "a", resume="")
    assert stopped.step == 12 and same(stopped, run(config, tmp_path / "calm"))


def test_a_longer_run_is_harmless_and_a_new_rate_needs_its_name(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "a", chaos="sigterm@step=6")
    with pytest.raises(
        ConfigError,
        match=r"^override .*: optim\.lr: 0\.01 → 0\.5 changes the result after step-000000006; --allow-change optim\.lr",
    ):
        run(config, tmp_path / "a", "optim.lr=0.5", resume="")
    longer = run(config, tmp_path / "a", "train.epochs=3", "optim.lr=0.5", resume="", allow_change=("lr",))
    assert longer.step == 18
    rates = [
        json.loads(line)["lr"] for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines() if '"lr"' in line
    ]
    assert max(rates) > 0.1
    said = (tmp_path / "a/log.txt").read_text()
    assert "changed since step-000000006: train.epochs: 2 → 3" in said
    assert "the run has a new length: lr continues as in a run of this length" in said
    with pytest.raises(
        ConfigError, match="the checkpoint is at step 18, and this plan ends after 6 steps; give the over"
    ):
        run(config, tmp_path / "a", "train.epochs=1", "optim.lr=0.5", resume="")
    run(config, tmp_path / "a", "train.epochs=1", "optim.lr=0.5", resume="", allow_change=("train.epochs",))
    assert "the plan ends after 6 steps; nothing is left to do" in (tmp_path / "a/log.txt").read_text()


def test_another_batch_size_keeps_the_position_in_samples(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "a", "~train.limit_batches", chaos="sigterm@step=10")  # 10 batches of 64 were used
    options: dict[str, Any] = {"resume": "", "allow_change": ("batch_size", "limit_batches")}
    stopped = run(config, tmp_path / "a", "~train.limit_batches", "data.train.batch_size=128", chaos="sigterm@step=12", **options)  # fmt: skip
    assert stopped.step == 12 and stopped.step_in_epoch == 5 + 2 and stopped.steps_per_epoch == 12
    assert stopped.total_steps == 10 + 7 + 12
    done = run(config, tmp_path / "a", "~train.limit_batches", "data.train.batch_size=128", resume="")
    assert done.step == 29 and done.epoch == 2


def test_a_path_names_the_checkpoint_and_with_it_the_run(config: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    first = train(config, options=Options(quiet=True))
    assert first.folder is not None
    second = train(config, options=Options(quiet=True))
    assert second.folder != first.folder
    path = first.folder / "checkpoints" / "step-000000004"
    again = train(config, options=Options(quiet=True, resume=str(path)))
    assert again.folder is not None and again.folder.resolve() == first.folder.resolve() and same(first, again)
    kept = {entry.step for entry in Store(again.folder / "checkpoints", write=False).entries()}
    assert kept == {4, 6, 8, 12}
    with pytest.raises(ResumeError, match="init_from"):
        train(config, options=Options(quiet=True, resume=str(config)))


def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are(config: Path, tmp_path: Path) -> None:
    first = run(config, tmp_path / "a")
    with pytest.raises(
        ResumeError, match=r"nope: no such file or checkpoint; .*a/checkpoints has step-000000004, step-000000006, "
    ):
        run(config, tmp_path / "a", resume="nope")
    with pytest.raises(
        ResumeError, match=r"nope: no such file or checkpoint; --resume without a path takes the newest"
    ):
        run(config, tmp_path / "b", resume="nope")
    assert not (tmp_path / "b").exists()
    for name in ("step-000000008", "latest", str(tmp_path / "a/checkpoints/latest"), str(tmp_path / "a")):
        assert same(first, run(config, tmp_path / "a", resume=name))


def test_checkpoints_elsewhere_are_resumed_from_there(config: Path, tmp_path: Path) -> None:
    """On another file system, from another folder of the run, and by a bare name."""
    place = f"memory://{tmp_path.name}/run"
    words = [f"+checkpoint.folder={place}", "checkpoint.every=2step"]
    calm = run(config, tmp_path / "calm")
    stopped = run(config, tmp_path / "a", *words, chaos="sigterm@step=5")
    assert stopped.exit_code == 143 and not (tmp_path / "a" / "checkpoints").exists()
    assert f"saved   {place}/step-000000005" in (tmp_path / "a" / "log.txt").read_text()
    for look in (rows, find):
        with pytest.raises((UserError, NoCheckpoint), match=f"keeps (them|its checkpoints) in {place}"):
            look(str(tmp_path / "a"))
    with pytest.raises(ConfigError, match=f"{place} holds a run at step 5"):
        run(config, tmp_path / "b", *words)
    resumed = run(config, tmp_path / "b", *words, resume="")
    assert same(resumed, calm)
    again = run(config, tmp_path / "b", *words, resume="step-000000004")
    kept = [name.rpartition("/")[2] for name in fsspec.filesystem("memory").ls(f"/{tmp_path.name}/run", detail=False)]
    assert same(again, calm) and "aside-000000005" in kept


def test_two_runs_do_not_save_to_one_place(config: Path, tmp_path: Path) -> None:
    word = f"+checkpoint.folder={tmp_path / 'kept'}"
    assert run(config, tmp_path / "a", word, "train.epochs=1").step == 6
    with Lock(tmp_path / "kept"), pytest.raises(FolderInUse, match="kept in use by pid"):
        run(config, tmp_path / "b", word, resume="")
    assert run(config, tmp_path / "b", word, resume="").step == 12
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="checkpoint.folder: .*file/x cannot be written"):
        run(config, tmp_path / "c", f"+checkpoint.folder={tmp_path / 'file' / 'x'}")


def test_a_run_is_not_overwritten_unasked(config: Path, tmp_path: Path) -> None:
    first = run(config, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"holds a run at step 12; --resume continues it, --restart starts"):
        run(config, tmp_path / "a")
    assert same(first, run(config, tmp_path / "a", restart=True))


def test_a_part_taken_out_of_the_config_is_said_and_a_new_one_starts_fresh(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "a", chaos="sigterm@step=6")
    options: dict[str, Any] = {"resume": "", "allow_change": ("hooks",)}
    run(config, tmp_path / "a", "hooks=[{type: EMA, momentum: 0.1}]", chaos="sigterm@step=8", **options)
    log = (tmp_path / "a/log.txt").read_text()
    assert "the stored state of hook.EarlyStop is not used" in log
    run(config, tmp_path / "a", **options)
    assert "hook.EarlyStop was not part of the run before and starts fresh" in (tmp_path / "a/log.txt").read_text()


def test_weights_of_another_run_start_a_new_one(config: Path, tmp_path: Path) -> None:
    first = run(config, tmp_path / "a")
    path = Store(tmp_path / "a/checkpoints", write=False).entries()[-1].path
    warm = run(config, tmp_path / "b", f"+init_from={path}", "train.epochs=1", "optim.lr=1e-30")
    close = [torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(first), weights(warm), strict=True)]
    assert all(close) and warm.step == 6
    assert "4 fit, 0 of another shape, 0 missing, 0 unused" in (tmp_path / "b/log.txt").read_text()


def test_a_misspelt_name_of_an_allowed_change_is_refused(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "a", chaos="sigterm@step=6")
    for name, near in {"optim.lrr": "did you mean 'optim.lr'", "lrr": "did you mean 'lr'", "zzzz": "or 'all'"}.items():
        for resume in ("", None):
            folder = tmp_path / ("a" if resume == "" else f"new-{name}")
            with pytest.raises(ConfigError, match=f"--allow-change {name}: no key is called that; .*{near}"):
                run(config, folder, "optim.lr=0.5", resume=resume, allow_change=("lr", name))
    for name in ("lr", "optim", "optim.lr", "all", "data", "model", "hook.Ema", "Ema"):
        run(config, tmp_path / "a", "optim.lr=0.01", chaos="sigterm@step=7", resume="", allow_change=(name,))


def test_a_checkpoint_on_another_file_system_is_gone_on_from(config: Path, tmp_path: Path) -> None:
    run(config, tmp_path / "a", chaos="sigterm@step=6")
    whole = run(config, tmp_path / "a", resume="")
    entry = Store(tmp_path / "a/checkpoints", write=False).entries()[0]
    fsspec.filesystem("memory").put(entry.path, f"/resumed/checkpoints/{entry.name}", recursive=True)
    for number, path in enumerate(
        ["memory://resumed", "memory://resumed/checkpoints", f"memory://resumed/checkpoints/{entry.name}",
         f"file://{entry.path}"]
    ):  # fmt: skip
        again = run(config, tmp_path / f"b{number}", resume=path)
        assert again.step == whole.step
        assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(again), strict=True))
    with pytest.raises(UserError, match="Protocol not known"):
        run(config, tmp_path / "c", resume="nosuch://x")
