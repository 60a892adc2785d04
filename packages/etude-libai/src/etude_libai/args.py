"""``default_argument_parser`` of LiBai and of detectron2, for ``tools/train_net.py``."""

from __future__ import annotations

import argparse
import os
import sys


def default_argument_parser(epilog: str | None = None) -> argparse.ArgumentParser:
    """Return LiBai's parser. Everything from the first ``key=value`` on belongs to ``opts``."""
    parser = _parser(epilog)
    parser.add_argument("--fast-dev-run", action="store_true", help="a short run of 20 iterations to look for bugs")
    _opts(parser)
    return parser


def detectron2_argument_parser(epilog: str | None = None) -> argparse.ArgumentParser:
    """Return detectron2's parser, with the number of processes and their address."""
    parser = _parser(epilog)
    parser.add_argument("--num-gpus", type=int, default=1, help="number of gpus *per machine*")
    parser.add_argument("--num-machines", type=int, default=1, help="total number of machines")
    parser.add_argument("--machine-rank", type=int, default=0, help="the rank of this machine (unique per machine)")
    user = os.getuid() if sys.platform != "win32" else 1
    port = 2**15 + 2**14 + hash(user) % 2**14
    parser.add_argument("--dist-url", default=f"tcp://127.0.0.1:{port}", help="where the processes meet")
    _opts(parser)
    return parser


def _parser(epilog: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config-file", default="", metavar="FILE", help="path to config file")
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint of the output folder")
    parser.add_argument("--eval-only", action="store_true", help="perform evaluation only")
    return parser


def _opts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "opts", default=None, nargs=argparse.REMAINDER, help="changes of the config, written path.key=value"
    )
