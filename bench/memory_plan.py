"""Compares `etude plan --memory` with what a run allocates, in 30 combinations of model, batch, optimizer and so on.

    python bench/memory_plan.py [--only WORD] [--process] [--largest]

Tensors: the peak of torch's own allocator, from the memory events of its profiler, in a run of six steps; rank 0 of two.
`--process` compares the peak of the process as the system counts it, `--largest` the largest batch under a limit with the
largest one whose measured peak is below it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import table

PARTS = """
import torch
from torch import nn


class Pictures(torch.utils.data.Dataset):
    deterministic = True

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((3, 32, 32), float(index % 7)), index % 10


class Words(Pictures):
    def __getitem__(self, index):
        return torch.full((64,), index % 100), index % 10


class Wide(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(3072, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.GELU(),
                         nn.Dropout(0.1), nn.Linear(1024, 10))


class Conv(nn.Sequential):
    def __init__(self):
        layers, width = [], 3
        for size in (32, 64, 128):
            layers += [nn.Conv2d(width, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU(), nn.MaxPool2d(2)]
            width = size
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Block(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(256, 4, 512, batch_first=True)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 256)
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)).mean(1))
"""
CHILD = """
import json, sys, torch
from etude.cli import main
prof = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
prof.start()
code = main(sys.argv[1:])
prof.stop()
now = peak = 0
events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
for event in sorted(events, key=lambda event: event.start_ns()):
    now += event.nbytes()
    peak = max(peak, now)
print("PEAK", peak)
sys.exit(code)
"""
MODELS = {"Wide": "Pictures", "Conv": "Pictures", "Text": "Words"}


def combination(model: str, batch: int, optimizer: str, *more: str) -> dict[str, Any]:
    """Return a config; ``more``: bf16, accumulate, recompute, and for two ranks ddp, copies or fsdp."""
    train: dict[str, Any] = {"steps": 6, "threads": 1}
    train |= {"precision": "bf16"} if "bf16" in more else {}
    train |= {"accumulate": 3} if "accumulate" in more else {}
    train |= {"gradient_checkpointing": ["Block"]} if "recompute" in more else {}
    parallel = {
        "fsdp": {"strategy": "fsdp", "wrap": ["Block"] if model == "Text" else []},
        "copies": {"strategy": "ddp", "bucket_view": False},
    }
    ways = [parallel[word] for word in more if word in parallel]
    momentum = {"momentum": 0.9} if optimizer == "SGD" else {}
    return {
        "imports": ["memory_parts.py"], "model": {"type": f"memory_parts.{model}"}, "loss": "CrossEntropyLoss",
        "data": {"train": {"dataset": {"type": f"memory_parts.{MODELS[model]}"}, "batch_size": batch}},
        "optim": {"type": optimizer, "lr": 0.001, **momentum}, "train": train, "checkpoint": False,
        **({"parallel": ways[0]} if ways else {}),
    }  # fmt: skip


COMBINATIONS = [
    ("Wide", 32, "SGD"), ("Wide", 256, "AdamW"), ("Wide", 512, "AdamW", "bf16"), ("Wide", 64, "Adam", "accumulate"),
    ("Wide", 1024, "SGD", "bf16", "accumulate"), ("Wide", 256, "RMSprop"), ("Wide", 128, "AdamW", "ddp"),
    ("Wide", 128, "AdamW", "copies"), ("Wide", 256, "AdamW", "fsdp"), ("Wide", 256, "SGD", "ddp", "accumulate"),
    ("Conv", 32, "SGD"), ("Conv", 64, "AdamW"), ("Conv", 64, "SGD", "bf16"), ("Conv", 32, "AdamW", "accumulate"),
    ("Conv", 128, "SGD"), ("Conv", 64, "Adam", "bf16", "accumulate"), ("Conv", 64, "SGD", "ddp"),
    ("Conv", 64, "AdamW", "fsdp"), ("Conv", 32, "AdamW", "ddp", "bf16"),
    ("Text", 8, "AdamW"), ("Text", 32, "AdamW"), ("Text", 32, "AdamW", "recompute"), ("Text", 16, "SGD", "bf16"),
    ("Text", 64, "AdamW", "recompute", "accumulate"), ("Text", 16, "AdamW", "accumulate"), ("Text", 32, "AdamW", "ddp"),
    ("Text", 32, "AdamW", "copies"), ("Text", 32, "AdamW", "fsdp"), ("Text", 32, "SGD", "fsdp"),
    ("Text", 32, "AdamW", "ddp", "recompute"),
]  # fmt: skip


def ranks_of(one: tuple[Any, ...]) -> int:
    return 2 if {"ddp", "copies", "fsdp"} & set(one) else 1


def measured(folder: Path, ranks: int, *changes: str, process: bool = False) -> int:
    """Return the peak of rank 0: of torch's allocator, or of the process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if ranks > 1 else {}
    words = ["-m", "etude"] if process else ["-c", CHILD]
    begun = []
    for rank in range(ranks):
        own = {**world, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)} if world else {}
        begun.append(subprocess.Popen(
            [sys.executable, *words, "train", "c.yaml", "-q", "--folder", "run", "--restart", *changes], cwd=folder,
            env=os.environ | own | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ))  # fmt: skip
    said = begun[0].stdout.read() if begun[0].stdout else ""
    _, status, usage = os.wait4(begun[0].pid, 0)
    for rank in begun[1:]:
        rank.communicate()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"the run in {folder} failed: {said}")
    return usage.ru_maxrss * 1024 if process else int(said.rpartition("PEAK ")[2])


def planner(folder: Path, ranks: int) -> Any:
    """Return what predicts the memory of the config in ``folder``."""
    from etude.api import load_plan
    from etude.session.memory_plan import Planner

    plan, _ = load_plan(str(folder / "c.yaml"), [], dialect="", options={})
    return Planner(plan, ranks)


def largest(folder: Path, ranks: int, found: Any) -> str:
    """Compare the largest batch that is predicted to fit into 1.5 times the peak with the largest that does."""
    limit = int(1.5 * found.estimate().tensors)
    best = found.largest(limit, of_process=False).batch_size
    step = max(1, best // 16)
    fits = measured(folder, ranks, f"data.train.batch_size={best - step}") <= limit
    beyond = measured(folder, ranks, f"data.train.batch_size={best + 2 * step}") > limit
    return f"{best} {'right' if fits and beyond else 'WRONG'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="combinations that have this word")
    parser.add_argument("--process", action="store_true")
    parser.add_argument("--largest", action="store_true")
    args = parser.parse_args()
    rows, wrong = [], 0
    for one in COMBINATIONS:
        name = " ".join(map(str, one))
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as made:
            folder, ranks = Path(made), ranks_of(one)
            (folder / "memory_parts.py").write_text(PARTS)
            (folder / "c.yaml").write_text(json.dumps(combination(*one)))
            found = planner(folder, ranks)
            estimate = found.estimate()
            told, real = estimate.tensors, measured(folder, ranks)
            row = [name, f"{told / 1e6:.1f}", f"{real / 1e6:.1f}", f"{told / real:.3f}"]
            wrong += abs(told / real - 1) > 0.05
            if args.process:
                whole = measured(folder, ranks, process=True)
                row += [f"{estimate.whole / whole:.3f}"]
                wrong += abs(estimate.whole / whole - 1) > 0.10
            if args.largest:
                row += [largest(folder, ranks, found)]
                wrong += "WRONG" in row[-1]
            sys.modules.pop("memory_parts", None)
        rows.append(row)
        print(*row, flush=True)
    head = ["combination", "MB told", "MB measured", "ratio"]
    head += ["process"] * args.process + ["largest batch"] * args.largest
    print(table([tuple(row) for row in rows], tuple(head)))
    print(f"\n{wrong} of {len(rows)} are off by more than 5 % (a process 10 %)")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
