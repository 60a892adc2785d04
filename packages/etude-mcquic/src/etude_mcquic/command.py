"""``python -m etude_mcquic.command train [-D] [-q] [-r FILE] [CONFIG]``: McQuic's command line, on Étude."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

Train = Callable[[bool, bool, str | None, str | None], int]

NEITHER = "neither a config nor a file to resume from is given"


def level(debug: bool, quiet: bool) -> int:
    """Return the log level; quiet wins over debug."""
    if quiet:
        return logging.CRITICAL
    return logging.DEBUG if debug else logging.INFO


def main(argv: Sequence[str] | None = None, *, train: Train | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mcquic", description="McQuic's command line, served by Étude.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    training = commands.add_parser("train", help="train a model")
    training.add_argument("-D", "--debug", action="store_true", help="print all registries and every message")
    training.add_argument("-q", "--quiet", action="store_true", help="print nothing but what is critical")
    training.add_argument("-r", "--resume", metavar="FILE", help="resume from this checkpoint")
    training.add_argument("config", nargs="?", metavar="CONFIG")
    try:
        args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
        for path, what in ((args.config, "'[CONFIG]'"), (args.resume, "'-r' / '--resume'")):
            _require_file(training, path, what)
        if args.config is None and args.resume is None:
            training.error(NEITHER)
    except SystemExit as stop:
        return int(stop.code or 0)
    return (train or _train)(args.debug, args.quiet, args.resume, args.config)


def train(debug: bool, quiet: bool, resume: str | Path | None, configPath: str | Path | None) -> int:
    """Train as ``mcquic.train.cli.main`` does; a run that fails or is stopped ends the script with its exit code."""
    if resume is None and configPath is None:
        raise ValueError(NEITHER)
    code = _train(debug, quiet, str(resume) if resume else None, str(configPath) if configPath else None)
    if code:
        raise SystemExit(code)
    return 0


def entryPoint() -> NoReturn:
    """Train with the words of the command line, as ``mcquic.train.cli.entryPoint`` does."""
    raise SystemExit(main(["train", *sys.argv[1:]]))


def _require_file(parser: argparse.ArgumentParser, path: str | None, what: str) -> None:
    if path is None:
        return
    if not Path(path).exists():
        parser.error(f"Invalid value for {what}: File '{path}' does not exist.")
    if Path(path).is_dir():
        parser.error(f"Invalid value for {what}: File '{path}' is a directory.")


def _train(debug: bool, quiet: bool, resume: str | None, config: str | None) -> int:
    """Call ``etude train``, with the config in the checkpoint if none is given."""
    from etude.cli import main as etude
    from etude.errors import EtudeError

    words = ["train", "--dialect", "mcquic", *(["-D"] if debug else []), *(["-q"] if quiet else [])]
    if resume is not None:
        words += ["--resume", str(Path(resume).absolute())]
    if config is None:
        try:
            config = str(_stored_config(str(resume)))
        except EtudeError as error:
            print(f"mcquic: error: {error}", file=sys.stderr)
            return error.exit_code
    return etude([*words, str(Path(config).absolute())])


def _stored_config(resume: str) -> Path:
    """Write the config inside a checkpoint to a file beside it. It is read as data; nothing is imported."""
    import yaml

    from etude.checkpoint.storage.disk import write_atomically
    from etude_mcquic.files import Saver

    target = Path(resume).with_suffix(".config.yaml")
    text = yaml.safe_dump(Saver.load(resume)["config"], sort_keys=False).encode()
    write_atomically(target, lambda file: file.write(text))
    return target


if __name__ == "__main__":
    sys.exit(main())
