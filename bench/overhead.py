"""CPU time of a training step against a loop written by hand with the same features and plain torch defaults.

    python bench/overhead.py [--steps 400] [--rounds 9] [--dialect mmcv1|mmengine | --peers]

Features of both: 10 user hooks, a learning rate set every step, clipping by norm, the loss logged every 50 steps.
The time is that of the steps; models, optimizers and runners are made before. Beside it the operations of the Python
interpreter per step, which are counted and so do not depend on what else the machine does.

``--peers`` compares ``Trainer.fit`` with other engines, each of which is a file in ``bench/peers`` that says what to install.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, compare, operations, ratio, report, small_job, table

import etude
from etude.cli import main
from etude.core.hook import FunctionHook, Hook, HookTable
from etude.core.loop import steps
from etude.core.run import Run
from etude.data.datasets.digits import Digits
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule
from etude.models.mlp import MLP
from etude.plan import Phase, Spec
from etude.plan import Schedule as SchedulePlan

LR, MOMENTUM, CLIP, EVERY = 1e-3, 0.9, 1.0, 50
#: Other engines, a file each; those that are not installed are left out.
PEERS = sorted((Path(__file__).parent / "peers").glob("*.py"))
#: A contestant, and the loop by hand that calls the same kernels.
SAME_KERNELS = (
    ("etude train", "by hand, digits"),
    ("etude train, epochs of 44 steps", "by hand, digits"),
    ("Trainer.fit", "by hand, fused"),
    *((peer.stem, "by hand, fused") for peer in PEERS),
    ("mmcv1", "by hand, train_step"),
    ("mmcv1, epochs", "by hand, train_step"),
    ("mmengine", "by hand"),  # as the original, it leaves the kernels to torch
    ("mmengine, SGD", "by hand, SGD"),
)
WITHOUT_GOAL = {"etude train, epochs of 44 steps", *(peer.stem for peer in PEERS)}
POINTS = 20_000


class UserHook(Hook):
    """What a user's hook typically does every step: next to nothing."""

    def __init__(self) -> None:
        self.seen = 0

    def after_step(self, run: Run) -> None:
        self.seen += 1


class HandHook:
    def __init__(self) -> None:
        self.seen = 0

    def after_step(self, step: int) -> None:
        self.seen += 1


class Idle(Hook):
    """Not due within the benchmark."""

    every = "1000000step"

    def after_step(self, run: Run) -> None:
        raise AssertionError("never due here")


def steps_by_hand(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, batches: Iterable[Any]
) -> float:
    """The loop that everything is compared with; returns its CPU seconds."""
    loss_of = torch.nn.CrossEntropyLoss()
    hooks = [HandHook() for _ in range(10)]
    losses: list[torch.Tensor] = []
    model.train()
    begin = time.process_time()
    for step, (inputs, target) in enumerate(batches):
        loss = loss_of(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
        for hook in hooks:
            hook.after_step(step)
        if (step + 1) % EVERY == 0:
            torch.stack(losses).mean().item()
            losses.clear()
    return time.process_time() - begin


def by_hand(count: int, *, fused: bool = False, momentum: float | None = None) -> Callable[[], float]:
    """The reference: what a careful person writes for one job, with AdamW or, given a ``momentum``, with SGD."""
    make, data = small_job()

    def work() -> float:
        model = make()
        optimizer: torch.optim.Optimizer
        if momentum is None:
            optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=fused or None)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=momentum)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / count))
        return steps_by_hand(model, optimizer, scheduler, islice(cycle(data), count))

    return work


PARTS = """
import time
import etude

CLOCK = []

@etude.HOOKS.register
class Count(etude.Hook):
    seen = 0
    def after_step(self, run):
        self.seen += 1

@etude.HOOKS.register
class Begin(etude.Hook):
    def before_train(self, run):
        CLOCK.append(time.process_time())

@etude.HOOKS.register
class End(etude.Hook):
    def after_train(self, run):
        CLOCK.append(time.process_time())
"""
CONFIG = """
imports: [bench_parts.py]
model: {type: MLP, sizes: [64, 64, 64, 64, 64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 32, drop_last: true}}
"""


def command(count: int, *, save: str = "400step") -> Callable[[], float]:
    """``etude train`` on digits with the same features, default settings, its folder and writers on.

    A save costs about as much as ten of these tiny steps. By default there is one per epoch, which has 44 steps here and
    takes some 20 ms; so ``save`` says how often, and both are measured.
    """
    settings: dict[str, object] = {
        "optim": {"type": "SGD", "lr": LR, "momentum": MOMENTUM, "clip_norm": CLIP},
        "schedule": {"lr": {"type": "Cosine"}},
        "train": {"steps": count, "threads": 1},
        "log": {"every": f"{EVERY}step"},
        "checkpoint": {"every": save},
        "hooks": [*["Count"] * 10, {"type": "Begin", "priority": 1000}, {"type": "End", "priority": 0}],
    }
    text = CONFIG + "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())

    def work() -> float:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "bench_parts.py").write_text(PARTS)
            (Path(folder) / "c.yaml").write_text(text)
            if main(["train", f"{folder}/c.yaml", "--folder", f"{folder}/run", "-q"]):
                raise SystemExit("etude train failed")
        clock = sys.modules["bench_parts"].CLOCK  # type: ignore[attr-defined]
        return float(clock[-1] - clock[-2])

    return work


def digits_by_hand(count: int) -> Callable[[], float]:
    """What ``etude train`` does here, as a careful person writes it, with the same kernels."""
    whole = Digits(split="train")
    inputs, targets = whole.fetch(torch.arange(len(whole)))

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            order = torch.randperm(len(inputs))
            for begin in range(0, len(inputs) - 31, 32):
                chosen = order[begin : begin + 32]
                yield inputs[chosen], targets[chosen]

    def work() -> float:
        torch.manual_seed(0)
        model = MLP([64, 64, 64, 64, 64, 10])
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, fused=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * math.cos(step / count))
        return steps_by_hand(model, optimizer, scheduler, islice(batches(), count))

    return work


def trainer(count: int) -> Callable[[], float]:
    """The same job as a user writes it: ``Trainer.fit``, with its folder and writers, timer and watchdog."""
    make, data = small_job()

    def work() -> float:
        model = make()
        clock: list[float] = []
        curve = Phase(curve=Spec(kind="schedule", name="Cosine"))
        ticks = [
            FunctionHook(lambda run: clock.append(time.process_time()), point, priority=priority)
            for point, priority in (("before_train", 1000), ("after_train", -1000))
        ]
        with tempfile.TemporaryDirectory() as folder:
            etude.Trainer(
                model,
                optimizer=torch.optim.AdamW(model.parameters(), lr=LR, fused=True),
                loss=torch.nn.CrossEntropyLoss(),
                clip_norm=CLIP,
                folder=folder,
                quiet=True,
                hooks=[
                    Schedule([SchedulePlan(target="lr", phases=(curve,))]),
                    *(UserHook() for _ in range(10)),
                    *ticks,
                ],
            ).fit(data, steps=count, log=f"{EVERY}step")
        return clock[1] - clock[0]

    return work


def points_of(idle: int) -> Callable[[], None]:
    """Every point of ``POINTS`` steps, without anything in between: so small a cost drowns in a step of training."""
    log = Log()
    log.every = f"{EVERY}step"
    hooks = HookTable([log, *(UserHook() for _ in range(10)), *(Idle() for _ in range(idle))])
    run = Run(torch.nn.Identity(), None, steps, hooks)  # type: ignore[arg-type]

    def work() -> None:
        for run.step in range(POINTS):
            hooks.before_step(run)
            hooks.after_forward(run)
            hooks.before_update(run)
            hooks.after_step(run)

    return work


def contestants(dialect: str | None, peers: bool) -> dict[str, Callable[[int], Callable[[], float]]]:
    """Name → what makes the job of so many steps."""
    found: dict[str, Callable[[int], Callable[[], float]]] = {
        "by hand": by_hand,
        "by hand, fused": partial(by_hand, fused=True),
        "Trainer.fit": trainer,
    }
    if peers:  # not beside `etude train`, which refuses to share a process with the original MMEngine
        for file in PEERS:
            try:
                found[file.stem] = importlib.import_module(f"peers.{file.stem}").contestant
            except ImportError as error:
                print(f"without {file.stem}: {error}")
        return found
    found |= {
        "by hand, digits": digits_by_hand,
        "etude train": command,
        "etude train, epochs of 44 steps": partial(command, save="1ep"),
    }
    if dialect == "mmengine":
        made = importlib.import_module("overhead_mmengine").contestant
        sgd = {"type": "SGD", "lr": LR, "momentum": MOMENTUM}
        found["mmengine"] = made
        found["by hand, SGD"] = partial(by_hand, momentum=MOMENTUM)
        found["mmengine, SGD"] = lambda count: made(count, sgd)
    elif dialect == "mmcv1":
        found |= importlib.import_module("overhead_mmcv1").CONTESTANTS
    return found


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dialect", choices=["mmcv1", "mmengine"])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    makers = contestants(args.dialect, args.peers)
    times = compare({name: make(args.steps) for name, make in makers.items()}, rounds=args.rounds)
    # Other engines take ten times as many operations, and each is traced.
    short, long = (32, 96) if args.peers else (256, 512)
    counts = {name: operations(make, short=short, long=long) for name, make in makers.items()}
    rows = []
    for name, seconds in times.items():
        per_step = statistics.median(seconds) / args.steps * 1e6
        rows.append((name, f"{per_step:.1f}", f"{ratio(times, name, 'by hand'):.2f}", f"{counts[name]:.0f}"))
    print(table(rows, ("loop", "µs CPU per step", "÷ loop by hand", "Python operations per step")))
    found = [
        Ratio(
            "step: Trainer.fit ÷ loop by hand, torch's defaults", ratio(times, "Trainer.fit", "by hand"), at_most=0.85
        )
    ]
    for name, reference in SAME_KERNELS:
        if name in times:
            goal = None if name in WITHOUT_GOAL else 1.05 if name.startswith("mm") else 1.02
            note = f"{min(times[name]) / min(times[reference]):.2f} in the best rounds, "
            note += f"{counts[name] - counts[reference]:+.0f} Python operations a step"
            title = f"step: {name} ÷ loop {reference}"
            found.append(Ratio(title, ratio(times, name, reference), at_most=goal, note=note))
    points = compare({"10 hooks": points_of(0), "110 hooks": points_of(100)}, rounds=args.rounds)
    extra = [a - b for a, b in zip(points["110 hooks"], points["10 hooks"], strict=True)]
    found.append(Ratio("step: µs for 100 idle hooks", statistics.median(extra) / POINTS * 1e6, at_most=0.1))
    print()
    report(found, args.json)


if __name__ == "__main__":
    run()
