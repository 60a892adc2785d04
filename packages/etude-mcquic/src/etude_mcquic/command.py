"""McQuic's command line, on Étude. Each command has -h.

mcquic [-qp N | --local FILE] IN [OUT]     compress a picture to a .mcq file, or restore one
mcquic train [-r FILE] [CONFIG]            train a model
mcquic validate [-e DIR] PATH IMAGES [OUT] measure a model, and export it for --local
mcquic dataset IMAGES OUT                  pack pictures into a training set
"""

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
    """Do what the words of McQuic's command line say; without a command, compress or restore a file."""
    given = sys.argv[1:] if argv is None else list(argv)
    first = next((word for word in given if not word.startswith("-")), "")
    command = first if first in _COMMANDS else "" if given and given[0] not in ("-h", "--help") else "-h"
    parser = argparse.ArgumentParser(
        prog=f"mcquic {command}".strip(" -h"), description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    try:
        if command == "-h":
            parser.print_help()
            return 0 if given else 2
        parser.add_argument("-D", "--debug", action="store_true", help="print all registries and every message")
        parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but what is critical")
        {"train": _add_train, "validate": _add_validate, "dataset": _add_dataset, "": _add_coding}[command](parser)
        args = parser.parse_args([word for word in given if word != command or not command])
        if command == "train":
            for path, what in ((args.config, "'[CONFIG]'"), (args.resume, "'-r' / '--resume'")):
                _require_file(parser, path, what)
            if args.config is None and args.resume is None:
                parser.error(NEITHER)
    except SystemExit as stop:
        return int(stop.code or 0)
    if command == "train":
        return (train or _train)(args.debug, args.quiet, args.resume, args.config)
    return _tell(args, {"validate": _validate, "dataset": _dataset, "": _code}[command])


_COMMANDS = ("train", "validate", "dataset")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--resume", metavar="FILE", help="resume from this checkpoint")
    parser.add_argument("config", nargs="?", metavar="CONFIG")


def _add_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-e", "--export", type=Path, metavar="DIR", help="write the model for --local into this folder")
    parser.add_argument("path", type=Path, metavar="PATH", help="a checkpoint, or an exported model")
    parser.add_argument("images", type=Path, metavar="IMAGES", help="a folder of pictures")
    parser.add_argument("output", type=Path, metavar="OUTPUT", nargs="?", help="a folder for the restored pictures")


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", type=Path, metavar="IMAGES", help="a folder of pictures, also in folders below it")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="the folder of the training set (LMDB)")


def _add_coding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-qp", type=int, choices=range(14), default=2, metavar="0..13", help="quality (default 2)")
    parser.add_argument("--local", type=Path, metavar="FILE", help="a model on this machine, in place of -qp")
    parser.add_argument("--disable-gpu", action="store_true", help="ignored: pictures are coded on the CPU")
    parser.add_argument("--mse", action="store_true", help="the published model for PSNR")
    parser.add_argument("--crop", action="store_true", help="crop the picture to a multiple of 128 pixels")
    parser.add_argument("input", type=Path, metavar="IN", help="a picture to compress, or a .mcq file to restore")
    parser.add_argument("output", type=Path, metavar="OUT", nargs="?", help="a file or a folder (default: only print)")


def _tell(args: argparse.Namespace, work: Callable[[argparse.Namespace], list[str]]) -> int:
    """Print what the work says, or what is wrong."""
    from etude.errors import EtudeError, printable

    try:
        for path in (args.input,) if "input" in args else (args.images, getattr(args, "path", args.images)):
            if not path.exists():
                print(f"mcquic: error: there is no {printable(str(path))}", file=sys.stderr)
                return 2
        said = work(args)
    except EtudeError as error:
        print(f"mcquic: error: {error}", file=sys.stderr)
        return error.exit_code
    if not args.quiet:
        print("\n".join(said))
    return 0


def _code(args: argparse.Namespace) -> list[str]:
    from etude_mcquic.live.coding import run

    return run(args.input, args.output, qp=args.qp, local=args.local, mse=args.mse, crop=args.crop)


def _validate(args: argparse.Namespace) -> list[str]:
    from etude_mcquic.live.validating import run

    return run(args.path, args.images, args.output, args.export)


def _dataset(args: argparse.Namespace) -> list[str]:
    from etude_mcquic.live.data.training_set import pack

    return pack(args.images, args.output)


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
