"""LARS, LAMB and EMA on the parameter shapes of a ResNet-50 and of a small ViT.

    python bench/optim.py [--json FILE]

Times of one update on this machine, and their ratios to torch's fused SGD or AdamW and to the same arithmetic written as
a loop over parameters, in one thread. Only the ratios say something about another machine.

"Passes alone" is what torch takes for the passes over memory that the formula needs, a call each for all tensors, without
the arithmetic between them: no way of calling torch's kernels is faster. "In C" is the same update in loops of C
(bench/optim.c), where there is a compiler: what kernels of our own could gain.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio
from _common import report as show

from etude.hooks.ema import Average
from etude.optim.lamb import LAMB
from etude.optim.lars import LARS

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    shapes: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    width = 64
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            sizes = [(inner, width, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1)]
            sizes += [(4 * inner, width, 1, 1)] if block == 0 else []
            shapes += [shape for size in sizes for shape in (size, size[:1], size[:1])]
            width = 4 * inner
    return [*shapes, (1000, 2048), (1000,)]


def small_vit(width: int = 384, depth: int = 12) -> list[Shape]:
    shapes: list[Shape] = [(1, 1, width), (1, 197, width), (width, 3, 16, 16), (width,)]
    for _ in range(depth):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
        shapes += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [*shapes, (width,), (width,), (1000, width), (1000,)]


@torch.no_grad()
def lars_loop(params: list[Tensor], buffers: list[Tensor]) -> None:
    for w, buffer in zip(params, buffers, strict=True):
        g = w.grad
        assert g is not None
        weight, grad = w.norm(), g.norm()
        local = torch.where((weight > 0) & (grad > 0), 0.001 * weight / (grad + 1e-4 * weight + 1e-8), 1.0)
        buffer.mul_(0.9).add_(g.add(w, alpha=1e-4).mul_(local * 0.1))
        w.sub_(buffer)


@torch.no_grad()
def lamb_loop(params: list[Tensor], first: list[Tensor], second: list[Tensor]) -> None:
    whole = torch.stack([w.grad.norm() for w in params if w.grad is not None]).norm().clamp(min=1.0)
    for w, m, v in zip(params, first, second, strict=True):
        assert w.grad is not None
        g = w.grad / whole
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        u = (m / 0.9).div_((v.sqrt() / 0.99).add_(1e-6)).add_(w, alpha=0.01)
        weight, length = w.norm(), u.norm()
        w.sub_(u.mul_(torch.where((weight > 0) & (length > 0), weight / length, 1.0) * 1e-3))


@torch.no_grad()
def ema_loop(average: list[Tensor], params: list[Tensor]) -> None:
    for mean, parameter in zip(average, params, strict=True):
        mean.mul_(0.999).add_(parameter, alpha=0.001)


@torch.no_grad()
def lars_passes(sgd: Callable[[], object], params: list[Tensor], grads: list[Tensor]) -> None:
    """Two norms of each tensor, then the update."""
    torch._foreach_norm(params)
    torch._foreach_norm(grads)
    sgd()


@torch.no_grad()
def lamb_passes(adamw: Callable[[], object], params: list[Tensor], grads: list[Tensor], room: list[Tensor]) -> None:
    """The norm of all gradients, Adam's direction, two norms of each tensor, then the step."""
    torch._foreach_norm(grads)
    adamw()
    torch._foreach_norm(params)
    torch._foreach_norm(room)
    torch._foreach_add_(room, params)


def compiled() -> ctypes.CDLL | None:
    """Compile bench/optim.c; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/optim.so"
        options = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, Path(__file__).with_suffix(".c"), "-o", target], check=True)
        return ctypes.CDLL(target)


def in_c(function: Callable[..., object], *lists: list[Tensor], room: Tensor | None = None) -> Callable[[], object]:
    """Return a call of a C function. It gets the addresses of all tensors anew, as an optimizer would."""

    def call() -> object:
        addresses = [(ctypes.c_void_p * len(one))(*[tensor.data_ptr() for tensor in one]) for one in lists]
        sizes = (ctypes.c_long * len(lists[0]))(*[tensor.numel() for tensor in lists[0]])
        rest = () if room is None else (ctypes.c_void_p(room.data_ptr()),)
        return function(len(lists[0]), *addresses, sizes, *rest)

    return call


def milliseconds(calls: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """The best of some rounds each, taken in turn, so that a busy machine hits all alike."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            best[name] = min(best[name], (time.process_time() - begin) * 1000)
    return best


def report(title: str, shapes: list[Shape]) -> list[Ratio]:
    params = [nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes]
    for parameter in params:
        parameter.grad = torch.randn_like(parameter) * 0.01
    plain: list[Tensor] = [*params]
    zeros = [[torch.zeros_like(p) for p in params] for _ in range(4)]
    grads = [p.grad for p in params if p.grad is not None]
    average = Average(plain)
    sgd = torch.optim.SGD(params, 0.1, momentum=0.9, weight_decay=1e-4, fused=True).step
    adamw = torch.optim.AdamW(params, 1e-3, fused=True).step
    library = compiled()
    c_calls: dict[str, Callable[[], object]] = {} if library is None else {
        "LARS, in C": in_c(library.lars, plain, grads, zeros[0]),
        "LAMB, in C": in_c(library.lamb, plain, grads, zeros[1], zeros[2], room=torch.empty(1 << 18)),
        "EMA, in C": in_c(library.ema, zeros[3], plain),
    }  # fmt: skip
    times = milliseconds(
        c_calls
        | {
            "SGD, fused": sgd,
            "LARS": LARS(params, 0.1, momentum=0.9, weight_decay=1e-4).step,
            "LARS, loop": lambda: lars_loop(plain, zeros[0]),
            "LARS, passes": lambda: lars_passes(sgd, plain, grads),
            "AdamW, fused": adamw,
            "LAMB": LAMB(params).step,
            "LAMB, loop": lambda: lamb_loop(plain, zeros[1], zeros[2]),
            "LAMB, passes": lambda: lamb_passes(adamw, plain, grads, zeros[3]),
            "EMA": lambda: average.update(plain, 0.001),
            "EMA, loop": lambda: ema_loop(zeros[3], plain),
            "EMA, passes": lambda: torch._foreach_add_(zeros[2], plain),
        }
    )
    print(f"{title}: {len(shapes)} tensors, {sum(p.numel() for p in params) / 1e6:.1f} M numbers")
    for name, value in times.items():
        print(f"  {name:<14}{value:9.2f} ms")
    found = []
    for name, base, goal in (("LARS", "SGD, fused", 1.8), ("LAMB", "AdamW, fused", 1.6), ("EMA", "EMA, loop", 0.5)):
        ways = {"passes alone": times[f"{name}, passes"], "in C": times.get(f"{name}, in C", 0.0)}
        note = ", ".join(f"{way} {took / times[base]:.2f}" for way, took in ways.items() if took)
        note += f", ÷ a loop {times[name] / times[f'{name}, loop']:.2f}" if name != "EMA" else ""
        of = "a loop" if name == "EMA" else f"fused {base.removesuffix(', fused')}"
        found.append(Ratio(f"optim: {name} ÷ {of}, {title}", times[name] / times[base], at_most=goal, note=note))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = report("ResNet-50", resnet50()) + report("ViT-S/16", small_vit())
    show(found + report("120 tensors of 64×64", [(64, 64)] * 120), args.json)


if __name__ == "__main__":
    main()
