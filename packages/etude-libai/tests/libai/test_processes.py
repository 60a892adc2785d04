"""Two data-parallel processes train one model together."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import zygote
from tests.libai import test_detectron2_resume as detectron2
from tests.libai.test_kill import assert_same, assert_same_end, at_step, lines


def test_two_processes_share_the_data_and_agree(config: Path) -> None:
    words = ["exec", "tools/train_net.py", "--config-file", "config.py", "train.train_iter=6"]
    ranks = zygote.ranks(2, "-m", "etude", *words)
    said = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    out = config.parent / "out"
    assert (out / "last_checkpoint").read_text() == "model_final"
    assert (out / "log.txt.rank1").exists()
    log = (out / "log.txt").read_text()
    assert "World size: 2" in log
    assert "Total valid samples: 10" in log
    assert "consumed_samples: 48" in log
    assert [json.loads(line)["iteration"] for line in (out / "metrics.json").read_text().splitlines()] == [3, 5]


def in_two(work: Callable[[int], None]) -> list[int | None]:
    """``work(rank)`` in two processes that know of each other; their exit codes."""
    import torch._dynamo  # what both would import anyway
    import torch.utils.tensorboard

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def begin(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

        from etude_libai.live import topology

        topology._util = None
        torch.manual_seed(rank)
        work(rank)

    processes = [multiprocessing.get_context("fork").Process(target=begin, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def test_two_processes_resume_with_the_generators_of_both(trainer_of: Callable[..., Any]) -> None:
    """Dropout and noise are drawn by each process for itself."""
    options = ("model.dropout=0.5", "dataloader.train.dataset.0.noisy=true", "train.checkpointer.period=4")

    def life(folder: str, *, stop: int | None = None, resume: bool = False) -> list[int | None]:
        def work(rank: int) -> None:
            trainer = trainer_of(*options, f"train.output_dir={folder}", f"train.seed={7 + rank}", resume=resume)
            if stop is not None:
                at_step(stop)(trainer)
            trainer.train()

        return in_two(work)

    assert life("whole") == [0, 0]
    assert life("parts", stop=6)[0] == -signal.SIGKILL
    assert life("parts", resume=True) == [0, 0]
    assert_same_end("whole", "parts")


@pytest.mark.thorough  # the eager mode is tested below
def test_graph_mode_averages_the_gradients_too(trainer_of: Callable[..., Any]) -> None:
    def work(rank: int) -> None:
        backends = ("graph.train_graph.backend=eager", "graph.eval_graph.backend=eager")
        trainer = trainer_of("graph.enabled=true", *backends, "train.train_iter=3", f"train.seed={7 + rank}")
        trainer.train()
        torch.save(trainer.model.state_dict(), f"rank{rank}.pt")

    assert in_two(work) == [0, 0]
    assert_same(torch.load("rank0.pt"), torch.load("rank1.pt"))


def test_a_step_of_ones_own_averages_the_gradients_too(trainer_of: Callable[..., Any]) -> None:
    """Its model is the bare one, as the tutorial hands it over."""
    from libai.engine import DefaultTrainer
    from libai.engine.trainer import EagerTrainer

    class Inside(DefaultTrainer):
        def __init__(self, cfg: Any) -> None:
            super().__init__(cfg)
            self._trainer = EagerTrainer(self.model, self.train_loader, self.optimizer, 2)

    class Outside(DefaultTrainer):
        def run_step(self) -> None:
            data = self.get_batch(next(self._trainer._data_loader_iter), "cpu")
            sum(value / 2 for value in self.model(**data).values()).backward()
            if self.iter % 2:
                self.optimizer.clip_grad()
                self.optimizer.step()
                self.optimizer.zero_grad()

    def work(rank: int) -> None:
        for kind in (DefaultTrainer, Inside, Outside):
            options = ("train.num_accumulation_steps=2", "train.evaluation.enabled=false", "train.train_iter=3")
            trainer = trainer_of(*options, f"train.output_dir={kind.__name__}", kind=kind)
            trainer.train()
            torch.save(trainer.model.state_dict(), f"{kind.__name__}{rank}.pt")

    assert in_two(work) == [0, 0]
    for kind in ("Inside", "Outside"):
        assert_same(torch.load(f"{kind}0.pt"), torch.load(f"{kind}1.pt"))
        torch.testing.assert_close(torch.load(f"{kind}0.pt"), torch.load("DefaultTrainer0.pt"))


@pytest.mark.thorough  # LiBai's do below
def test_detectron2_runs_of_two_processes_resume_with_the_generators_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("d2_parts.py").write_text(detectron2.PARTS)
    Path("config.py").write_text(detectron2.CONFIG)

    def life(folder: str, **options: Any) -> list[int | None]:
        return in_two(lambda rank: detectron2.train("config.py", folder, **options) and None)

    assert life("whole") == [0, 0]
    assert life("parts", chaos="kill@step=6")[0] == -signal.SIGKILL
    assert life("parts", resume="") == [0, 0]
    assert_same(detectron2.content("whole"), detectron2.content("parts"))
    assert lines("whole") == lines("parts")
