"""Print the JSON Schema (draft 2020-12) of the config: sections, components and their parameters. An editor then
completes and checks a YAML config as you write it.

etude schema > etude.schema.json, and as first line of a config:
  # yaml-language-server: $schema=etude.schema.json
"""

from __future__ import annotations

import argparse

from etude.cli.flags import add_no_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print a reference to read instead")
    parser.add_argument("--dialect", default="", metavar="D", help="schema of this dialect (default: that of --config)")
    parser.add_argument("--config", metavar="CONFIG", help="include what this config's imports add")
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    import json

    from etude import dialects

    dialect, tree = dialects.listed(args.dialect or "native"), None
    if args.config:
        dialect, tree = dialects.read(args.config, dialect=args.dialect, options={"sketch": True})
    print(dialect.reference(tree) if args.markdown else json.dumps(dialect.schema(tree), indent=2, ensure_ascii=False))
    return 0
