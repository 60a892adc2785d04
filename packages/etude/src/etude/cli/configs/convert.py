"""Draft a native config from one of another system. Model, data, optimizer, common schedules, length, validation,
checkpoints, log and seed become native keys; your classes keep their names. Everything else is listed in comments, with
file and line. The old config runs as it is, with `etude train`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.cli.flags import add_dialect, add_no_code
from etude.errors import UserError
from etude.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="OLD", help="the config to rewrite")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change")
    parser.add_argument("-o", "--output", metavar="NEW", help="file to write (default: standard output)")
    parser.add_argument("--force", action="store_true", help="overwrite NEW if it exists")
    add_dialect(parser)
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    from etude import dialects

    dialect, tree = dialects.read(args.config, args.overrides, dialect=args.dialect)
    dialect.lower(tree)  # a config with mistakes is reported, not drafted
    draft = dialect.convert(tree)
    left = list(draft.left())
    text = written(draft.config, draft.notes, left, f"{os.path.basename(args.config)} ({dialect.name})")
    if not args.output:
        print(text, end="")
        return 0
    if os.path.exists(args.output) and not args.force:
        raise UserError(f"{args.output} is there already; --force replaces it")
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{args.output} cannot be written: {error.strerror}") from error
    todo = f"; its first lines list {counted(len(left), 'value')} without a direct form" if left else ""
    print(f"written to {args.output}{todo}")
    return 0


def written(config: dict[str, Any], notes: Sequence[str], left: Sequence[str], origin: str) -> str:
    """Return the config as YAML below comments: notes, and the values of the original that are not in it."""
    import yaml

    lines = [f"Drafted from {origin} by etude convert. `etude train` runs the original as it is."]
    for title, points in (("Notes:", notes), ("Not in this draft:", left)):
        lines += ["", title, *(f"- {point}" for point in dict.fromkeys(points))] if points else []
    head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return head + yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=120)
