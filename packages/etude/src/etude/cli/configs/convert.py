"""Rewrite a config of mmcv 1.x, MMEngine, LiBai, detectron2 or McQuic as a native one."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from etude.cli.flags import add_dialect
from etude.errors import UserError
from etude.errors.own_code import is_own
from etude.units import counted

#: Begins the paragraph of an adapter's docstring that says what to write in its place.
_WITHOUT = "To do without it, "


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
    notes += fitting_rules(config, args.output or os.path.join(os.path.dirname(args.config), "new.yaml"))
    text = written(config, notes, f"{os.path.basename(args.config)} ({dialect.name})")
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
    if notes:
        print(f"its first lines have {counted(len(notes), 'note')} on differences from {args.config}", file=sys.stderr)
    return 0


def reachable(imports: Sequence[str], files: Sequence[str], output: str) -> list[str]:
    """Return ``imports`` with the folders of the old config's modules, if the new config is elsewhere."""
    from etude.config.imports import locate
    from etude.plan import Place

    here, needed = os.path.dirname(os.path.abspath(output)), []
    folders = list(dict.fromkeys([here, *(os.path.dirname(os.path.abspath(file)) for file in files), os.getcwd()]))
    for module in [name for name in imports if not is_own(name)]:
        for folder in folders:
            found = locate(module, Place(""), folder)
            if found is not None and found.file and found.file.startswith(folder + os.sep):
                needed.append(f"{os.path.relpath(folder, here)}/")
                break
    own = [name for name in imports if is_own(name)]
    return [*own, *dict.fromkeys(way for way in needed if way != "./"), *(name for name in imports if name not in own)]


def fitting_rules(config: dict[str, Any], output: str) -> list[str]:
    """Leave out the rules of parameter groups that fit no parameter, which would be an error; return notes on it."""
    from etude.build import import_modules, make
    from etude.config.tree import Tree
    from etude.dialects.native.lower import lower
    from etude.optim.groups import fits, named_parameters

    rules = config["optim"].get("groups", [])
    if not rules:
        return []
    plan = lower(Tree(config, files={os.path.abspath(output): ""}))
    try:
        with redirect_stdout(sys.stderr):  # code of yours may print; the config goes to the standard output
            import_modules(plan)
            left = named_parameters(make(plan.model))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        return [f"a rule of `optim.groups` that fits no parameter is an error here; the model cannot be made: {reason}"]
    useless = []
    for number, rule in enumerate(plan.optimizers[""].groups):
        rest = [named for named in left if not fits(rule, named)]
        useless += [number] if len(rest) == len(left) else []
        left = rest
    config["optim"]["groups"] = [rule for number, rule in enumerate(rules) if number not in useless]
    names = [str(rules[number].get("match") or rules[number].get("kind")) for number in useless]
    return [f"left out of `optim.groups`, because no parameter is left for them: {', '.join(names)}"] if names else []


def adapters(config: dict[str, Any]) -> list[str]:
    """Return the adapters that a config names, each with how to do without it, as its docstring says."""
    from etude.registry import resolve

    found = []
    for name in dict.fromkeys(_names(config)):
        module, _, attribute = name.rpartition(".")
        document = (inspect.getdoc(resolve(f"{module}:{attribute}")) or "").replace("``", "`")
        ways = [part.partition(_WITHOUT)[2] for part in document.split("\n\n") if part.startswith(_WITHOUT)]
        found += [f"{attribute}: {way}" for way in ways]
    return found


def _names(value: Any) -> Iterator[str]:
    """Yield the components of Étude's dialects in a config."""
    if isinstance(value, dict):
        value = [item for key, item in value.items() if key != "imports"]
    if isinstance(value, list):
        for item in value:
            yield from _names(item)
    elif isinstance(value, str) and is_own(value) and not value.startswith("etude."):
        yield value


def written(config: dict[str, Any], notes: list[str], origin: str) -> str:
    """Return the config as YAML, below comments: the adapters that remain, and the notes."""
    import yaml

    lines = [f"Converted from {origin} by etude convert."]
    for title, points in (("Adapters that remain, and how to do without each:", adapters(config)), ("Notes:", notes)):
        lines += ["", title, *(line for point in points for line in _wrapped(point))] if points else []
    head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return head + yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=120)


def _wrapped(point: str) -> list[str]:
    words = " ".join(point.split())
    return textwrap.wrap(words, 98, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
