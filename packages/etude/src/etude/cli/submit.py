"""Train CONFIG on a cluster. The job resumes its run in --folder each time it is started again.

  etude submit digits.yaml --slurm --folder runs/digits --nodes 2 --nproc 8 --time 4h --slurm-option partition=gpu
  etude submit digits.yaml --kubernetes --folder /runs/digits --image IMAGE --claim runs --nodes 2 | kubectl apply -f -

SLURM goes through submitit (pip install 'etude[slurm]'); --local runs the same job on this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from etude.cli.flags import add_config, add_no_code, positive, seconds
from etude.config import no_code
from etude.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "values to change for this run")
    add_no_code(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--slurm", dest="cluster", action="store_const", const="slurm", help="submit a SLURM job")
    where.add_argument(
        "--local", dest="cluster", action="store_const", const="local", help="run the same job on this machine"
    )
    where.add_argument(
        "--kubernetes", dest="cluster", action="store_const", const="kubernetes", help="print a manifest to apply"
    )
    parser.add_argument(
        "--folder", required=True, metavar="DIR", help="run folder that all machines can read and write"
    )
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="number of machines (default 1)")
    parser.add_argument("--nproc", type=positive, default=1, metavar="N", help="processes per machine (default 1)")
    parser.add_argument("--time", default="1h", metavar="4h", help="time limit of the job until it requeues (SLURM)")
    parser.add_argument(
        "--slurm-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="sbatch options: partition=gpu, qos=low",
    )
    parser.add_argument("--image", default="", help="container image (Kubernetes)")
    parser.add_argument(
        "--claim", default="", metavar="NAME", help="persistent volume claim that holds --folder (Kubernetes)"
    )
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs per machine")
    parser.add_argument("--name", default="etude", help="the job's name (Kubernetes)")


def run(args: argparse.Namespace) -> int:
    words = ["train", args.config, *args.overrides, "--folder", args.folder, "--resume", *no_code.words()]
    if args.cluster == "kubernetes":
        _print_manifests(words, args)
        return 0
    from etude.api import load_plan, require_sound
    from etude.dist.jobs.submit import submit

    plan, tree = load_plan(args.config, args.overrides)
    require_sound(plan, tree)
    options: dict[str, Any] = {"gpus_per_node": args.gpus} if args.gpus else {}
    given = dict(_pair(text) for text in args.slurm_option)
    if args.cluster == "slurm":
        options |= {f"slurm_{key}": value for key, value in given.items()}
    minutes = max(1, int(seconds("--time", args.time) / 60))
    if args.nproc > 1 or args.nodes > 1:
        words += ["--nproc", str(args.nproc)]
    job = submit(words, Path(args.folder), cluster=args.cluster, nodes=args.nodes, minutes=minutes, options=options)
    print(f"job {job}; its output is in {Path(args.folder) / 'jobs'}")
    return 0


def _print_manifests(words: list[str], args: argparse.Namespace) -> None:
    from etude.config.dump import to_yaml
    from etude.dist.jobs.kubernetes import manifests

    if not args.image:
        raise UserError("--kubernetes needs --image: what the containers are made of, with etude and your code in it")
    made = manifests(
        words, name=args.name, image=args.image, folder=args.folder, nodes=args.nodes, nproc=args.nproc,
        gpus=args.gpus, claim=args.claim,
    )  # fmt: skip
    print("---\n".join(map(to_yaml, made)), end="")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--slurm-option {text}: write KEY=VALUE, as in partition=gpu")
    return key, value
