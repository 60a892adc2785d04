"""List the files that CONFIG names by an address, such as weights to begin with, and download those that are not here:

  etude fetch fcn.py                    list them with their sizes, and download them
  etude fetch fcn.py --list             only list them, with the place where each belongs
  etude fetch https://example.org/x.pth  one file by its address

Names of model zoos (torchvision://resnet50, open-mmlab://…) are looked up in the tables of the systems that have them.
A download that broke off goes on where it ended. Where there is no network, the list says what to bring.

exit code: 0 if all files are here, 5 if one is not
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.cli.flags import add_cfg_options, add_dialect, add_no_code
from etude.errors import DataError, UserError, printable

if TYPE_CHECKING:
    from etude.checkpoint.fetch import Wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a config, or the address of a file")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change in the config")
    parser.add_argument("--list", action="store_true", help="download nothing")
    add_cfg_options(parser)
    add_dialect(parser)
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    """Return 0 if all files are here at the end."""
    files = _wanted(args)
    if not files:
        print(f"{printable(args.config)} names no file by an address")
        return 0
    states = [_tell(file) for file in files]
    if args.list or "unknown" in states:  # an error has been told; whoever sees the list may bring all of it
        return 5 if set(states) != {"here"} else 0
    return max([_download(file) for file, state in zip(files, states, strict=True) if state != "here"], default=0)


def _wanted(args: argparse.Namespace) -> list[Wanted]:
    from etude import dialects
    from etude.checkpoint.fetch import of_url, wanted

    if args.config.startswith(("http://", "https://")):
        return [of_url(args.config)]
    if "://" in args.config:
        raise UserError(f"{printable(args.config)}: files are fetched by http and https")
    options = {"no_python_config": args.no_python_config, "sketch": True}
    overrides = [*args.overrides, *args.cfg_options]
    found, tree = dialects.read(args.config, overrides, dialect=args.dialect, options=options)
    return wanted(tree.values, found.zoo)


def _tell(file: Wanted) -> str:
    """Print what a file is, and return whether it is here, missing, or unknown to everybody who was asked."""
    from etude.checkpoint.fetch import size_of
    from etude.units import human

    if file.is_here:
        print(printable(f"here     {human(file.path.stat().st_size):>9}  {file.name}  {file.path}"))
        return "here"
    size, state = "?", "missing" if file.url else "unknown"
    if file.url:
        try:
            found = size_of(file)
            size = human(found) if found is not None else "?"
        except DataError as error:
            state = "unknown"
            print(f"etude: error: {error}", file=sys.stderr)
    shown = file.url or "no table of the systems that are installed has its address"
    print(printable(f"missing  {size:>9}  {file.name}"))
    print(printable(f"         {'':>9}  {'' if file.url == file.name else f'{shown}  '}-> {file.path}"))
    return state


def _download(file: Wanted) -> int:
    """Download one file; return the exit code."""
    from etude.checkpoint.fetch import download
    from etude.units import human

    def say(done: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{human(done):>9}  {printable(file.name)}", end="", file=sys.stderr)

    try:
        digest = download(file, say)
    except DataError as error:
        print(f"etude: error: {error}", file=sys.stderr)
        return error.exit_code
    print(printable(f"fetched  {human(file.path.stat().st_size):>9}  {file.path}  sha256 {digest}"))
    return 0
