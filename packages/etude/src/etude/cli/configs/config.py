"""Print a config with its bases merged, overrides applied and references resolved. With a KEY (optim.lr,
hooks.0.type): its value, the file and line it came from, and what it overrode. Secrets are hidden.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from etude.cli.flags import add_dialect, add_no_code
from etude.errors import ConfigError
from etude.errors.spelling import suggest

if TYPE_CHECKING:
    from etude.config.tree import Path, Tree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML, TOML, JSON or Python")
    parser.add_argument(
        "words", metavar="KEY", nargs="*", default=[], help="a key to explain, and key=value to change a value"
    )
    parser.add_argument(
        "--diff", metavar="OTHER", action=_Other, help="compare with another config, with the lines of both"
    )
    add_dialect(parser)
    add_no_code(parser)
    parser.set_defaults(overrides=[], swapped=False)


class _Other(argparse.Action):
    """Lets ``--diff A B`` mean the same as ``A --diff B``: from the first file to the second."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        namespace.diff, namespace.swapped = values, getattr(namespace, "config", None) is None


def run(args: argparse.Namespace) -> int:
    from etude import dialects
    from etude.config.dump import snapshot

    changes = [word for word in args.words if "=" in word or word[:1] in "+~"]
    keys = [word for word in args.words if word not in changes]
    _, tree = dialects.read(args.config, [*changes, *args.overrides], dialect=args.dialect)
    if args.diff:
        _, other = dialects.read(args.diff, dialect=args.dialect)
        first, second = (other, tree) if args.swapped else (tree, other)
        print("\n".join(differences(first, second)) or "the two configs are equal")
        return 0
    if not keys:
        print(snapshot(tree), end="")
    for key in keys:
        print("\n".join(explain(tree, key)))
    return 0


def differences(one: Tree, other: Tree) -> list[str]:
    """Return a line for every value that only one of the trees has, or that differs, with both places."""
    first, second = _leaves(one), _leaves(other)
    lines = []
    for path in [*first, *(path for path in second if path not in first)]:
        if first.get(path, _ABSENT) != second.get(path, _ABSENT):
            lines.append(".".join(map(str, path)))
            lines += [
                f"  {mark} {side[path]!r}  ({tree.place(*path)})"
                for mark, side, tree in (("-", first, one), ("+", second, other))
                if path in side
            ]
    return lines


_ABSENT = object()


def _leaves(tree: Tree) -> dict[Path, Any]:
    """Return every single value by its path, with secrets hidden."""
    from etude.config import dump
    from etude.config.formats.from_yaml import parse_value
    from etude.config.tree import Tree

    public = Tree(parse_value(dump.snapshot(tree), "snapshot") or {})
    return {path: value for path, value in public.walk() if not isinstance(value, dict | list) or not value}


def explain(tree: Tree, key: str) -> list[str]:
    """Return the value of ``key``, its place, and every earlier value, newest first."""
    path: Path = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    missing = object()
    value = tree.get(*path, default=missing)
    past = list(tree.history.get(path, ()))
    if value is missing:
        if not past:
            known = [".".join(map(str, known)) for known, _ in tree.walk()]
            raise ConfigError(f"the config has no key {key}", hint=suggest(key, known, most=6))
        return [f"{key} is not set", *_before(path, past)]
    text = shown(tree, path)
    lines = [f"{key}:", *(f"  {line}" for line in text.splitlines())] if "\n" in text else [f"{key}: {text}"]
    return [*lines, f"  from {tree.place(*path) or 'nowhere: it is a default'}", *_before(path, past[:-1])]


def shown(tree: Tree, path: Path) -> str:
    """Return a value as YAML, with secrets hidden."""
    from etude.config import dump
    from etude.config.formats.from_yaml import parse_value

    public: Any = parse_value(dump.snapshot(tree), "snapshot")
    for part in path:
        public = public[part]
    return dump.to_yaml(public).removesuffix("...\n").strip()


def _before(path: Path, past: list[tuple[Any, Any]]) -> list[str]:
    from etude.config import dump

    lines = []
    for place, value in reversed(past):
        hidden = dump.redact({str(path[-1]): value})[str(path[-1])]
        lines.append(f"  before: {hidden!r} from {place}")
    return lines
