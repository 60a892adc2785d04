"""Runs a command that replays a run in as many processes as have trained it."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from etude.cli.flags import positive
from etude.config import run_files
from etude.config.run_files import require_as_many


def add_nproc(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that may need several processes."""
    parser.add_argument("--nproc", type=positive, metavar="N", help="replay with N processes, as the run was trained")
    parser.add_argument("--outcome", metavar="FILE", default="", help=argparse.SUPPRESS)


def launched(args: argparse.Namespace, folder: Path) -> int | None:
    """Start the processes that the run needs, with this command in each; return its exit code. None: go on here."""
    if "ETUDE_LAUNCHER" in os.environ:
        return None
    trained = run_files.processes(folder)
    require_as_many(folder, args.nproc or 1)
    if trained == 1:
        return None
    from etude.cli import main
    from etude.dist.jobs.launch import Launch, launch

    with tempfile.TemporaryDirectory(prefix="etude-outcome-") as made:
        outcome = Path(made, "outcome")
        code = launch([*args.typed, "--outcome", str(outcome)], Launch(nproc=trained, max_restarts=0), main)
        return int(outcome.read_text()) if code == 0 and outcome.is_file() else code


def ended(args: argparse.Namespace, code: int) -> int:
    """Return the exit code of a process: a launcher takes any but 0 for a failure of that process."""
    if not args.outcome:
        return code
    if os.environ.get("RANK") == "0":
        Path(args.outcome).write_text(str(code))
    return 0
