"""What a save costs: stall, throughput and memory, beside one copy of memory, plain write + fsync, torch.save and DCP.

    python bench/checkpoint.py --mb 600 --tensors 2000 --rounds 5 [--folder DIR]

Two states: a model with AdamW's two moments in large tensors, and one with as many tensors as ``--tensors`` says. Each round saves once with every method, in turns, so that a busy machine
is unkind to all of them alike; the best of each is printed, because other work can only add to a time. The column in CPU
has the same ratio in CPU time of the thread that trains.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report

from etude.checkpoint.formats.background import BackgroundWriter
from etude.checkpoint.formats.torch_file import save_file
from etude.checkpoint.retention import Retention
from etude.checkpoint.store import Store


def make_state(megabytes: int) -> dict[str, Any]:
    """Weights and two moments of each, in layers of a few sizes as a model has them."""
    per_tensor = 1024 * 1024
    count = max(1, megabytes * 1_000_000 // (3 * 4 * per_tensor))
    weights = {f"layer.{n}.weight": torch.randn(1024, 1024) for n in range(count)}
    weights |= {f"layer.{n}.bias": torch.randn(1024) for n in range(count)}
    moments = {
        n: {"step": torch.tensor(5.0), "exp_avg": torch.randn_like(w), "exp_avg_sq": torch.rand_like(w)}
        for n, w in enumerate(weights.values())
    }
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(range(len(weights)))}]
    return {"model": weights, "optimizer": {"state": moments, "param_groups": groups}}


def many_tensors(count: int, size: int = 8192) -> dict[str, Any]:
    """A deep model of many small weights: ``count`` tensors of 32 kB with the two moments of each."""
    weights = {f"layer.{n}.weight": torch.randn(size) for n in range(count // 3)}
    moments = {n: {"exp_avg": torch.randn(size), "exp_avg_sq": torch.rand(size)} for n in range(len(weights))}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(range(len(weights)))}]
    return {"model": weights, "optimizer": {"state": moments, "param_groups": groups}}


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_of(item)]


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


class Wait:
    """How long the thread that trains is kept, and how much of that it works: others on the machine add to the first."""

    def __init__(self) -> None:
        self._began, self._worked = time.perf_counter(), time.thread_time()

    def over(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, time.thread_time() - self._worked


class Methods:
    """One method per way of saving; each returns (seconds the caller waits, seconds of writing).

    ``worked`` is the CPU time of the thread that trains while it waits, where that is not all of a method.
    """

    worked: float | None = None

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self.state, self.folder = state, folder
        self.sources = tensors_of(state)
        self.copies = [torch.empty_like(tensor) for tensor in self.sources]
        self.store = Store(folder / "etude", retention=Retention(last=1))
        self.later, self.open = BackgroundWriter(), ExitStack()
        self.open.enter_context(self.later.running(print))
        self.count = 0

    def copy(self) -> tuple[float, float]:
        """One copy of the state in memory that is there already: what no snapshot can beat."""
        seconds = timed(lambda: torch._foreach_copy_(self.copies, self.sources))
        return seconds, seconds

    def plain(self) -> tuple[float, float]:
        """The same bytes with write and fsync, nothing else."""
        path = self.folder / "plain"

        def work() -> None:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for tensor in self.sources:
                view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
                while len(view):
                    view = view[os.write(fd, view[: 8 << 20]) :]
            os.fsync(fd)
            os.close(fd)

        seconds = timed(work)
        path.unlink()
        return seconds, seconds

    def etude(self) -> tuple[float, float]:
        self.count += 1
        wait = Wait()
        self.store.save(self.state, step=self.count)
        stall, self.worked = wait.over()
        self.store.wait()
        (outcome,) = self.store.poll()
        return stall, outcome.seconds

    def torch_save(self) -> tuple[float, float]:
        """As engines use it: the training thread writes, nothing is synced."""
        seconds = timed(lambda: torch.save(self.state, self.folder / "torch.pth"))
        (self.folder / "torch.pth").unlink()
        return seconds, seconds

    def dialect(self) -> tuple[float, float]:
        """A dialect's own file, as its runner writes it where all hooks are Étude's: training waits for a copy."""
        wait = Wait()
        with self.later.deferring(print, only_if=True):
            self.later.write(self._write_file, self.state)
        stall, self.worked = wait.over()
        self.later.flush()
        total, _ = wait.over()
        (self.folder / "dialect.pth").unlink()
        return stall, total

    def dialect_at_once(self) -> tuple[float, float]:
        """The same with a hook of a project: whole and synced when training goes on, for the hook may read it then."""
        seconds = timed(lambda: self._write_file(self.state))
        (self.folder / "dialect.pth").unlink()
        return seconds, seconds

    def _write_file(self, state: dict[str, Any]) -> None:
        save_file(self.folder / "dialect.pth", state)

    def dcp_async(self) -> tuple[float, float]:
        import torch.distributed.checkpoint as dcp

        path = self.folder / "dcp"
        began = time.perf_counter()
        future: Any = dcp.async_save(self.state, checkpoint_id=str(path))
        stall = time.perf_counter() - began
        future.result()
        total = time.perf_counter() - began
        shutil.rmtree(path)
        return stall, total


def peak_of(call: Callable[[], Any]) -> float:
    """Megabytes of memory that ``call`` needs beyond what is there, at most."""
    gc.collect()
    page = resource.getpagesize()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before, highest, running = resident(), 0, True

    def watch() -> None:
        nonlocal highest
        while running:
            highest = max(highest, resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    running = False
    watcher.join()
    return (highest - before) / 1e6


def save_once(state: dict[str, Any], folder: Path) -> None:
    store = Store(folder)
    store.save(state, step=1)
    store.close()


def measured(state: dict[str, Any], args: argparse.Namespace, name: str) -> list[Ratio]:
    """Save ``state`` with every method in turn; print the table and return the ratios that have a goal."""
    folder = Path(tempfile.mkdtemp(prefix="etude-bench-", dir=args.folder))
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(state)) / 1e6
    first_peak = peak_of(lambda: save_once(state, folder / "memory"))
    methods = Methods(state, folder)
    names = ["copy", "plain", "etude", "torch_save", "dialect", "dialect_at_once"] + (
        [] if args.no_dcp else ["dcp_async"]
    )
    for method in names:
        getattr(methods, method)()  # the first time of each is not counted: memory and imports
    results: dict[str, list[tuple[float, float]]] = {method: [] for method in names}
    work: dict[str, list[float]] = {method: [] for method in names}
    kept: dict[str, list[float]] = {method: [] for method in names}
    for _ in range(args.rounds):
        for method in names:
            before, own, methods.worked = time.process_time(), time.thread_time(), None
            results[method].append(getattr(methods, method)())
            work[method].append(time.process_time() - before)
            kept[method].append(time.thread_time() - own if methods.worked is None else methods.worked)
    methods.open.close()
    shutil.rmtree(folder)
    stall = {method: min(pair[0] for pair in pairs) for method, pairs in results.items()}
    total = {method: min(pair[1] for pair in pairs) for method, pairs in results.items()}
    print(f"{size:.0f} MB in {len(tensors_of(state))} tensors, best of {args.rounds} rounds\n")
    print(
        f"{'':16} {'stall':>9} {'of a copy':>10} {'in CPU':>9} {'writing':>11} {'MB/s':>7} {'of plain':>9} {'CPU':>8}"
    )
    for method in names:
        print(
            f"{method:16} {stall[method] * 1000:7.1f}ms {stall[method] / stall['copy']:9.2f}× "
            f"{min(kept[method]) / min(kept['copy']):8.2f}× {total[method] * 1000:9.0f}ms {size / total[method]:7.0f} "
            f"{total['plain'] / total[method]:8.2f}× {min(work[method]) * 1000:6.0f}ms"
        )
    print(f"\nextra memory of the first save: {first_peak:.0f} MB = {first_peak / size:.2f} copies of the state\n")
    return [
        Ratio(f"checkpoint: stall ÷ a memory copy, {name}", stall["etude"] / stall["copy"], at_most=1.5),
        Ratio(f"checkpoint: throughput ÷ write + fsync, {name}", total["plain"] / total["etude"], at_least=0.8),
        Ratio(
            f"checkpoint: stall for a dialect's own file ÷ a memory copy, {name}",
            stall["dialect"] / stall["copy"],
            at_most=1.5,
        ),
        Ratio(
            f"checkpoint: a dialect's own file beside hooks of a project ÷ torch.save, {name}",
            stall["dialect_at_once"] / stall["torch_save"],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=600)
    parser.add_argument("--tensors", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--no-dcp", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = measured(make_state(args.mb), args, f"{args.mb} MB")
    found += measured(many_tensors(args.tensors), args, f"{args.tensors} tensors")
    report(found, args.json)


if __name__ == "__main__":
    main()
