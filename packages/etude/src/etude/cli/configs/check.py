"""Find every mistake in one or several configs: unknown keys and names, parameters that a component does not
take, wrong types, contradictions. Prints one line per mistake, with file and line number. Builds nothing, and
runs no code except that of a Python config. Data and weights that are not here are a warning: they may be on
the machine that trains.

exit code: 0 if nothing is wrong (warnings may be printed), else 2
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from etude.cli.flags import add_cfg_options, add_dialect, add_no_code
from etude.config import no_code
from etude.errors import ConfigError, Finding, place_of, printable
from etude.fast_dataclass import replace
from etude.units import counted

if TYPE_CHECKING:
    from etude.inspection.user_code import Way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("configs", metavar="CONFIG", nargs="+", help="config files, and key=value to change a value")
    add_cfg_options(parser)
    add_dialect(parser)
    add_no_code(parser)
    parser.set_defaults(overrides=[])


def run(args: argparse.Namespace) -> int:
    """Return 0 if all is well, 2 if a finding is more than a warning."""
    import os

    from etude.config.files import ENDINGS

    changes = [word for word in args.configs if ("=" in word or word[:1] in "+~") and not os.path.exists(word)]
    configs = [word for word in args.configs if word not in changes]
    for word in configs[1:]:
        if not os.path.exists(word) and not word.endswith(ENDINGS):
            raise ConfigError(f"there is no file {word}", hint=f"to change a value, write {word}=VALUE")
    if not configs:
        raise ConfigError("no config is named", hint="write etude check CONFIG [key=value …]")
    changes += [*args.overrides, *args.cfg_options]
    with _uncollected():
        return max(report(config, changes, dialect=args.dialect) for config in configs)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn garbage collection off: parsed sources live until the end, and scanning them takes half of a check."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # or the interpreter looks through all of it when it ends
        if before:
            gc.enable()


def report(config: str, overrides: Sequence[str], *, dialect: str = "") -> int:
    """Print what is wrong with one config, and whether that is much."""
    try:
        findings, ran, ways = inspect(config, overrides, dialect=dialect)
    except ConfigError as error:
        findings, ran, ways = list(error.findings), [], []
    if ran:
        them, it = ("this Python file", "it") if len(ran) == 1 else ("these Python files", "them")
        print(f"{', '.join(ran)}: Étude runs {them} to read {it} (--no-python-config forbids that)")
    # A config that is a program may run anything anyway.
    for way in () if ran or no_code.is_forbidden() else ways:
        if way.own:
            print(printable(f"{way.at}: {way.what}: a run of this config runs that code"))
    for finding in sorted(findings, key=place_of):
        print(printable(str(finding)))
    errors = sum(finding.severity == "error" for finding in findings)
    counts = {"mistake": errors, "warning": len(findings) - errors}
    found = [counted(number, word) for word, number in counts.items() if number]
    print(f"{config}: {', '.join(found) or 'no mistakes found'}")
    return 2 if errors else 0


def inspect(
    config: str, overrides: Sequence[str] = (), *, dialect: str = ""
) -> tuple[list[Finding], list[str], list[Way]]:
    """Return everything that is wrong with a config, the Python files that were run to find it, and what else a run
    of it would run."""
    from etude import dialects, registry
    from etude.inspection.user_code import refusals, ways_in

    registry.load_builtins()
    if config.endswith(".py"):
        no_code.refuse_program(config)
        from etude import compat

        compat.install()
    found, tree = dialects.read(config, overrides, dialect=dialect, options={"sketch": True})
    from etude.config.files import display

    ran = [display(file) for file in tree.files if file.endswith(".py") and not _comes_along(file)]
    findings = found.check(tree)
    ways: list[Way] = []
    with suppress(ConfigError):  # what cannot be lowered runs nothing
        plan = replace(found.lower(tree), dialect=found.name)
        ways = ways_in(plan, tree)
    if no_code.is_forbidden():
        findings = [*findings, *refusals(ways)]
    return sorted(findings, key=place_of), ran, ways


def _comes_along(file: str) -> bool:
    """Return whether a config file is one of those that come with the engine."""
    import os

    from etude.errors.own_code import own_folders

    return os.path.abspath(file).startswith(own_folders())
