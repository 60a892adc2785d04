"""CPU time of a training step against a loop written by hand with the same features and plain torch defaults.

    python bench/overhead.py [--steps 400] [--rounds 9] [--dialect mmcv1|mmengine]

Features of both: 10 user hooks, a learning rate set every step, clipping by norm, the loss logged every 50 steps.
The time is that of the steps; models, optimizers and runners are made before. Beside it the operations of the Python
interpreter per step, which are counted and so do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, compare, operations, ratio, report, small_job, table

import etude
from etude.core.hook import Hook, HookTable
from etude.core.loop import fit, steps
from etude.core.run import Run
from etude.core.update import Forward, Step
from etude.hooks.log import Log
from etude.hooks.schedule import Schedule
from etude.optim.factory import build_optimizer
from etude.plan import Optimizer, Phase, Spec
from etude.plan import Schedule as SchedulePlan

LR, MOMENTUM, CLIP, EVERY = 1e-3, 0.9, 1.0, 50
#: A contestant, and the loop by hand that calls the same kernels.
SAME_KERNELS = (
    ("etude", "by hand, fused"),
    ("Trainer.fit", "by hand, fused"),
    ("ignite", "by hand, fused"),
    ("mmcv1", "by hand, train_step"),
    ("mmcv1, epochs", "by hand, train_step"),
    ("mmengine", "by hand, fused"),
    ("mmengine, SGD", "by hand, SGD"),
)
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
        loss_of = torch.nn.CrossEntropyLoss()
        hooks = [HandHook() for _ in range(10)]
        losses: list[torch.Tensor] = []
        model.train()
        begin = time.process_time()
        for step in range(count):
            inputs, target = data[step % len(data)]
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

    return work


def native(count: int) -> Callable[[], float]:
    """The same job on Étude, with everything it does by itself (fused kernels, the check of every loss)."""
    make, data = small_job()

    def work() -> float:
        model = make()
        optimizers = {"": build_optimizer(Optimizer(spec=Spec(kind="optimizer", name="AdamW", args={"lr": LR})), model)}
        update = Step(Forward(model, {"loss": torch.nn.CrossEntropyLoss()}), optimizers, clip_norm=CLIP)
        log = Log()
        log.every = f"{EVERY}step"
        run = Run(model, update, steps, data={"train": data}, optimizers=optimizers)
        run.steps_per_epoch, run.total_steps = len(data), count
        curve = Phase(curve=Spec(kind="schedule", name="Cosine"))
        schedule = Schedule([SchedulePlan(target="lr", phases=(curve,))])
        hooks = [schedule, log, *(UserHook() for _ in range(10))]
        run.hooks = HookTable(hooks, steps_per_epoch=len(data))
        begin = time.process_time()
        fit(run)
        return time.process_time() - begin

    return work


def trainer(count: int) -> Callable[[], float]:
    """The same job as a user writes it: ``Trainer.fit``, with its folder and writers, timer and watchdog."""
    make, data = small_job()

    def work() -> float:
        model = make()
        clock: list[float] = []
        curve = Phase(curve=Spec(kind="schedule", name="Cosine"))
        ticks = [
            etude.FunctionHook(lambda run: clock.append(time.process_time()), point, priority=priority)
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


def contestants(dialect: str | None) -> dict[str, Callable[[int], Callable[[], float]]]:
    """Name → what makes the job of so many steps."""
    found: dict[str, Callable[[int], Callable[[], float]]] = {
        "by hand": by_hand,
        "by hand, fused": partial(by_hand, fused=True),
        "etude": native,
        "Trainer.fit": trainer,
    }
    for file in sorted((Path(__file__).parent / "peers").glob("*.py")):
        try:
            found[file.stem] = importlib.import_module(f"peers.{file.stem}").contestant
        except ImportError as error:
            print(f"without {file.stem}: {error}")
    if dialect == "mmengine":
        made = importlib.import_module("overhead_mmengine").contestant
        sgd = {"type": "SGD", "lr": LR, "momentum": MOMENTUM}
        found["mmengine"] = made
        found["by hand, SGD"] = partial(by_hand, momentum=MOMENTUM)
        found["mmengine, SGD"] = lambda count: made(count, sgd)
    elif dialect == "mmcv1":
        found |= importlib.import_module("overhead_mmcv1").CONTESTANTS
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dialect", choices=["mmcv1", "mmengine"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    makers = contestants(args.dialect)
    times = compare({name: make(args.steps) for name, make in makers.items()}, rounds=args.rounds)
    counts = {name: operations(make) for name, make in makers.items()}
    rows = []
    for name, seconds in times.items():
        per_step = statistics.median(seconds) / args.steps * 1e6
        rows.append((name, f"{per_step:.1f}", f"{ratio(times, name, 'by hand'):.2f}", f"{counts[name]:.0f}"))
    print(table(rows, ("loop", "µs CPU per step", "of the loop by hand", "Python operations per step")))
    found = [Ratio("step: etude, own kernels, of a loop by hand", ratio(times, "etude", "by hand"), at_most=0.85)]
    for name, reference in SAME_KERNELS:
        if name in times:
            goal = None if name == "ignite" else 1.05 if name.startswith("mm") else 1.02
            note = f"{min(times[name]) / min(times[reference]):.2f} by best rounds, "
            note += f"{counts[name] - counts[reference]:+.0f} Python operations"
            found.append(Ratio(f"step: {name} of {reference}", ratio(times, name, reference), at_most=goal, note=note))
    points = compare({"10 hooks": points_of(0), "110 hooks": points_of(100)}, rounds=args.rounds)
    extra = [a - b for a, b in zip(points["110 hooks"], points["10 hooks"], strict=True)]
    found.append(Ratio("step: µs for 100 idle hooks", statistics.median(extra) / POINTS * 1e6, at_most=0.1))
    print()
    report(found, args.json)


if __name__ == "__main__":
    main()
