"""Start a config in the workers of Ray Train; nothing in the config changes.

    pip install 'ray[train]'
    python examples/launchers/ray_train.py examples/native/two_processes.yaml --workers 2 --folder runs/ray

Ray makes the processes and their group; Étude finds both and trains as under torchrun. Run the same command again and it
resumes: the folder must be one that all machines see. Ray starts failed workers again by ``FailureConfig``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def work(given: dict[str, Any]) -> None:
    """What every worker does."""
    import etude

    os.chdir(given["here"])
    etude.train(given["config"], given["overrides"], options=etude.Options(folder=Path(given["folder"]), resume=""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="one for each worker")
    parser.add_argument("--folder", required=True)
    args = parser.parse_args()
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    given = {"config": args.config, "overrides": args.overrides, "folder": args.folder, "here": os.getcwd()}
    TorchTrainer(
        work,
        train_loop_config=given,
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=args.gpus),
        torch_config=TorchConfig(backend="nccl" if args.gpus else "gloo"),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()


if __name__ == "__main__":
    main()
