"""Runs whose tensors are split: the same losses and weights as in one process, and the same files."""

from __future__ import annotations

import importlib
import json
import os
import signal
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import sampling
from tests.libai import project as plain_project
from tests.libai.split import project
from tests.libai.split.processes import exit_codes, in_processes

TENSOR, PIPELINE = "train.dist.tensor_parallel_size", "train.dist.pipeline_parallel_size"
ZERO = ("train.zero_optimization.enabled=true",)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for module in ("torch.distributed.tensor", "torch.distributed.fsdp"):
        importlib.import_module(module)  # as all processes would
    project.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    plain_project.forget_loggers()


def trainer(out: str, options: tuple[str, ...], *, resume: bool = False, kind: Any = None) -> Any:
    from etude.data.seeds import seed_everywhere
    from libai.config import LazyConfig
    from libai.engine import DefaultTrainer, default_setup
    from libai.utils import distributed as dist

    cfg = LazyConfig.load("config.py")
    cfg = LazyConfig.apply_overrides(cfg, [*options, f"train.output_dir={out}", "train.evaluation.eval_period=6"])
    default_setup(cfg, Namespace(config_file="", resume=resume))
    seed_everywhere(cfg.train.seed + dist.get_rank())  # as LiBai's tools/train_net.py
    return (kind or DefaultTrainer)(cfg)


def sizes(data: int, tensor: int, pipeline: int) -> tuple[int, tuple[str, ...]]:
    return data * tensor * pipeline, (f"{TENSOR}={tensor}", f"{PIPELINE}={pipeline}")


def run(out: str, layout: tuple[int, int, int], *options: str, resume: bool = False) -> None:
    count, words = sizes(*layout)

    def work(rank: int) -> None:
        made = trainer(out, (*words, *options), resume=resume)
        made.train()
        if made.iter and layout != (1, 1, 1) and layout != (2, 1, 1):
            states: list[Any] = [None] * count
            torch.distributed.all_gather_object(states, torch.get_rng_state().tolist())
            assert all(state == states[0] for state in states)

    in_processes(count, work)


def losses(out: str) -> list[float]:
    lines = (Path(out) / "metrics.json").read_text().splitlines()
    return [json.loads(line)["total_loss"] for line in lines]


def evaluated(out: str) -> list[float]:
    lines = Path(out, "log.txt").read_text().splitlines()
    return [float(line.split("copypaste: mse=")[1]) for line in lines if "copypaste: mse=" in line]


def assert_same(one: str, other: str, steps: int = 12) -> None:
    first, second = losses(one), losses(other)
    assert len(first) == len(second) == steps
    assert second == pytest.approx(first, abs=1e-5)
    wanted, got = (torch.load(Path(out, "model_final", "model")) for out in (one, other))
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, atol=1e-5, rtol=0)
    assert evaluated(other) == pytest.approx(evaluated(one), abs=1e-5)


DROPOUT = ("model.dropout=0.1",)
GRAPH = (
    "graph.enabled=true", "graph.train_graph.backend=eager", "graph.eval_graph.backend=eager",
    "train.num_accumulation_steps=2", "train.activation_checkpoint.enabled=true",
)  # fmt: skip


def test_tensor_parallel_processes_train_the_same_model(folder: Path) -> None:
    run("one", (1, 1, 1), *DROPOUT)
    run("two", (1, 2, 1), *DROPOUT)
    assert_same("one", "two")


def test_pipeline_stages_train_the_same_model(folder: Path) -> None:
    """The measure is tensor parallelism, which is measured by one process above: that would be compiled here."""
    run("one", (1, 2, 1), *DROPOUT, *GRAPH)
    run("two", (1, 1, 2), *DROPOUT, *GRAPH)
    assert_same("one", "two")
    text = Path("two/config.yaml").read_text()
    assert "actual_pipeline_stage_id:" in text


def test_eager_mode_has_stages_too(folder: Path) -> None:
    run("one", (1, 1, 1), "train.num_accumulation_steps=2", "train.train_iter=6")
    run("two", (1, 1, 2), "train.num_accumulation_steps=2", "train.train_iter=6")
    assert_same("one", "two")


@pytest.mark.parametrize("stage", sampling.sample([1, 2, 3], [1]))
def test_zero_shares_the_state_of_the_optimizer(folder: Path, stage: int) -> None:
    """Two data-parallel processes with DDP are the measure."""
    run("ddp", (2, 1, 1))
    run("zero", (2, 1, 1), *ZERO, f"train.zero_optimization.stage={stage}")
    assert_close(torch.load("zero/model_final/model"), torch.load("ddp/model_final/model"))
    assert_close(torch.load("zero/model_final/optimizer"), torch.load("ddp/model_final/optimizer"))


@pytest.mark.thorough  # the pairs are above
@pytest.mark.parametrize("layout", [(2, 2, 1), (1, 2, 2), (2, 1, 2), (1, 1, 4)])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_four_processes_train_the_same_model(folder: Path, layout: tuple[int, int, int], zero: int) -> None:
    data, _, pipeline = layout
    if zero and (data == 1 or (zero == 3 and pipeline > 1)):
        pytest.skip("there is nothing to share, or stage 3 with a pipeline, which is refused")
    options = (*ZERO, f"train.zero_optimization.stage={zero}") if zero else ()
    run("one", (data, 1, 1))
    run("four", layout, *options)
    assert_close(torch.load("four/model_final/model"), torch.load("one/model_final/model"))
    assert evaluated("four") == pytest.approx(evaluated("one"), abs=1e-5)


def test_a_killed_run_resumes_with_other_sizes(folder: Path) -> None:
    noisy = ("train.checkpointer.period=4", "train.num_accumulation_steps=2", "train.train_iter=6")
    run("one", (1, 1, 1), *noisy)
    count, words = sizes(1, 2, 1)

    def work(rank: int) -> None:
        from libai.engine.hooks import CallbackHook

        made = trainer("many", (*words, *noisy))

        def kill(trainer: Any) -> None:
            if trainer.iter == 6 and rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        made.register_hooks([CallbackHook(after_step=kill)])
        made.train()

    assert exit_codes(count, work)[0] == -signal.SIGKILL
    assert Path("many/last_checkpoint").read_text() == "model_0000003"
    run("many", (1, 1, 2), *noisy, resume=True)
    assert Path("many/last_checkpoint").read_text() == "model_final"
    assert_close(torch.load("many/model_final/model"), torch.load("one/model_final/model"))


@pytest.mark.thorough  # one other layout resumes above
def test_a_checkpoint_of_any_sizes_resumes_in_any_others(folder: Path) -> None:
    """In the middle of an accumulation, with the moments of Adam."""
    options = ("train.num_accumulation_steps=2", "train.checkpointer.period=5", "train.train_iter=6")
    run("one", (1, 1, 1), *options)
    layouts = [(1, 2, 1), (1, 1, 2), (1, 1, 1)]
    state = torch.load("one/model_0000004/model")
    for layout in layouts:
        out = "out" + "".join(map(str, layout))
        run(out, layout, *options)
        saved = torch.load(f"{out}/model_0000004/model")
        for name, value in state.items():
            torch.testing.assert_close(saved[name], value, atol=1e-5, rtol=0)
    for begun, resumed in zip(layouts, layouts[1:] + layouts[:1], strict=True):
        out = "out" + "".join(map(str, begun))
        os.remove(f"{out}/metrics.json")
        Path(out, "last_checkpoint").write_text("model_0000004")
        run(out, resumed, *options, resume=True)
        assert losses(out) == pytest.approx(losses("one")[4:], abs=1e-5)
        for item in ("model", "optimizer"):
            wanted, got = (torch.load(f"{folder}/model_final/{item}") for folder in ("one", out))
            assert_close(got, wanted)


def assert_close(got: Any, wanted: Any) -> None:
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
    elif isinstance(wanted, dict):
        assert list(got) == list(wanted)
        for key, value in wanted.items():
            assert_close(got[key], value)
    elif isinstance(wanted, list | tuple):
        for one, other in zip(got, wanted, strict=True):
            assert_close(one, other)


def raised(layout: tuple[int, int, int], *options: str) -> Callable[[int], None]:
    """A run that must raise an error; its message is in the file of the rank."""
    _, words = sizes(*layout)

    def work(rank: int) -> None:
        try:
            trainer("out", (*words, *options)).train()
        except Exception as error:
            Path(f"error{rank}").write_text(f"{type(error).__name__}: {error}")
            return
        raise AssertionError("nothing was raised")

    return work


def test_an_operation_without_a_rule_is_named(folder: Path) -> None:
    in_processes(2, raised((1, 2, 1), "model.fault='no rule'"))
    assert "aten.col2im" in Path("error0").read_text()


def test_a_value_that_is_read_between_overlapping_batches_is_refused(folder: Path) -> None:
    in_processes(2, raised((1, 1, 2), "model.fault=reads", *GRAPH))
    assert "the model reads a value of a tensor" in Path("error0").read_text()
    run("out", (1, 1, 2), "model.fault=reads", "train.train_iter=2")  # one batch after the other


WRONG = {
    (f"{TENSOR}=2", f"{PIPELINE}=2"): "need 4 processes; 2 were started; start them with --nproc 4",
    (f"{TENSOR}=2", "model.num_attention_heads=3"): "does not divide the heads of the model, num_attention_heads=3",
    (f"{TENSOR}=2", "model.vocab_size=7"): "does not divide the vocabulary of the model, vocab_size=7",
    (f"{TENSOR}=2", "model.hidden_size=9"): "does not divide the hidden size of the model, hidden_size=9",
    (f"{PIPELINE}=2", "train.dist.pipeline_num_layers=1"): "is more than pipeline_num_layers=1; 1 is the most",
    (f"{PIPELINE}=2", "train.dist.custom_pipeline_stage_id=[0,0]"): "custom_pipeline_stage_id needs 4 numbers",
    (f"{PIPELINE}=2", "train.dist.custom_pipeline_stage_id=[0,0,0,0]"): "every stage from 0 to 1 needs a layer",
}  # fmt: skip


def test_sizes_that_do_not_fit_are_refused_with_those_that_do(folder: Path) -> None:
    def work(rank: int) -> None:
        from etude.errors import ConfigError

        for options, said in WRONG.items():
            with pytest.raises(ConfigError) as caught:
                trainer("out", options)
            assert said in str(caught.value), (options, str(caught.value))
            assert not Path("out").exists()

    in_processes(2, work)


def test_an_uneven_rule_of_stages_may_be_given(folder: Path) -> None:
    run("one", (1, 1, 1), "train.train_iter=3")
    run("two", (1, 1, 2), "train.train_iter=3", "train.dist.custom_pipeline_stage_id=[0,1,1,1]")
    assert_same("one", "two", 3)
