"""LiBai's models split over processes against one process: losses, whole weights, and what each rank holds.

    python bench/parallel_libai.py [--models gpt,bert,t5,vit] [--layouts 2,1,1 …] [--steps 20] [--json FILE]

A layout is data,tensor,pipeline. SGD with dropout 0.1 and two micro-batches, so that a wrong factor of the gradients
shows. Rows with data-parallel ranks are repeated with ZeRO 1 to 3 (3 not together with stages). The models are those of
LiBai 0.1.1, which ``tests/projects/fetch.py`` unpacks; the script is that of ``tests/projects/test_libai_parallel.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from _common import Ratio, report

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.projects import fetch

SCRIPT = str(ROOT / "tests" / "projects" / "libai_models.py")
LAYOUTS = ("2,1,1", "1,2,1", "1,1,2", "2,2,1", "1,2,2")


def trained(model: str, layout: str, out: Path, *options: str) -> dict:
    sizes = [int(size) for size in layout.split(",")]
    paths = (fetch.fetch("libai-0.1.1"), fetch.fetch("libai-needs"))
    command = [sys.executable, "-m", "etude", "exec", "--nproc", str(sizes[0] * sizes[1] * sizes[2]), SCRIPT, model]
    subprocess.run(
        [*command, *map(str, sizes), str(out), "micro=2", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, paths))},
        check=True, capture_output=True,
    )  # fmt: skip
    return torch.load(out)


def rows(models: list[str], layouts: list[str], steps: str) -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as made:
        for model in models:
            one = trained(model, "1,1,1", Path(made, "one.pt"), "dropout=0.1", steps)
            for layout in layouts:
                data, tensor, pipeline = map(int, layout.split(","))
                for zero in range(4 if data > 1 and pipeline == 1 else 3 if data > 1 else 1):
                    if layout.endswith("1,1") and not zero:
                        continue  # this is DDP with whole tensors
                    many = trained(model, layout, Path(made, "many.pt"), "dropout=0.1", steps, f"zero={zero}")
                    pairs = zip(one["losses"], many["losses"], strict=True)
                    loss = max(abs(first[key] - second[key]) for first, second in pairs for key in first)
                    weights = max(
                        (many["state"][key] - value).abs().max().item() for key, value in one["state"].items()
                    )
                    part = one["whole"] / (tensor * pipeline * (data if zero else 1))
                    name = f"{model} ({layout})" + (f" ZeRO {zero}" if zero else "")
                    note = f"losses {loss:.1e}, weights {weights:.1e}, held {max(many['held']) / part:.2f} of the share"
                    yield Ratio(name, max(loss, weights) / 1e-5, at_most=1.0, note=note)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt,bert,t5,vit")
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    report(list(rows(given.models.split(","), given.layouts, f"steps={given.steps}")), given.json)
