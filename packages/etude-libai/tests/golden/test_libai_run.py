"""Whole runs of ``tools/train_net.py`` on the toy project, stage by stage."""

from __future__ import annotations

import json
import re
import sys
import types
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.data.seeds import seed_everywhere
from etude_libai.lazy.load import CONFIGS
from etude_libai.live import setup
from tests.golden.goldens import data, params
from tests.golden.libai_support import Messages, same, served
from tests.libai.project import forget_loggers

TOLERANCE = 1e-5
#: What Étude adds to LiBai's layout: random generators, hooks' memories, half a sum of gradients.
OURS = re.compile(r"model_\w+/trainer")
TOLD = (
    "Auto-scaling", "Starting training", "Saving checkpoint", "with eval_iter", "Total valid", "copypaste", "Saved",
    "Not saving",
)  # fmt: skip


class Stop(Exception):
    pass


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The recorded project as a module, and loggers as they were before."""
    module = types.ModuleType("golden_toy")
    structures, evaluation = served("libai", "data"), served("libai", "evaluation")
    module.__dict__.update(
        Instance=structures.Instance,
        DistTensorData=structures.DistTensorData,
        DatasetEvaluator=evaluation.DatasetEvaluator,
    )
    exec(data("libai", "default_trainer_run")["meta"]["golden_toy.py"], module.__dict__)
    monkeypatch.setitem(sys.modules, "golden_toy", module)
    yield
    forget_loggers()


def loaded(case: dict[str, Any], stage: dict[str, Any], folder: Path) -> Any:
    text = data("libai", "default_trainer_run")["meta"]["config"].replace("<configs/common>", f"{CONFIGS}/common")
    path = folder / "config.py"
    path.write_text(text)
    lazy = served("libai", "config").LazyConfig
    config = lazy.load(str(path))
    config.train.output_dir = str(folder / "out")
    given = [*case["overrides"], *stage["opts"]]
    return lazy.apply_overrides(config, [word.replace("<DIR>", str(folder)) for word in given])


def set_up(case: dict[str, Any], stage: dict[str, Any], folder: Path) -> Any:
    """A trainer as ``tools/train_net.py`` makes it."""
    config = loaded(case, stage, folder)
    arguments = Namespace(
        config_file="",
        resume="--resume" in stage["flags"],
        eval_only="--eval-only" in stage["flags"],
        fast_dev_run="--fast-dev-run" in stage["flags"],
        opts=[],
    )
    served("libai", "engine").default_setup(config, arguments)
    seed_everywhere(config.train.seed)
    if arguments.fast_dev_run:
        setup.fast_dev_run(config)
    return served("libai", "engine").DefaultTrainer(config)


def recorder(rows: list[dict[str, Any]], stop_before: int | None) -> Any:
    class Recorder(served("libai", "engine.trainer").HookBase):
        def before_step(self) -> None:
            if self.trainer.iter == stop_before:
                raise Stop
            self.used = self.trainer.optimizer.param_groups[0]["lr"]

        def after_step(self) -> None:
            latest = self.trainer.storage.latest()
            rows.append(
                {
                    "iter": self.trainer.iter,
                    "lr_used": self.used,
                    "samples": self.trainer.storage.samples,
                    "total_loss": latest["total_loss"][0],
                    "w": self.trainer.model.lin.weight.item(),
                    "lr_after": self.trainer.optimizer.param_groups[0]["lr"],
                    "logged_lr": latest["lr"][0],
                }
            )

    return Recorder()


def trained(trainer: Any, stop_before: int | None) -> tuple[list[dict[str, Any]], str | None]:
    rows: list[dict[str, Any]] = []
    trainer.register_hooks([recorder(rows, stop_before)])
    try:
        trainer.train()
    except Stop:
        return rows, "Stop"
    return rows, None


@pytest.mark.parametrize("case", params("libai", "default_trainer_run"))
def test_a_run(case: dict[str, Any], tmp_path: Path) -> None:
    for stage in case["stages"]:
        resumes = "--resume" in stage["flags"]
        finished = "finished" in stage.get("setup_raises", {}).get("message", "")
        if "--eval-only" in stage["flags"]:
            check_evaluation(case, stage, tmp_path)
        elif resumes and not finished:
            check_resume(case, stage, tmp_path)
            return
        elif "setup_raises" in stage:
            with pytest.raises(AssertionError) as caught:
                set_up(case, stage, tmp_path)
            assert str(caught.value) == stage["setup_raises"]["message"]
            assert files_of(tmp_path) == stage["files"]
        else:
            check_stage(case, stage, tmp_path)


def check_stage(case: dict[str, Any], stage: dict[str, Any], folder: Path) -> None:
    with Messages("libai") as said:
        trainer = set_up(case, stage, folder)
        names = [type(hook).__name__ for hook in trainer._hooks]
        groups = [shown_group(group) for group in trainer.optimizer.param_groups]
        rows, raised = trained(trainer, stage["stop_before_iter"])
    assert names == stage["hooks"]
    assert (trainer.start_iter, trainer.max_iter) == (stage["start_iter"], stage["max_iter"])
    assert trainer.global_batch_size == stage["global_batch_size_attr"]
    assert all(
        same(groups[i][key], group[key], TOLERANCE) for i, group in enumerate(stage["param_groups"]) for key in group
    )
    train = trainer.cfg.train
    assert {key: train[key] for key in stage["cfg_after_init"]} == stage["cfg_after_init"]
    assert raised == stage["raises"]
    check_rows(case, rows, stage["rows"], train)
    if stage["last_eval"] is not None:
        # Departure: several loaders of one data set class are told apart; the last one's numbers stand first as before.
        results = {key: trainer._last_eval_results[key] for key in stage["last_eval"]}
        assert same(results, stage["last_eval"], TOLERANCE)
    check_printed(case, said, stage, train)
    told = [text for text in said.texts if text.startswith(TOLD)]
    assert all(
        alike(text, wanted.replace("<DIR>", str(folder))) for text, wanted in zip(told, stage["log_some"], strict=True)
    )
    assert files_of(folder) == stage["files"]
    check_files(stage, folder)


def check_rows(case: dict[str, Any], rows: list[Any], expected: list[Any], train: Any) -> None:
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        if "quirk" in case and not train.get("graph_enabled", False):
            # Departure: consumed samples are those that were consumed.
            wanted = {**wanted, "samples": wanted["samples"] // train.num_accumulation_steps}
        assert same(row, {key: wanted[key] for key in row}, TOLERANCE), (row, wanted)


def check_printed(case: dict[str, Any], said: Messages, stage: dict[str, Any], train: Any) -> None:
    printed = [masked(record.getMessage()) for record in said.records if record.name == "libai.utils.events"]
    expected = stage["printed"]
    if "quirk" in case:
        steps = train.num_accumulation_steps
        expected = [
            re.sub(r"consumed_samples: (\d+)", lambda m: f"consumed_samples: {int(m[1]) // steps}", line)
            for line in expected
        ]
    assert printed == expected


def masked(line: str) -> str:
    line = re.sub(r"eta: (\d+ days?, )?[\d:]+ ", "eta: <T> ", line)
    line = re.sub(r"\b(time|data_time): [\d.]+ s/iter", r"\1: <T> s/iter", line)
    return re.sub(r"total_throughput: [\d.]+", "total_throughput: <T>", line)


def alike(text: str, wanted: str) -> bool:
    """The same words, and numbers within the tolerance."""
    pattern = re.compile(r"\d+\.\d+")
    numbers = zip(pattern.findall(text), pattern.findall(wanted), strict=False)
    return pattern.sub("#", text) == pattern.sub("#", wanted) and all(
        abs(float(a) - float(b)) <= 1e-4 + TOLERANCE * abs(float(b)) for a, b in numbers
    )


def shown_group(group: dict[str, Any]) -> dict[str, Any]:
    return {**group, "params": len(group["params"])}


def files_of(folder: Path) -> list[str]:
    out = folder / "out"
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    names = {re.sub(r"events\.out\.tfevents\..*", "events.out.tfevents.*", name) for name in names}
    return sorted(name for name in names if not OURS.fullmatch(name))


def check_files(stage: dict[str, Any], folder: Path) -> None:
    last = folder / "out" / "last_checkpoint"
    assert (last.read_text() if last.exists() else None) == stage["last_checkpoint"]
    metrics = folder / "out" / "metrics.json"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    assert len(lines) == len(stage["metrics_json"])
    for line, wanted in zip(lines, stage["metrics_json"], strict=True):
        hidden = {key for key, value in wanted.items() if value == "<T>"} | {key for key in line if "ToyData" in key}
        assert same(
            {k: v for k, v in line.items() if k not in hidden},
            {k: v for k, v in wanted.items() if k not in hidden},
            TOLERANCE,
        )


def check_resume(case: dict[str, Any], stage: dict[str, Any], folder: Path) -> None:
    """Departures: a resume without a checkpoint starts anew, and a resumed run ends as one that was never stopped."""
    whole = folder / "whole"
    whole.mkdir()
    straight = set_up(case, {"flags": [], "opts": stage["opts"]}, whole)
    expected, _ = trained(straight, None)
    trainer = set_up(case, stage, folder)
    if "setup_raises" in stage:
        assert trainer.start_iter == 0
    rows, raised = trained(trainer, stage["stop_before_iter"])
    assert raised == stage.get("raises")
    wanted = expected[trainer.start_iter : trainer.start_iter + len(rows)]
    assert [row["w"] for row in rows] == [row["w"] for row in wanted]
    assert [row["lr_used"] for row in rows] == [row["lr_used"] for row in wanted]
    if raised is None:
        assert torch.equal(trainer.model.lin.bias, straight.model.lin.bias)
        best, other = (
            next(hook for hook in each._hooks if hasattr(hook, "best_metric")) for each in (trainer, straight)
        )
        assert (best.best_metric, best.best_iter) == (other.best_metric, other.best_iter)


def check_evaluation(case: dict[str, Any], stage: dict[str, Any], folder: Path) -> None:
    trainer = served("libai", "engine").DefaultTrainer
    config = loaded(case, stage, folder)
    served("libai", "engine").default_setup(config, Namespace(config_file="", resume="--resume" in stage["flags"]))
    model = trainer.build_model(config)
    checkpointer = served("libai", "utils.checkpoint").Checkpointer(model, save_dir=config.train.output_dir)
    checkpointer.resume_or_load(config.train.load_weight, resume="--resume" in stage["flags"])
    results = trainer.test(config, trainer.build_test_loader(config), model)
    if stage.get("last_eval") is not None:
        assert same(dict(results), stage["last_eval"], TOLERANCE)
