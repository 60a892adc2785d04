"""``etude env``: versions and machine, for a bug report."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "env",
        help="print versions and machine, for bug reports",
        description="Print the versions of Python, torch and other packages, the machine and the git state.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from etude.session.folder import environment

    facts = environment() | {"packages": _packages()}
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, item in value.items():
                print(f"  {key:<14} {item}")
        else:
            print(f"{name:<16} {value}")
    return 0


def _packages() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("numpy", "pyyaml", "rich", "safetensors", "omegaconf", "tensorboard", "torchmetrics", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
