"""Models split over processes, native ones and LiBai's: against one process, against torch by hand, killed, resumed.

    python bench/parallel.py [--only curves,shares,kills,bits,cost,memory,libai] [--steps 200] [--kills 20] [--json FILE]

curves   losses and gathered weights of SGD and AdamW, with dropout 0.1, against one process (PARALLEL: every layout)
shares   elements of parameters that a rank holds against whole ÷ (tensor · pipeline · shares); collectives per layer
kills    a rank is killed at a random step under one layout, the run resumes under another: against an undisturbed one
bits     the same bits on 1, 2 and 4 processes with `virtual_ranks: 4`; what a step costs over ddp
cost     seconds of CPU of a step of Étude over the same step by hand on torch, in the same processes in turn
memory   AdamW under a limit of memory (`ulimit -v`) that one process does not fit in, and each of four does
libai    LiBai's model families, by bench/parallel_libai.py

Gaps are differences to one process, divided by 1e-5: at most 1 is within the goal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# The tests of all packages are one namespace, `tests`.
sys.path[:0] = [str(ROOT), *map(str, ROOT.glob("packages/*"))]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:5], os.environ.get("PYTHONPATH", "")])

import torch
from _common import Ratio, report
from torch import distributed, nn

from tests.dist import language, project

CLOSE = 1e-5
CONFIG = """
imports: [language.py, probe.py]
model: {type: language.Llama, dropout: 0.1}
loss: language.next_token
data: {train: {dataset: {type: language.Tokens}, batch_size: 8}}
optim: {type: SGD, lr: 0.1, momentum: 0.9, clip_norm: 1.0}
train: {steps: 20, threads: 1}
checkpoint: {every: 3step, keep: 3}
log: {every: 1step}
"""
PROBE = '''
import json, torch, etude
from etude.dist.layout.shards import local

class Probe(etude.Hook):
    """Writes how many elements of the parameters each rank holds, and the collectives of its third step."""

    def before_train(self, run):
        self.held = sum(local(param).numel() for param in run.model.parameters())

    def before_step(self, run):
        if run.step == 2:
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profile.__enter__()

    def after_step(self, run):
        if run.step == 2:
            self.profile.__exit__(None, None, None)
            counts = {event.key: event.count for event in self.profile.key_averages()}
            sent = {key: n for key, n in counts.items() if key.startswith("c10d::")}
            with open(run.folder / f"probe-{run.world.rank}.json", "w") as file:
                json.dump({"held": self.held, "sent": sent}, file)
'''
#: Name → processes, `parallel`, and whether dropout draws what one process draws.
LAYOUTS: dict[str, tuple[int, str, bool]] = {
    "tensor 2": (2, "{tensor: 2}", True),
    "ddp 2": (2, "{strategy: ddp}", False),
    "fsdp 2": (2, "{strategy: fsdp}", False),
    "pipeline 2 (1f1b)": (2, "{pipeline: {size: 2, microbatches: 4}}", False),
    "context 2": (2, "{context: {size: 2, buffers: {table: 0}}}", False),
    "ddp 2 × tensor 2": (4, "{tensor: 2}", False),
    "fsdp 2 × tensor 2": (4, "{tensor: 2, strategy: fsdp}", False),
    "pipeline 2 × tensor 2": (4, "{pipeline: {size: 2, microbatches: 4}, tensor: 2}", False),
    "pipeline 2 × fsdp 2": (4, "{pipeline: {size: 2, microbatches: 4}, strategy: fsdp}", False),
    "pipeline 4": (4, "{pipeline: {size: 4, microbatches: 4}}", False),
    "context 2 × tensor 2": (4, "{context: {size: 2, buffers: {table: 0}}, tensor: 2}", False),
}
OPTIMIZERS = {
    "SGD": "optim={type: SGD, lr: 0.1, momentum: 0.9, clip_norm: 1.0}",
    # With the usual eps, what rounding leaves of a gradient near zero becomes a whole step.
    "AdamW": "optim={type: AdamW, lr: 1e-3, eps: 1e-3, clip_norm: 1.0}",
}


class Bench:
    """A folder with the job, and the processes that train it."""

    def __init__(self, folder: Path) -> None:
        from tests.dist.conftest import Jobs

        self.folder = folder
        shutil.copy(project.HERE / "language.py", folder)
        (folder / "probe.py").write_text(PROBE)
        (folder / "config.yaml").write_text(CONFIG)
        self.jobs = Jobs(folder / "log.txt")
        self._alone: dict[tuple[str, ...], Path] = {}
        self._count = itertools.count()

    def train(self, *changes: str, nproc: int, code: int | None = 0, name: str = "") -> Path:
        name = name or f"run-{next(self._count)}"
        job = self.jobs.start("train", "config.yaml", "-q", "--folder", name, *changes, cwd=self.folder, nproc=nproc)
        ended = job.wait()
        if code is not None and ended != code:
            raise SystemExit(f"{changes} on {nproc} processes ended with {ended}:\n{job.output}")
        return self.folder / name

    def alone(self, *changes: str) -> Path:
        if changes not in self._alone:
            self._alone[changes] = self.train(*changes, nproc=1)
        return self._alone[changes]


def gaps(one: Path, other: Path) -> tuple[float, float]:
    """The largest differences of losses and of weights."""
    first, second = ([row["loss"] for row in project.records(run) if "loss" in row] for run in (one, other))
    a, b = project.weights(one), project.weights(other)
    assert a.keys() == b.keys()
    losses = max(abs(x - y) for x, y in zip(first, second, strict=True))
    return losses, max((a[name] - b[name]).abs().max().item() for name in a)


def curves(bench: Bench, steps: int) -> Iterator[Ratio]:
    for layout, (nproc, parallel, draws) in LAYOUTS.items():
        for kind, optimizer in OPTIMIZERS.items():
            words = [optimizer, f"train.steps={steps}", "~checkpoint", *([] if draws else ["model.dropout=0"])]
            losses, weights = gaps(bench.alone(*words), bench.train(*words, f"+parallel={parallel}", nproc=nproc))
            note = f"losses {losses:.1e}, weights {weights:.1e}" + (", with dropout" if draws else "")
            yield Ratio(f"{kind}, {steps} steps, {layout}", losses / CLOSE, at_most=1.0, note=note)


def shares(bench: Bench) -> Iterator[Ratio]:
    for layout, (nproc, parallel, _) in LAYOUTS.items():
        few, many = (_probed(bench, nproc, parallel, layers) for layers in (4, 8))
        whole = sum(param.numel() for param in language.Llama(vocab=8, layers=8).parameters())
        held = max(one["held"] for one in many)
        part = _parts(layout)
        sent = {
            key: (n - few[0]["sent"].get(key, 0)) / 4 for key, n in many[0]["sent"].items()
            if n != few[0]["sent"].get(key, 0)
        }  # fmt: skip
        note = f"{held:,} of {whole:,}; messages per layer and step: {_messages(sent)}"
        yield Ratio(f"held by a rank / its part, {layout}", held * part / whole, at_most=1.1, note=note)
        if layout == "tensor 2":
            yield Ratio("collectives of a layer, forward and backward", sum(sent.values()), at_most=4.0)


def _messages(sent: dict[str, float]) -> str:
    return ", ".join(f"{n:g} {key.rpartition('::')[2]}" for key, n in sent.items()) or "none"


def _parts(layout: str) -> int:
    """In how many parts the weights lie."""
    sizes = [one.split()[:2] for one in layout.split(" × ")]
    return math.prod(int(size) for word, size in sizes if word in ("tensor", "pipeline", "fsdp"))


def _probed(bench: Bench, nproc: int, parallel: str, layers: int) -> list[dict[str, Any]]:
    # Even parts for stages: the embedding and the head are as large as layers are not.
    words = ["train.steps=4", f"+model.layers={layers}", "+model.vocab=8", "+data.train.dataset.vocab=8"]
    run = bench.train(*words, "+hooks=[probe.Probe]", f"+parallel={parallel}", nproc=nproc)
    return [json.loads((run / f"probe-{rank}.json").read_text()) for rank in range(nproc)]


def kills(bench: Bench, count: int, seed: int = 0) -> Iterator[Ratio]:
    draw, worst, lost, begun = random.Random(seed), 0.0, [], time.monotonic()
    words = ["model.dropout=0", "+train.accumulate=2", "train.steps=16"]
    for number in range(count):
        (first, (n, before, _)), (second, (m, after, _)) = draw.choices(list(LAYOUTS.items()), k=2)
        step, rank = draw.randint(4, 14), draw.randrange(n)
        chaos = ("--chaos", f"kill@step={step},rank={rank}")
        bench.train(*words, f"+parallel={before}", *chaos, nproc=n, code=8, name=f"killed-{number}")
        resumed = bench.train(*words, f"+parallel={after}", "--resume", nproc=m, code=None, name=f"killed-{number}")
        try:
            gap = max(gaps(bench.alone(*words), resumed))
        except (AssertionError, OSError, ValueError) as error:
            gap = math.inf
            print(f"{first} → {second}, step {step}: {error}", file=sys.stderr)
        worst = max(worst, gap)
        if gap > CLOSE:
            lost.append(f"{first} → {second} at step {step}")
    note = f"{count - len(lost)} of {count} in {time.monotonic() - begun:.0f} s; " + ("; ".join(lost) or "all")
    yield Ratio("killed under one layout, resumed under another: gap", worst / CLOSE, at_most=1.0, note=note)


#: What is freed goes back to the system at once, so that the limit counts what is in use.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}


def bits(bench: Bench, args: argparse.Namespace) -> Iterator[Ratio]:
    """SGD and AdamW with dropout, on batches of 9 of 42 samples, whose parts are uneven."""
    for kind, optimizer in OPTIMIZERS.items():
        words = [optimizer, f"train.steps={args.steps}", "data.train.batch_size=9", "+data.train.dataset.size=42"]
        words += ["+parallel.virtual_ranks=4"]
        others = [bench.train(*words, nproc=nproc) for nproc in (2, 4)]
        same = sum(project.same_bits(bench.alone(*words), other) for other in others)
        yield Ratio(f"{kind}, {args.steps} steps: of 2 and 4 processes, with the bits of one", float(same), at_least=2)
    for nproc in (2, 4):
        yield compared(f"virtual_ranks: {nproc} / ddp, {nproc} processes", "virtual", nproc, args, goal=1.15)


def memory() -> Iterator[Ratio]:
    """Whether one process and four train under a limit of two and a half times the weights, besides torch itself.

    AdamW needs four times the weights: these, gradients, and two averages."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copy(project.HERE / "language.py", folder)
        (folder / "config.yaml").write_text(
            "imports: [language.py]\nmodel: {type: language.Llama, width: 768, layers: 10}\nloss: language.next_token\n"
            "data: {train: {dataset: {type: language.Tokens}, batch_size: 4}}\noptim: {type: AdamW, lr: 1e-4}\n"
            "train: {steps: 2, threads: 1}\ncheckpoint: false\n"
        )
        weights = sum(param.numel() for param in language.Llama(width=768, layers=10).parameters()) * 4
        empty = _least(folder, 4, "model={type: language.Llama}", "+parallel.tensor=2")
        limit = empty + int(2.5 * weights)
        for nproc, parallel, wanted in (
            (1, "{}", False), (4, "{tensor: 2, strategy: fsdp, wrap: [Block]}", True), (4, "{tensor: 4}", True),
            (4, "{strategy: fsdp, wrap: [Block]}", True), (4, "{pipeline: {size: 4, microbatches: 4}}", True),
        ):  # fmt: skip
            fits = _fits(folder, nproc, limit, f"+parallel={parallel}")
            note = f"limit {limit >> 20} MB a process, {empty >> 20} MB of it torch; weights {weights >> 20} MB"
            name = f"trains under the limit, {nproc} process{'es' if nproc > 1 else ''} {parallel}"
            goal = {"at_least": 1.0} if wanted else {"at_most": 0.0}
            yield Ratio(name, float(fits), note=note, **goal)


def _fits(folder: Path, nproc: int, limit: int, *words: str) -> bool:
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--nproc", str(nproc), *words]
    done = subprocess.run(
        [*command, "--folder", f"fits-{time.monotonic_ns()}", *(["--max-restarts", "0"] if nproc > 1 else [])],
        cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | MALLOC,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    return done.returncode == 0


def _least(folder: Path, nproc: int, *words: str) -> int:
    """The least limit in which a small model trains: what Python and torch take."""
    low, high = 1 << 28, 1 << 34
    while high - low > 1 << 25:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(folder, nproc, middle, *words) else (middle, high)
    return high


# -- a step of Étude over the same by hand -----------------------------------------------------------------------------


class Hand:
    """What a project writes by hand on torch: the split, votes of ranks, clipping, a mean loss now and then."""

    def __init__(self, kind: str, make: Callable[[], nn.Module], batch: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.kind, size = kind, distributed.get_world_size()
        shape = {"tensor": (1, size), "pipeline": (1, size), "fsdp": (2, size // 2)}[kind]
        self.mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "other"))
        self.model, self.loss = make(), language.next_token
        self.share = batch // shape[0]
        self.begin = self.mesh.get_local_rank("data") * self.share
        getattr(self, f"_{kind}")()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def _tensor(self) -> None:
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        from etude.dist.layout import kernels

        kernels.correct("cpu")  # attention on a CPU, which torch's DTensor has no rule for
        column = ColwiseParallel(use_local_output=False)
        row = RowwiseParallel(output_layouts=Replicate(), use_local_output=False)
        plan = {f"layers.*.attention.{name}": column for name in ("wq", "wk", "wv")}
        plan |= {"layers.*.feed_forward.w1": column, "layers.*.feed_forward.w3": column}
        plan |= {"layers.*.attention.wo": row, "layers.*.feed_forward.w2": row}
        plan["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), use_local_output=False)
        plan["output"] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        mesh = self.mesh["other"]
        parallelize_module(self.model, mesh, plan)
        # So that gradients of q, k and v are reduced together, when they are summed.
        together = [one for one in self.model.modules() if isinstance(one, language.Attention | language.FeedForward)]
        for module in (*together, self.model.output):
            module.register_forward_pre_hook(
                lambda module, given: (given[0].redistribute(placements=given[0].placements), *given[1:])
            )
        for module in self.model.modules():
            for name, param in list(module.named_parameters(recurse=False)):
                if not isinstance(param, DTensor):
                    whole = DTensor.from_local(param.detach(), mesh, [Replicate()], run_check=False)
                    module.register_parameter(name, nn.Parameter(whole))

    def _fsdp(self) -> None:
        from torch.distributed.fsdp import fully_shard

        self._tensor()
        fully_shard(self.model, mesh=self.mesh["data"])

    def _pipeline(self) -> None:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        rank, model = self.mesh.get_local_rank("other"), self.model
        each = len(model.layers) // self.mesh.size()
        for key in list(model.layers):
            if int(key) // each != rank:
                del model.layers[key]
        self.is_last = rank == self.mesh.size() - 1
        if rank:
            model.tok_embeddings = None
        if not self.is_last:
            model.norm = model.output = None
        stage = PipelineStage(model, rank, self.mesh.size(), torch.device("cpu"), group=self.mesh.get_group("other"))
        self.schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=self.loss)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.kind == "pipeline":
            losses: list[torch.Tensor] = []
            given = {"target": targets, "losses": losses} if self.is_last else {}
            self.schedule.step(*([inputs] if self.mesh.get_local_rank("other") == 0 else []), **given)
            loss = torch.stack(losses).mean() if losses else torch.zeros(())
            distributed.broadcast(loss, src=self.mesh.size() - 1)
        else:
            # Étude's correction splits the classes of the loss, as `loss_parallel` would.
            loss = self.loss(self.model(inputs), targets).full_tensor()
        agreed = torch.tensor([0.0, time.monotonic(), not math.isfinite(loss.item())], dtype=torch.float64)
        work = distributed.all_reduce(agreed, distributed.ReduceOp.MAX, async_op=True)
        if self.kind != "pipeline":
            loss.backward()
        work.wait()
        if agreed.tolist()[2]:
            raise SystemExit("the loss is not finite")
        self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _clip(self) -> None:
        square, own = torch.zeros((), dtype=torch.float64), []
        for param in self.model.parameters():
            grad, counts = param.grad, True
            if self.kind != "pipeline":
                if grad.placements != param.placements:
                    grad = param.grad = grad.redistribute(placements=param.placements)
                here = zip(grad.device_mesh.get_coordinate(), grad.placements, strict=True)
                counts = not any(place for place, how in here if how.is_replicate())
                grad = grad.to_local()
            own.append(grad)
            if counts:
                square += grad.norm().double() ** 2
        distributed.all_reduce(square)
        torch._foreach_mul_(own, torch.clamp(1.0 / (square.sqrt().float() + 1e-6), max=1.0))

    def seconds(self, steps: int, inputs: torch.Tensor, targets: torch.Tensor, batch: int) -> float:
        losses, began = [], 0.0
        for step in range(steps + 3):
            if step == 3:
                distributed.barrier()
                began = time.process_time()
            order = torch.arange(step * batch, (step + 1) * batch) % len(inputs)
            order = order[self.begin : self.begin + self.share]
            losses.append(self.step(inputs[order], targets[order]))
        torch.stack(losses).mean().item()
        return _of_all(time.process_time() - began) / steps


def _of_all(seconds: float) -> float:
    """The sum over ranks: seconds of CPU, which a busy machine changes less than those of a clock."""
    summed = torch.tensor(seconds)
    distributed.all_reduce(summed)
    return summed.item()


def etudes(kind: str, make: Callable[[], nn.Module], steps: int, data: Any, batch: int) -> float:
    import etude

    times: list[float] = []

    def look(run: etude.Run) -> None:
        if run.done in (3, steps + 3):
            distributed.barrier()
            times.append(time.process_time())

    model = make()
    size = distributed.get_world_size()
    parallel: dict[str, Any] = {
        "tensor": {"tensor": size}, "pipeline": {"pipeline": {"size": size, "microbatches": 4}},
        "fsdp": {"tensor": size // 2, "strategy": "fsdp"}, "ddp": {"strategy": "ddp"},
        "virtual": {"virtual_ranks": size},
    }[kind]  # fmt: skip
    trainer = etude.Trainer(
        model, loss=language.next_token, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), clip_norm=1.0,
        hooks=[look], quiet=True, device="cpu", parallel=parallel,
    )  # fmt: skip
    trainer.fit(data, batch_size=batch, steps=steps + 3)
    return _of_all(times[1] - times[0]) / steps


def worker(kind: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    from etude.data.datasets.tensors import TensorData
    from etude.dist import group
    from etude.dist.world import World

    group.join(World.from_environment())
    batch, whole = 8, language.Tokens(size=64, length=args.length)
    inputs, targets = whole.tokens[:, :-1].contiguous(), whole.tokens[:, 1:].contiguous()

    def make() -> nn.Module:
        torch.manual_seed(0)
        return language.Llama(width=args.width, length=args.length)

    def ours(kind: str) -> float:
        return etudes(kind, make, args.block, TensorData(inputs, targets), batch)

    sides: list[tuple[str, Callable[[], float]]] = [
        ("by hand", lambda: Hand(kind, make, batch).seconds(args.block, inputs, targets, batch)),
        ("etude", lambda: ours(kind)),
    ]
    if kind == "virtual":
        sides = [("ddp", lambda: ours("ddp")), ("virtual ranks", lambda: ours("virtual"))]
    times: dict[str, list[float]] = {name: [] for name, _ in sides}
    for turn in range(args.rounds):
        for name, side in sides if turn % 2 else reversed(sides):
            times[name].append(side())
    if distributed.get_rank() == 0:
        print(json.dumps(times))


def cost(args: argparse.Namespace) -> Iterator[Ratio]:
    for kind, name, nproc in (
        ("tensor", "tensor 2", 2), ("pipeline", "pipeline 2", 2), ("fsdp", "fsdp 2 × tensor 2", 4)
    ):  # fmt: skip
        yield compared(f"time of a step, Étude / by hand, {name}", kind, nproc, args, goal=1.02)


def compared(name: str, kind: str, nproc: int, args: argparse.Namespace, *, goal: float) -> Ratio:
    """Time one way to train beside another, in the same processes."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    words += [__file__, "--worker", kind, "--block", str(args.block), "--rounds", str(args.rounds)]
    words += ["--width", str(args.width), "--length", str(args.length)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    times = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    (other, first), (own, second) = times.items()
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    note = f"{1e3 * min(second):.0f} ({own}) and {1e3 * min(first):.0f} ({other}) ms of CPU at best; rounds "
    note += " ".join(f"{one:.2f}" for one in ratios)
    return Ratio(name, statistics.median(ratios), at_most=goal, note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="curves,shares,kills,bits,cost,memory,libai")
    parser.add_argument("--layouts", help="only those whose name has this text")
    parser.add_argument("--steps", type=int, default=20, help="of curves")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--block", type=int, default=20, help="steps of each side in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args)
    wanted, made = args.only.split(","), list[Ratio]()
    for name in [name for name in LAYOUTS if args.layouts and args.layouts not in name]:
        del LAYOUTS[name]

    def add(rows: Iterator[Ratio]) -> None:
        for row in rows:
            print(f"{row.name}: {row.value:.3g} ({row.note})", file=sys.stderr, flush=True)
            made.append(row)

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            if "curves" in wanted:
                add(curves(bench, args.steps))
            if "shares" in wanted:
                add(shares(bench))
            if "kills" in wanted:
                add(kills(bench, args.kills, args.seed))
            if "bits" in wanted:
                add(bits(bench, args))
        finally:
            bench.jobs.close()
    if "cost" in wanted:
        add(cost(args))
    if "memory" in wanted:
        add(memory())
    if "libai" in wanted:
        import parallel_libai

        add(parallel_libai.rows(["gpt", "bert", "t5", "vit"], list(parallel_libai.LAYOUTS), f"steps={args.steps}"))
    return report(made, args.json)


if __name__ == "__main__":
    main()
