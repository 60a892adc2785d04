"""Print the versions of Python, torch and other packages, the machine and the git state."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


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
                print(f"  {key:<14} {_shown(item)}")
        else:
            print(f"{name:<16} {_shown(value)}")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return "none" if value in (None, "") else str(value)


def _packages() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("numpy", "pyyaml", "rich", "safetensors", "omegaconf", "tensorboard", "torchmetrics", "pydantic"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
