"""Runs in processes of their own that really die, and what is left of them to compare."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from etude.cli import main
from etude_openmm.mmengine import files
from tests.mmengine import toy

#: What is different in every life: clocks, and names and places that carry the time of the start.
CLOCKS = ("time", "data_time", "eta", "cfg", "experiment_name", "last_ckpt", "best_ckpt")


class Augmented(toy.Numbers):
    """Samples that draw from every generator."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.rand(2) + random.random() + np.random.rand()
        return {"inputs": torch.full((2,), float(index)) / 8 + noise, "data_samples": index}


class Dropped(toy.Net):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.bn = nn.Dropout(0.5), nn.BatchNorm1d(2)

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        y = self.fc(self.drop(self.bn(torch.stack(list(inputs)))))
        return {"loss": y.pow(2).mean()} if mode == "loss" else [float(value.detach()) for value in y]


class Measured(toy.BaseMetric):
    """A metric of what the model predicts, so that another model gives another one."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.extend(data_samples)

    def compute_metrics(self, results: list[float]) -> dict[str, float]:
        return {"acc": float(np.mean(results))}


class Die(toy.Hook):
    """Ends its process for good, at a point of an iteration, before or after all other hooks there."""

    def __init__(self, at: int, point: str = "after_train_iter", *, first: bool = False) -> None:
        self.at, self.point, self.priority = at, point, 0 if first else 100

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._die("after_train_iter", runner.iter + 1)

    def after_train_epoch(self, runner: Any) -> None:
        self._die("after_train_epoch", runner.iter)

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self._die("before_val_iter", runner.iter)

    def after_val(self, runner: Any) -> None:
        self._die("after_val", runner.iter)

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self._die("before_save_checkpoint", checkpoint["meta"]["iter"])

    def _die(self, point: str, iteration: int) -> None:
        if (point, iteration) == (self.point, self.at):
            os.kill(os.getpid(), signal.SIGKILL)


def arguments(folder: Path, *, by_epoch: bool, saves: dict[str, Any], workers: int = 0, **more: Any) -> dict[str, Any]:
    """16 samples in 8 batches: 3 epochs, or 20 iterations that begin the data again and again."""
    loop = {"by_epoch": True, "max_epochs": 3} if by_epoch else {"by_epoch": False, "max_iters": 20, "val_interval": 5}
    loader = toy.loader(16, shuffle=True, num_workers=workers, persistent_workers=more.pop("persistent", False))
    if "sampler" in more:
        loader["sampler"] = {"type": more.pop("sampler")}
    return {
        "model": Dropped(),
        "work_dir": str(folder),
        "train_dataloader": loader | {"dataset": Augmented(16)},
        "val_dataloader": toy.loader(4),
        "val_cfg": {},
        "val_evaluator": [Measured()],
        "train_cfg": loop,
        "optim_wrapper": {
            "optimizer": {"type": "AdamW", "lr": 0.05},
            "clip_grad": {"max_norm": 1.0},
            "accumulative_counts": more.pop("accumulate", 1),
        },
        "param_scheduler": [
            {"type": "CosineAnnealingLR", "by_epoch": False},
            {"type": "ReduceOnPlateauLR", "monitor": "acc", "rule": "greater", "patience": 0, "factor": 0.5},
        ],
        "default_hooks": {
            "checkpoint": {"type": "CheckpointHook", "save_best": "acc", "rule": "greater", **saves},
            "logger": {"type": "LoggerHook", "interval": 1},
        },
        "custom_hooks": [{"type": "EMAHook", "momentum": 0.2}, *more.pop("hooks", ())],
        "randomness": {"seed": 3},
        "log_level": "ERROR",
        **more,
    }


def live(folder: Path, *, world: int = 1, **options: Any) -> int | None:
    """One life of a run, in ``world`` processes of its own; how the first of them ended."""
    return _forked(_train, (folder, options), world)


def command(words: list[str], *, world: int) -> int | None:
    """``etude`` with these words in ``world`` processes of its own; the exit code of the first of them."""
    return _forked(_command, (words,), world)


def _forked(work: Any, args: tuple[Any, ...], world: int) -> int | None:
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    fork = multiprocessing.get_context("fork").Process
    processes = [fork(target=work, args=(*args, rank, group)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return processes[0].exitcode


def _command(words: list[str], rank: int, group: dict[str, str]) -> None:
    os.environ.update(group, RANK=str(rank), LOCAL_RANK=str(rank))
    os._exit(main(words))


def _train(folder: Path, options: dict[str, Any], rank: int, group: dict[str, str]) -> None:
    torch.manual_seed(os.getpid())
    if group["WORLD_SIZE"] != "1":
        os.environ.update(group, RANK=str(rank), LOCAL_RANK=str(rank))
        options = {"launcher": "pytorch", **options}
    toy.Runner(**arguments(folder, **options)).train()
    os._exit(0)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def remains(folder: Path) -> dict[str, Any]:
    """What a run has come to: its last checkpoint without what clocks had a say in, and the rows of its scalars."""
    last = files.read(Path((folder / "last_checkpoint").read_text()).as_posix())
    hub, meta = last["message_hub"], last["meta"]
    scalars = {key: value["_log_history"] for key, value in hub["log_scalars"].items() if not key.endswith("time")}
    newest = max(folder.glob("*/vis_data/scalars.json"))
    rows = [json.loads(line) for line in newest.read_text().splitlines()]
    return {
        "state_dict": last["state_dict"],
        "ema": last["ema_state_dict"],
        "optimizer": last["optimizer"],
        "schedulers": last["param_schedulers"],
        "scalars": scalars,
        "infos": {key: value for key, value in hub["runtime_info"].items() if key not in CLOCKS},
        "counters": (meta["epoch"], meta["iter"]),
        "rows": [{key: value for key, value in row.items() if key not in CLOCKS} for row in rows],
        "files": sorted(path.name for path in folder.glob("*.pth")),
    }


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two remains differ, to the bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = [f"{where}.{key}" for key in one.keys() ^ other.keys()]
        for key in one.keys() & other.keys():
            found += differences(one[key], other[key], f"{where}.{key}")
        return found
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for place, (a, b) in pairs for text in differences(a, b, f"{where}[{place}]")]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return [] if torch.equal(one, other) else [f"{where}: {one} and {other}"]
    same = one == other or (one != one and other != other)
    return [] if same else [f"{where}: {one} and {other}"]
