"""A small job with everything that makes a resume hard, and a digest of all that it leaves behind.

Shuffling, dropout, augmentation that draws from torch, numpy and Python, warm-up and cosine, an average of the weights,
a counter of bad evaluations, mid-epoch saves, best checkpoints; as epochs, steps or a workflow.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.building.options import Options
from etude.checkpoint.store import Store
from etude.core import loop
from etude.core.evaluation import Evaluation
from etude.core.forward import Forward
from etude.core.hook import Hook, HookTable, Periodic
from etude.core.run import Run
from etude.core.update import Step
from etude.data.loader import Loader
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.log import Log
from etude.optim.clipping import Norm
from etude.session.session import Session


@dataclass(frozen=True)
class Variant:
    """One way to run the job."""

    loop: str = "epochs"
    epochs: int = 4
    steps: int = 0
    workers: int = 0
    accumulate: int = 1
    precision: str = "fp32"
    stream: bool = False
    validate: str = "1ep"
    save: str = "3step"
    keep: int | None = 2
    width: int = 16
    debug: bool = False


VARIANTS = {
    "epochs": Variant(),
    "steps": Variant(loop="steps", steps=31, validate="7step", save="4step"),
    "workflow": Variant(loop="workflow"),
    "workers": Variant(workers=2),
    "accumulate": Variant(accumulate=4),
    "bf16": Variant(precision="bf16"),
    "stream": Variant(stream=True, epochs=3),
    "epoch saves": Variant(save="1ep"),
}


class Noisy:
    """Samples with noise from three generators."""

    def __init__(self, size: int = 50) -> None:
        generator = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(size, 8, generator=generator)
        self.targets = (self.inputs.sum(1) > 0).long()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.randn(8) * 0.1 + float(np.random.rand()) * 0.1 + random.random() * 0.1
        return self.inputs[index] + noise, self.targets[index]


class Stream(torch.utils.data.IterableDataset[Any]):
    """The same as a stream that can say where it stands."""

    def __init__(self) -> None:
        self.data, self.position = Noisy(), 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < len(self.data):
            self.position += 1
            yield self.data[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.position = state["position"]


class WarmupCosine(Hook):
    priority = 10

    def before_step(self, run: Run) -> None:
        total = run.total_steps or 40
        share = run.step / total
        rate = min(1.0, (run.step + 1) / 6) * 0.5 * (1 + math.cos(math.pi * share))
        run.optimizers[""].param_groups[0]["lr"] = 0.02 * rate


class Average(Hook):
    """An average of the weights, and noise from the run's own generators that goes into it."""

    def __init__(self) -> None:
        self.weights: dict[str, torch.Tensor] = {}

    def after_step(self, run: Run) -> None:
        for name, value in run.model.named_parameters():
            held = self.weights.setdefault(name, torch.zeros_like(value.data))
            held.mul_(0.9).add_(value.data, alpha=0.1 + 1e-3 * random.random() + 1e-3 * float(np.random.rand()))

    def state_dict(self) -> dict[str, Any]:
        return dict(self.weights)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weights = dict(state)


class Evaluating(Periodic):
    """Evaluate, and halve the patience of whoever waits for something better: a counter that must survive."""

    priority = 70
    at_end = False

    def __init__(self, every: str) -> None:
        self.every = every
        self.best, self.waited = math.inf, 0

    def act(self, run: Run) -> None:
        values = loop.evaluate(run, run.data["val"], run.evaluation)
        self.waited = 0 if values["loss"] < self.best else self.waited + 1
        self.best = min(self.best, values["loss"])
        run.events.write(values | {"waited": float(self.waited)}, step=run.done, epoch=run.epoch, split="val")

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.best, self.waited = state["best"], state["waited"]


class Last(Hook):
    """Acts after most others at every step: what it counts must be in the checkpoint of that step."""

    priority = 100

    def __init__(self) -> None:
        self.seen = 0

    def after_step(self, run: Run) -> None:
        self.seen += 1
        run.events.put("seen", self.seen, last=True)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


def make_run(variant: Variant, *, workers: int | None = None, place: str = "") -> Run:
    """The job, ready to train; seeded as a command would be. ``place``: where its checkpoints go."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    width = variant.width
    model = torch.nn.Sequential(
        torch.nn.Linear(8, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.2), torch.nn.Linear(width, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    count = variant.workers if workers is None else workers
    train: Any = Stream() if variant.stream else Noisy()
    data: dict[str, Any] = {
        "train": Loader(train, batch_size=6, shuffle=not variant.stream, workers=count, seed=3),
        "val": Loader(Noisy(20), batch_size=10, seed=3),
    }
    per_epoch = None if variant.stream else len(data["train"])
    forward = Forward(model, {"loss": torch.nn.CrossEntropyLoss()})
    update = Step(
        forward, {"": optimizer}, accumulate=variant.accumulate, precision=variant.precision, clip=[Norm(1.0)]
    )
    log, checkpoint = Log(), Checkpoint(keep=variant.keep, best="loss", debug=variant.debug, folder=place)
    log.every, checkpoint.every = "2step", variant.save
    hooks = [WarmupCosine(), Average(), Evaluating(variant.validate), log, Last(), checkpoint]
    loops: dict[str, Any] = {
        "epochs": loop.epochs, "steps": loop.steps, "workflow": loop.Workflow([("train", 2), ("val", 1)])
    }  # fmt: skip
    total = variant.steps or (variant.epochs * per_epoch if per_epoch else None)
    return Run(
        model=model, update=update, loop=loops[variant.loop], data=data, optimizers={"": optimizer},
        hooks=HookTable(hooks, steps_per_epoch=per_epoch), evaluation=Evaluation(forward, {}),
        total_steps=total, max_epochs=None if variant.steps else variant.epochs, steps_per_epoch=per_epoch,
    )  # fmt: skip


def train(
    folder: Path, variant: Variant, *, resume: str | None = "", workers: int | None = None, place: str = "",
    **options: Any,
) -> Run:  # fmt: skip
    """One life of the job."""
    run = make_run(variant, workers=workers, place=place)
    chosen = Options(folder=folder, resume=resume, quiet=True, **options)
    with Session(run, chosen):
        loop.train(run)
    return run


def digest(folder: Path, place: str = "") -> dict[str, str]:
    """Sums of everything that a finished job leaves: the same bits, or the name of what differs."""
    store = Store(place or folder / "checkpoints", write=False)
    loaded = store.resume()
    assert loaded is not None
    sums = {f"final {part}": _sum(value) for part, value in sorted(loaded.state.items())}
    for entry in store.entries():  # of several of one step the last: a stop may have saved before an evaluation
        sums[f"step-{entry.step} model"] = entry.manifest.files["model.safetensors"].sha256
        sums[f"step-{entry.step} metrics"] = json.dumps(dict(entry.metrics), sort_keys=True)
    sums["metrics.jsonl"] = hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()
    return sums


def _sum(value: Any) -> str:
    found = hashlib.sha256()
    _feed(value, found)
    return found.hexdigest()


def _feed(value: Any, found: Any) -> None:
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{tuple(value.shape)}".encode())
        found.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):
        found.update(value.tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in ("writers",):  # lengths of files; timing differs from life to life
                found.update(repr(key).encode())
                _feed(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(item, found)
    else:
        found.update(repr(value).encode())
