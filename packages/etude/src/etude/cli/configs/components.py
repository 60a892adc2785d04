"""List every registered component: its name, parameters, origin and a summary. Imports nothing. Any dotted path
(my_pkg.nets.Tiny) works wherever a name does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from etude.cli.flags import add_no_code

if TYPE_CHECKING:
    from etude.inspection.index import Entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", nargs="?", help="models, losses, optimizers, schedules, hooks, …")
    parser.add_argument("--config", metavar="CONFIG", help="include what this config's imports and project add")
    parser.add_argument("--dialect", default="", metavar="D", help="list what configs of this dialect can name")
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    from etude import dialects, registry
    from etude.inspection.index import index_of, tables_asked

    dialect, tree = dialects.listed(args.dialect or "native"), None
    if args.config:
        dialect, tree = dialects.read(args.config, dialect=args.dialect, options={"sketch": True})
    listed = dialect.listing(tree)
    if listed:
        return _listed(listed, dialect.name, args.kind)
    registry.load_builtins()
    index = index_of(tree)
    tables = tables_asked(args.kind)
    show = _table if sys.stdout.isatty() else _lines
    for word, table in tables.items():
        entries = index.entries(table)
        if entries or args.kind:
            show(word, entries)
    return 0


def _listed(listed: Mapping[str, Mapping[str, str]], dialect: str, kind: str | None) -> int:
    from etude.errors import UserError
    from etude.errors.spelling import suggest

    tables = {word: entries for word, entries in listed.items() if kind is None or _bare(word) == _bare(kind)}
    if not tables:
        raise UserError(f"{dialect} has no table {kind!r}; {suggest(str(kind), list(listed))}")
    for word, entries in tables.items():
        if sys.stdout.isatty():
            print(f"{word} ({len(entries)})")
        width = max(map(len, entries), default=0)
        for name, line in entries.items():
            print(f"  {name:<{width}}  {line}" if sys.stdout.isatty() else "\t".join((word, name, line)))
    return 0


def _bare(word: str) -> str:
    """Return ``hook`` for ``HookRegistry``, ``HOOKS`` and ``hook``."""
    return word.lower().removesuffix("registry").replace("_", "").removesuffix("s")


def _lines(word: str, entries: list[Entry]) -> None:
    """Print one entry per line, fields separated by tabs, for pipes."""
    for entry in entries:
        signature, doc = _described(entry)
        print("\t".join((word, f"{entry.name}{signature}", entry.origin, doc)))


def _table(word: str, entries: list[Entry]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{word} ({len(entries)})", title_justify="left", show_header=False, box=None)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for entry in entries:
        signature, doc = _described(entry)
        table.add_row(entry.name, Text.assemble(doc or "–", "\n", (signature, "cyan"), "  ", (entry.origin, "dim")))
    Console().print(table)


def _described(entry: Entry) -> tuple[str, str]:
    if entry.signature is None:
        return "(…)", ""
    # A docstring's markup is for the pages of the reference: ``every`` and :class:`~etude.Hook` are plain names here.
    return str(entry.signature), re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"\1", entry.signature.doc).replace("``", "`")
