"""Rewrite a config of mmcv 1.x, MMEngine, LiBai, detectron2 or McQuic as a native one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.cli.flags import add_dialect
from etude.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="OLD", help="the config to rewrite")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change")
    parser.add_argument("-o", "--output", metavar="NEW", help="file to write (default: standard output)")
    parser.add_argument("--force", action="store_true", help="overwrite NEW if it exists")
    add_dialect(parser)


def run(args: argparse.Namespace) -> int:
    from etude import dialects

    dialect, tree = dialects.read(args.config, args.overrides, dialect=args.dialect)
    config, notes = dialect.convert(tree)
    if args.output:
        config["imports"] = reachable(config.get("imports", []), list(tree.files), args.output)
    text = written(config, notes, args.config)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if not args.output:
        print(text, end="")
        return 0
    if os.path.exists(args.output) and not args.force:
        raise UserError(f"{args.output} is there already; --force replaces it")
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{args.output} cannot be written: {error.strerror}") from error
    print(f"written to {args.output}")
    return 0


def reachable(imports: Sequence[str], files: Sequence[str], output: str) -> list[str]:
    """Return ``imports`` with the folders of the old config's modules, if the new config is elsewhere."""
    from etude.config.imports import locate
    from etude.plan import Place

    here, needed = os.path.dirname(os.path.abspath(output)), []
    folders = list(dict.fromkeys([here, *(os.path.dirname(os.path.abspath(file)) for file in files), os.getcwd()]))
    for module in [name for name in imports if not name.startswith("etude.")]:
        for folder in folders:
            found = locate(module, Place(""), folder)
            if found is not None and found.file and found.file.startswith(folder + os.sep):
                needed.append(f"{os.path.relpath(folder, here)}/")
                break
    own = [name for name in imports if name.startswith("etude.")]
    return [*own, *dict.fromkeys(way for way in needed if way != "./"), *(name for name in imports if name not in own)]


def written(config: dict[str, Any], notes: list[str], origin: str) -> str:
    """Return the config as YAML, with the notes as comments above it."""
    import yaml

    lines = [f"# converted from {os.path.basename(origin)} by etude convert", *(f"# {note}" for note in notes)]
    return "\n".join(lines) + "\n" + yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=120)
