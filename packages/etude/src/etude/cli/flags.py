"""Adds the flags that several verbs share, and parses their values."""

from __future__ import annotations

import argparse
from functools import partial

from etude.errors import ConfigError, UserError, printable
from etude.units import parse


def add_config(parser: argparse.ArgumentParser, values: str = "values to change") -> None:
    """Add CONFIG and ``key=value``; ``values`` says what the latter are for."""
    parser.add_argument("config", metavar="CONFIG", help="YAML, TOML, JSON or Python")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help=values)


def add_cfg_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cfg-options", nargs="+", default=[], metavar="k=v", help="the same as key=value")


def add_dialect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dialect", default="", metavar="D", help="dialect of the config (default: detected)")


def add_no_code(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--no-python-config",
        action="store_true",
        help="refuse what runs code of yours: Python configs, imports, dotted paths to your modules",
    )


def add_best(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--best", nargs="?", const=True, default=False, metavar="METRIC", help="use the best checkpoint, not the newest"
    )


def count(text: str, *, least: int = 0) -> int:
    """Parse a whole number, for argparse."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


#: Parses a whole number of at least one.
positive = partial(count, least=1)


def seconds(flag: str, text: str) -> float:
    """Parse a time of the command line (``90s``, ``20min``, ``3h``) into seconds."""
    try:
        amount = parse(text, default="second", at=flag)
    except ConfigError:
        amount = None
    if amount is None or amount.unit != "second":
        raise UserError(f"{flag} takes a time, not {printable(text)!r}; write 90s, 20min or 3h")
    return amount.value
