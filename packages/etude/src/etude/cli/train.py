"""Train CONFIG. Change values for this run with key=value after the config:

  etude train digits.yaml optim.lr=0.01 train.epochs=5
  etude train digits.yaml train.accumulate=2       a key that the config does not have yet
  etude train digits.yaml hooks.0.momentum=0.01    an item of a list

The config may also be one of mmcv 1.x, MMEngine, LiBai/detectron2 or McQuic; their flags work too.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.checkpoint.storage import trust
from etude.cli.flags import add_dialect, add_no_code, count, positive, seconds
from etude.dist.jobs import reports
from etude.dist.world import World, is_here
from etude.errors import UserError, printable
from etude.units import counted

if TYPE_CHECKING:
    from etude.building.options import Options

#: Signals of schedulers → exit codes, as in training.
_EARLY = {"SIGTERM": 143, "SIGUSR1": 75}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="YAML, TOML, JSON or Python")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change for this run")
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="PATH", help="resume the newest run, or the one at PATH"
    )
    parser.add_argument("--retry", action="store_true", help="resume even if the run failed 3 times at the same step")
    parser.add_argument("--restart", action="store_true", help="start at step 0 even if the folder holds a run")
    parser.add_argument("--folder", "--work-dir", metavar="DIR", help="the run's folder (default runs/NAME/TIME)")
    parser.add_argument("--max-time", metavar="3h", help="stop and save after this time, exit 75")
    parser.add_argument("--grace", default="30s", metavar="30s", help="time to finish the step and save after a signal")
    parser.add_argument("--seed", type=int, help="train.seed for this run")
    parser.add_argument("--device", default="", help="cpu, cuda, cuda:1 …")
    parser.add_argument("-D", "--debug", action="store_true", help="first print every registry with its entries")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but warnings and errors")
    add_dialect(parser)
    again = parser.add_argument_group("several runs")
    again.add_argument("--seeds", type=positive, metavar="N", help="train N runs that differ by their seed")
    again.add_argument(
        "--folds", type=positive, metavar="N", help="train N runs, each with another N-th of the data held out"
    )
    many = parser.add_argument_group("several processes")
    many.add_argument("--nproc", "--nproc-per-node", type=positive, metavar="N", help="processes on this machine")
    many.add_argument(
        "--nnodes", type=positive, default=1, metavar="N", help="number of machines; run the same command on each"
    )
    many.add_argument("--rdzv-endpoint", default="", metavar="HOST:PORT", help="where the machines rendezvous")
    many.add_argument(
        "--rdzv-id", default="etude", metavar="NAME", help="name of the job, if several share the endpoint"
    )
    many.add_argument(
        "--max-restarts", type=count, default=3, metavar="N", help="restarts after a lost process (default 3)"
    )
    many.add_argument(
        "--hang-timeout", default="5min", metavar="5min", help="longest time a process may make no progress"
    )
    trying = parser.add_argument_group("trying things out")
    trying.add_argument("--fast-dev-run", action="store_true", help="run two batches of everything and write nothing")
    trying.add_argument("--limit-batches", type=positive, metavar="N", help="at most N batches per epoch")
    trying.add_argument("--overfit", type=positive, metavar="N", help="train on the same N batches over and over")
    trying.add_argument("--chaos", default="", metavar="FAULT", help="kill@step=37, nan@step=12, enospc@save=2 …")
    safety = parser.add_argument_group("safety")
    safety.add_argument(
        "--allow-change", action="append", default=[], metavar="KEY", help="accept a changed KEY on resume"
    )
    safety.add_argument("--strict", action="store_true", help="refuse to resume with code that has changed")
    safety.add_argument("--no-check", action="store_true", help="train although `etude check` finds mistakes")
    safety.add_argument("--trust", action="store_true", help="load pickles that contain code, and execute it")
    safety.add_argument("--trust-owner", action="store_true", help="resume from files owned by another user")
    add_no_code(safety)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    with early_signals():
        _complete(args)
        start = _launcher_of(args)
        return _train(args) if start is None else start(args)


def _launcher_of(args: argparse.Namespace) -> Callable[[argparse.Namespace], int] | None:
    """Return what trains in other processes, if flags ask for several runs or several ranks."""
    if args.seeds or args.folds:
        from etude.cli.repeats import train_repeatedly

        return train_repeatedly
    many = (args.nproc or args.nnodes > 1) and "ETUDE_LAUNCHER" not in os.environ
    return _launch if many else None


def _complete(args: argparse.Namespace) -> None:
    """Read what several flags say together, and refuse what contradicts itself."""
    if getattr(args, "config_file", None) is not None:  # the word in CONFIG's position is the first key=value
        args.config, args.overrides = args.config_file, [*filter(None, [args.config]), *args.overrides]
    if args.config is None:
        raise UserError("which config? `etude train CONFIG`; `etude init DIR` makes one")
    if args.retry and args.resume is None:
        args.resume = ""
    if args.restart and args.resume is not None:
        raise UserError("--resume continues and --restart starts at step 0: pass one of them")
    _refuse_idle_flags(args)


@contextmanager
def early_signals() -> Iterator[None]:
    """Handle a scheduler's signals before the run does: print a line and exit with the usual code. A forked child
    ends as it would without this."""
    owner = os.getpid()

    def end(number: int, frame: Any) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        name = signal.Signals(number).name
        if "ETUDE_LAUNCHER" not in os.environ:  # a launcher says it for all processes
            print(f"etude: stopped by {name} outside of training: there is nothing to save", file=sys.stderr)
        raise SystemExit(_EARLY[name])

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(getattr(signal, name), end) for name in _EARLY}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _train(args: argparse.Namespace) -> int:
    _prepare(args)
    from etude.api import train_config

    options, trial = _options(args), _trial(args)
    with trust.given(args.trust):
        run = train_config(args.config, args.overrides, dialect=args.dialect, options=options, trial=trial)
    if not args.quiet and run.world.is_main and run.folder is not None:
        _draw(run.folder)
    return run.exit_code


def _prepare(args: argparse.Namespace) -> None:
    """Make this process ready: its rank, how long it waits for others, and the names that old projects import."""
    World.from_environment().announce()
    os.environ.setdefault(reports.PATIENCE, str(seconds("--hang-timeout", args.hang_timeout)))  # torchrun sets none
    from etude import compat

    compat.install()
    if args.debug:
        print_registries()


def _options(args: argparse.Namespace) -> Options:
    from etude.building.options import Options

    # Two flags accept what no key of a config names.
    accepted = [name for name, given in (("owner", args.trust_owner), ("attempts", args.retry)) if given]
    return Options(
        folder=_folder(args.folder),
        resume=args.resume,
        restart=args.restart,
        quiet=args.quiet,
        trust=args.trust,
        allow_change=(*args.allow_change, *accepted),
        strict=args.strict,
        chaos=args.chaos,
        grace=seconds("--grace", args.grace),
        extras=vars(args),
    )


def _draw(folder: Path) -> None:
    """Print small curves of the loss and the main metric."""
    from etude.report.records import Records
    from etude.report.text import draw, main_curves

    records = Records(folder)
    records.update()
    for name in main_curves(records):
        print("\n".join(["", *draw(name, records.curves[name], height=4, width=60)]), file=sys.stderr)


def _cores() -> int:
    """Return the cores of this process: a scheduler may give fewer than the machine has. macOS does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _launch(args: argparse.Namespace) -> int:
    """Start the processes, and this command in each of them. Mistakes of the config are found before."""
    from etude.api import load_plan
    from etude.cli import main
    from etude.dist.jobs.launch import Launch, launch

    nproc, cores = args.nproc or 1, _cores()
    if nproc > cores and not args.device.startswith("cuda"):
        print(f"etude: warning: {nproc} processes share {counted(cores, 'core')}", file=sys.stderr)
    _require_endpoint(args)
    plan, _ = load_plan(args.config, args.overrides, dialect=args.dialect, options=vars(args))
    plan.parallel.require_fitting(nproc * args.nnodes, local=nproc)
    options = Launch(
        nproc=nproc,
        nodes=args.nnodes,
        endpoint=args.rdzv_endpoint,
        job=args.rdzv_id,
        max_restarts=args.max_restarts,
        hang_timeout=seconds("--hang-timeout", args.hang_timeout),
        grace=seconds("--grace", args.grace),
    )
    return launch(args.typed, options, main)


def _require_endpoint(args: argparse.Namespace) -> None:
    """Refuse a rendezvous endpoint that cannot be reached: torch would wait for minutes before it fails."""
    if not args.rdzv_endpoint:
        if args.nnodes > 1:
            raise UserError(
                f"--nnodes {args.nnodes}: name their meeting point: --rdzv-endpoint HOST:PORT, the same on each"
            )
        return
    host, _, port = args.rdzv_endpoint.rpartition(":")
    shown = f"--rdzv-endpoint {printable(args.rdzv_endpoint)}"
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"{shown}: write HOST:PORT, as in node0:29400")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise UserError(f"{shown}: this machine does not know {host!r}: {error.strerror}") from error
    if args.nnodes == 1 and is_here(args.rdzv_endpoint):  # of several, another launcher may hold it rightly
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind((host, int(port)))
            except OSError as error:
                raise UserError(f"{shown}: {error.strerror}; choose another port") from error


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every dialect, in a group per dialect; a shared flag is in the group of the first."""
    from etude import dialects

    known = [(dialect, flag) for dialect in dialects.known() for flag in dialect.flags]
    for name in dict.fromkeys(flag.name for _, flag in known):
        owners = [dialect for dialect, flag in known if flag.name == name]
        flag = next(flag for _, flag in known if flag.name == name)
        shared = len(owners) > 1 and flag.help != argparse.SUPPRESS
        shown = f"{flag.help} ({', '.join(owner.title for owner in owners)})" if shared else flag.help
        _group(parser, f"flags of {owners[0].title}").add_argument(
            flag.name, *flag.aliases, dest=flag.dest, help=shown, **flag.options
        )


def _group(parser: argparse.ArgumentParser, title: str) -> Any:
    found = next((group for group in parser._action_groups if group.title == title), None)
    return found or parser.add_argument_group(title)


def _refuse_idle_flags(args: argparse.Namespace) -> None:
    """Refuse a flag that would have no effect."""
    from etude import dialects

    every = {flag.dest: flag for dialect in dialects.known() for flag in dialect.flags if not flag.ignorable}
    idle = {name for dialect in dialects.known() for name in dialect.idle_flags}
    given = [name for name in [*every, *sorted(idle)] if getattr(args, name, None)]
    if not given:
        return
    spoken = dialects.detect(args.config, args.dialect)
    own = {flag.dest for flag in spoken.flags} | (idle - set(spoken.idle_flags))
    for name in given:
        if name not in own:
            instead = f"; {every[name].instead}" if name in every and every[name].instead else ""
            raise UserError(f"--{name.replace('_', '-')} does nothing in a {spoken.name} config{instead}")


def print_registries() -> None:
    """Print every table and its entries, as ``-D`` asks for."""
    from etude.registry import TABLES, load_builtins

    load_builtins()
    for word, table in TABLES.items():
        print(f"{word}:\n" + "\n".join(f"  {line}" for line in table.summary().splitlines()))


def _folder(text: str | None) -> Path | None:
    """Return the folder as a local path. ``file://`` is the local disk; a run can write its log nowhere else."""
    from etude.checkpoint.storage.places import local_path

    path = local_path(text or "")
    if "://" in path:
        raise UserError(f"--folder {printable(path)}: a run's folder has to be on a disk of this machine")
    return Path(path) if path else None


def _trial(args: argparse.Namespace) -> Any:
    from etude.debug_options import DebugOptions

    return DebugOptions(
        fast_dev_run=args.fast_dev_run,
        limit_batches=args.limit_batches,
        overfit=args.overfit,
        max_seconds=seconds("--max-time", args.max_time) if args.max_time else None,
        device=args.device,
        seed=args.seed,
    )
