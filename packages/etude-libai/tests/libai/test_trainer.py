"""The default trainer beyond the recorded runs: precision, sizes, several loaders, early ends, custom parts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.errors import ConfigError, SaveError
from libai.engine import DefaultTrainer
from libai.engine.hooks import CallbackHook, EarlyStop


def test_parallel_sizes_that_do_not_fit_are_refused_in_words(trainer_of: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"train.dist.pipeline_parallel_size=2 needs train.dist.pipeline_num_layers"):
        trainer_of("train.dist.pipeline_parallel_size=2")
    with pytest.raises(ConfigError, match=r"pipeline_parallel_size=2 needs 2 processes; 1 was started; .* --nproc 2"):
        trainer_of("train.dist.pipeline_parallel_size=2", "train.dist.pipeline_num_layers=2")


def test_lower_precision_works_in_eager_mode(trainer_of: Callable[..., Any]) -> None:
    trainer = trainer_of("train.amp.enabled=true", "train.train_iter=4")
    seen: list[torch.dtype] = []
    trainer.model.hidden.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    trainer.train()
    assert torch.bfloat16 in seen


def test_several_loaders_of_one_data_set_class_are_told_apart(config: Path, trainer_of: Callable[..., Any]) -> None:
    config.write_text(
        config.read_text()
        + "\ndataloader['test'].append(dataloader['test'][0].copy())\ndataloader['test'][1].dataset.n = 7\n"
    )
    trainer = trainer_of("train.train_iter=4")
    trainer.train()
    results = trainer._last_eval_results
    assert set(results) == {"mse", "Points", "Points_2"}
    assert results["mse"] == results["Points_2"]["mse"] != results["Points"]["mse"]


def test_an_early_stop_ends_in_good_order(trainer_of: Callable[..., Any]) -> None:
    class Stopping(DefaultTrainer):
        def build_hooks(self) -> list[Any]:
            made = super().build_hooks()
            made.insert(5, EarlyStop("mse", mode="max", patience=1))
            return made

    trainer = trainer_of("train.train_iter=100", "train.log_period=1", kind=Stopping)
    ended: list[int] = []
    trainer.register_hooks([CallbackHook(after_train=lambda trainer: ended.append(trainer.iter))])
    trainer.train()
    assert ended == [8]
    assert "did not improve" in str(trainer.engine.stopping)


def test_a_stop_says_why_and_loses_nothing(trainer_of: Callable[..., Any]) -> None:
    def stop(trainer: Any) -> None:
        if trainer.iter == 5:
            trainer.stop("enough")

    whole = trainer_of("train.train_iter=9", "train.output_dir=whole")
    whole.train()
    stopped = trainer_of("train.train_iter=9")
    stopped.register_hooks([CallbackHook(before_step=stop)])
    stopped.train()
    assert (stopped.iter, stopped.engine.exit_code) == (6, 0)
    assert Path("out/last_checkpoint").read_text() == "model_0000005"
    assert "enough, saved; --resume goes on with iteration 6" in Path("out/log.txt").read_text()
    resumed = trainer_of("train.train_iter=9", resume=True)
    assert resumed.start_iter == 6
    resumed.train()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_a_loss_that_is_lost_is_told_once_with_the_way_back(trainer_of: Callable[..., Any]) -> None:
    """LiBai itself trains on without a word, and so does this: only the word is new."""

    def spoil(trainer: Any) -> None:
        if trainer.iter == 6:
            torch.nn.init.constant_(trainer.model.out.weight, float("nan"))

    trainer = trainer_of("train.train_iter=12", "train.log_period=2", "train.checkpointer.period=3")
    trainer.register_hooks([CallbackHook(before_step=spoil)])
    trainer.train()
    told = [line for line in Path("out/log.txt").read_text().splitlines() if "trains on all the same" in line]
    assert len(told) == 1 and "total_loss is nan, since iteration 6." in told[0]
    assert "from before is out/model_0000005, which max_to_keep=100 will remove: stop the run" in told[0]
    assert told[0].endswith("resume from there with --resume out/model_0000005")
    assert trainer.iter == 12 and Path("out/last_checkpoint").read_text() == "model_final"


def test_overridden_parts_are_used(trainer_of: Callable[..., Any]) -> None:
    class Own(DefaultTrainer):
        steps = 0

        @classmethod
        def build_optimizer(cls, cfg: Any, model: torch.nn.Module) -> Any:
            return torch.optim.SGD(model.parameters(), lr=0.5)

        def run_step(self) -> None:
            Own.steps += 1
            super().run_step()

        def before_step(self) -> None:
            super().before_step()
            assert self.storage.iter == self.iter

    trainer = trainer_of("train.train_iter=3", kind=Own)
    trainer.train()
    assert Own.steps == 3
    assert isinstance(trainer.optimizer, torch.optim.SGD)


def test_epochs_become_iterations(trainer_of: Callable[..., Any]) -> None:
    trainer = trainer_of("train.train_iter=0", "train.train_epoch=1", "train.evaluation.eval_after_n_epoch=1")
    assert trainer.max_iter == 10
    assert trainer.cfg.train.evaluation.eval_period == 10


def test_weights_are_loaded_and_nothing_else(trainer_of: Callable[..., Any]) -> None:
    first = trainer_of("train.train_iter=4")
    first.train()
    second = trainer_of("train.load_weight=out/model_final", "train.output_dir=second")
    assert second.start_iter == 0
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
    assert second.optimizer.state_dict()["state"] == {}


def test_a_saved_config_trains_again(trainer_of: Callable[..., Any]) -> None:
    from libai.config import LazyConfig

    trainer_of("train.train_iter=2").train()
    saved = LazyConfig.load("out/config.yaml")
    assert saved.optim._target_ == "oneflow.optim.AdamW"
    assert saved.dataloader.train._target_ == "libai.data.build_image_train_loader"
    saved.train.output_dir = "again"
    Path("again").mkdir()
    DefaultTrainer(saved).train()
    assert Path("again/last_checkpoint").read_text() == "model_final"


def test_metrics_are_written_as_json_lines(trainer_of: Callable[..., Any]) -> None:
    """Also when none of them is the one that makes a model the best, which is said once."""
    trainer_of("train.train_iter=8", "train.evaluation.eval_metric=mes").train()
    log = Path("out/log.txt").read_text()
    told = "train.evaluation.eval_metric is 'mes', and an evaluation gives mse: no model_best will be saved; did you mean 'mse'?"
    assert log.count(told) == 1
    lines = [json.loads(line) for line in Path("out/metrics.json").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [3, 7]
    assert {"lr", "mse_loss", "l1_loss", "total_loss", "data_time", "mse"} <= set(lines[0])


def test_checkpoints_appear_whole_or_not_at_all(
    trainer_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.checkpoint.storage import disk

    trainer = trainer_of("train.train_iter=12", "train.checkpointer.period=2", "train.evaluation.enabled=false")

    def full(call: str, path: str, size: int) -> None:
        if call == "write" and any(f"model_000000{step}" in path for step in (3, 5, 7)) and "optimizer" in path:
            raise OSError(28, "No space left on device")

    with disk.gated(full), pytest.raises(SaveError, match="No space left on device; 3 saves in a row have failed"):
        trainer.train()
    whole = sorted(path.name for path in Path("out").iterdir() if path.is_dir())
    assert Path("out/last_checkpoint").read_text() == "model_0000001" and whole == ["model_0000001"]
    for name in whole:
        assert {path.name for path in Path("out", name).iterdir()} == {"model", "optimizer", "lr_scheduler", "trainer"}


def test_helpers_log_by_the_place_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    from libai.utils.logger import log_every_n, log_every_n_seconds, log_first_n

    with caplog.at_level(logging.INFO):
        for _ in range(6):
            log_first_n(logging.INFO, "first", n=2)
            log_every_n(logging.INFO, "every", n=3)
            log_every_n_seconds(logging.INFO, "seconds", n=60)
    texts = [record.getMessage() for record in caplog.records]
    assert [texts.count(word) for word in ("first", "every", "seconds")] == [2, 2, 1]


def test_a_timer_leaves_pauses_out() -> None:
    from libai.utils.timer import Timer

    timer = Timer()
    timer.pause()
    stopped = timer.seconds()
    assert timer.is_paused()
    assert timer.seconds() == stopped
    timer.resume()
    assert timer.avg_seconds() <= timer.seconds()
    with pytest.raises(ValueError, match="not paused"):
        timer.resume()


def test_a_text_data_set_is_cut_into_three_parts() -> None:
    from torch.utils.data import TensorDataset

    from libai.data import build_nlp_train_val_test_loader

    train, val, test = build_nlp_train_val_test_loader(
        [TensorDataset(torch.arange(100))],
        splits=[[80.0, 15.0, 5.0]],
        weights=[1.0],
        train_val_test_num_samples=[1, 1, 1],
        train_batch_size=4,
        test_batch_size=5,
        num_workers=0,
    )
    assert [len(loader.dataset) for loader in (train, val, test)] == [80, 15, 5]
    assert torch.cat([batch[0] for batch in test]).tolist() == [95, 96, 97, 98, 99]


class Documents:
    """Indexed documents, as LiBai's ``MMapIndexedDataset`` gives them: ``doc_idx`` says where each begins."""

    def __init__(self) -> None:
        self.doc_idx = list(range(61))

    def get_doc_idx(self) -> list[int]:
        return self.doc_idx

    def set_doc_idx(self, doc_idx: list[int]) -> None:
        self.doc_idx = doc_idx


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, indexed_dataset: Documents, max_num_samples: int) -> None:
        self.first, self.last = indexed_dataset.doc_idx[0], indexed_dataset.doc_idx[-1]
        self.count = max_num_samples

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.first + index)


def test_a_data_set_over_indexed_documents_is_cut_by_documents() -> None:
    from libai.config import LazyCall
    from libai.data import build_nlp_train_val_test_loader

    lazy = LazyCall(Texts)(indexed_dataset=LazyCall(Documents)())
    loaders = build_nlp_train_val_test_loader(
        [lazy, lazy], splits=[[949.0, 50.0, 1.0], [1.0, 1.0]], weights=[1.0, 1.0],
        train_val_test_num_samples=[6, 4, 2], train_batch_size=4, test_batch_size=5, num_workers=0,
    )  # fmt: skip
    parts = [[(texts.first, texts.last) for texts in loader.dataset.datasets] for loader in loaders]
    assert parts == [[(0, 57), (0, 30)], [(57, 60), (30, 60)], [(60, 60), (60, 60)]]
    assert [len(loader.dataset) for loader in loaders] == [12, 8, 4]
