"""A run that was stopped and resumed ends in the same bits as one that was not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


class Interrupted(Exception):
    pass


def stop_at(iteration: int) -> Any:
    from libai.engine.hooks import CallbackHook

    def check(trainer: Any) -> None:
        if trainer.iter == iteration:
            raise Interrupted

    return CallbackHook(before_step=check)


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_same_end(trainer_of: Callable[..., Any], stop: int, *overrides: str) -> None:
    whole = trainer_of(*overrides, "train.output_dir=whole")
    whole.train()
    first = trainer_of(*overrides, "train.output_dir=parts")
    first.register_hooks([stop_at(stop)])
    with pytest.raises(Interrupted):
        first.train()
    torch.manual_seed(99)
    second = trainer_of(*overrides, "train.output_dir=parts", resume=True)
    assert second.start_iter > 0
    second.train()
    for name, value in weights(whole).items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    ours, theirs = (next(h for h in t._hooks if hasattr(h, "best_metric")) for t in (whole, second))
    assert (ours.best_metric, ours.best_iter) == (theirs.best_metric, theirs.best_iter)


@pytest.mark.parametrize("stop", [5, 7, 11])
def test_shuffled_data_dropout_and_noise_go_on_where_they_were(trainer_of: Callable[..., Any], stop: int) -> None:
    assert_same_end(trainer_of, stop, "model.dropout=0.5", "dataloader.train.dataset.0.noisy=true")


def test_half_a_sum_of_gradients_is_kept(trainer_of: Callable[..., Any]) -> None:
    assert_same_end(
        trainer_of, 9, "train.num_accumulation_steps=3", "train.train_iter=6", "train.checkpointer.period=4"
    )


def test_graph_mode_resumes_too(trainer_of: Callable[..., Any]) -> None:
    assert_same_end(
        trainer_of, 8, "graph.enabled=true", "graph.train_graph.backend=eager", "graph.eval_graph.backend=eager"
    )


def test_a_resume_without_a_checkpoint_starts_at_iteration_0(trainer_of: Callable[..., Any]) -> None:
    assert trainer_of(resume=True).start_iter == 0


def test_a_resumed_run_goes_on_removing_old_checkpoints(trainer_of: Callable[..., Any]) -> None:
    options = ("train.checkpointer.period=2", "train.checkpointer.max_to_keep=2")
    first = trainer_of(*options)
    first.register_hooks([stop_at(7)])
    with pytest.raises(Interrupted):
        first.train()
    trainer_of(*options, resume=True).train()
    kept = sorted(path.name for path in Path("out").glob("model_0*"))
    assert kept == ["model_0000009", "model_0000011"]


def test_a_worse_model_does_not_overwrite_the_best_after_a_resume(trainer_of: Callable[..., Any]) -> None:
    first = trainer_of("train.checkpointer.period=4")
    first.register_hooks([stop_at(9)])
    with pytest.raises(Interrupted):
        first.train()
    best = next(hook for hook in first._hooks if hasattr(hook, "best_metric"))
    second = trainer_of("train.checkpointer.period=4", resume=True)
    restored = next(hook for hook in second._hooks if hasattr(hook, "best_metric"))
    assert restored.best_metric is not None
    assert restored.best_metric >= best.best_metric


def test_a_loader_that_cannot_be_told_where_to_begin_is_wound_forward(
    trainer_of: Callable[..., Any], config: Path
) -> None:
    text = config.read_text().replace("LazyCall(build_image_train_loader)(", "LazyCall(plain_loader)(")
    own = """
from torch.utils.data import DataLoader
from libai.config import instantiate
from libai.data.loaders import trivial_batch_collator


def plain_loader(dataset, num_workers, sampler):
    made = instantiate(dataset[0])
    batches = CyclicSampler(made, 4, shuffle=True, seed=3)
    return DataLoader(made, batch_sampler=batches, collate_fn=trivial_batch_collator), None, None

"""
    own = own.replace("libai.data.loaders", "etude_libai.live.data.loaders")
    config.write_text(text.replace("train = get_config", own + "train = get_config", 1))
    assert_same_end(trainer_of, 7)
