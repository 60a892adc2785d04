"""Run a script of mmcv 1.x, MMEngine, LiBai, detectron2 or McQuic as `python SCRIPT …` would, on Étude's engine: it
takes the place of theirs, installed or not. Everything after SCRIPT belongs to the script.

  etude exec tools/train_net.py --config-file configs/gpt.py train.train_iter=100

On eight GPUs, in place of tools/dist_train.sh:

  etude exec --nproc 8 tools/train.py configs/resnet50.py --launcher pytorch

A module, as `python -m` takes it:

  etude exec -m mcquic.train config.yaml

A shell script whose `python` starts one of them, LiBai's for example:

  etude exec tools/train.sh tools/train_net.py configs/bert_large_pretrain.py 4
"""

from __future__ import annotations

import argparse
import os
import sys
from glob import glob

from etude.cli.flags import positive
from etude.errors import DataError, EtudeError, UserCodeError, UserError
from etude.errors.spelling import nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nproc", type=positive, default=1, metavar="N", help="processes on this machine (before SCRIPT)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as in python -m SCRIPT")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", metavar="…", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    """Run the script as ``__main__``; its exit code is ours. The folder one is in can be imported from too."""
    if not args.module and not os.path.isfile(args.script):
        folder, name = os.path.split(args.script)
        near = nearest(name, [os.path.basename(file) for file in glob(os.path.join(folder, "*.py"))])
        hint = f"; did you mean {os.path.join(folder, near)}?" if near else ""
        raise UserError(f"there is no script {args.script}{hint}")
    if not args.module and args.script.endswith((".yaml", ".yml", ".json", ".toml")):
        raise UserError(f"{args.script} is a config, not a script; train it by `etude train {args.script}`")
    if not args.module and args.script.endswith(".sh"):
        return _run_shell(args)
    if args.nproc > 1 and "ETUDE_LAUNCHER" not in os.environ:
        return _launch(args)
    import runpy

    from etude.cli import print_user_frames
    from etude.dialects import imports

    imports.install()
    words, path = sys.argv, list(sys.path)
    sys.argv = [args.script, *args.args]
    sys.path[:0] = [os.getcwd()] if args.module else [os.path.dirname(os.path.abspath(args.script)), os.getcwd()]
    try:
        command = imports.command_of(args.script, args.args) if args.module else None
        if command is not None:
            return command()
        if args.module:
            _require_module(args.script)
            runpy.run_module(args.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(args.script, run_name="__main__")
    except SystemExit as stop:
        return _code(stop)
    except EtudeError as error:
        if not (isinstance(error, UserCodeError | DataError) and error.__cause__ is not None):  # printed with it
            print_user_frames(error, message=False)
        raise
    finally:
        sys.argv, sys.path[:] = words, path
    return 0


def _run_shell(args: argparse.Namespace) -> int:
    """Run a shell script. ``python`` means this one there, and ``python -m`` finds the launchers that dialects have."""
    import subprocess

    from etude import dialects

    if args.nproc > 1:
        raise UserError(f"--nproc is for Python scripts; {args.script} starts its processes itself")
    launchers = [one.launchers for one in dialects.known() if one.launchers]
    first = {"PATH": [os.path.dirname(sys.executable)], "PYTHONPATH": launchers}
    environment = {
        name: os.pathsep.join([*folders, *filter(None, [os.environ.get(name)])]) for name, folders in first.items()
    }
    return subprocess.run(["bash", args.script, *args.args], env=os.environ | environment, check=False).returncode


def _require_module(name: str) -> None:
    """Raise an error unless ``python -m name`` would find something to run."""
    from importlib.util import find_spec

    try:
        found = find_spec(name)
        runnable = found is not None and (
            found.submodule_search_locations is None or find_spec(f"{name}.__main__") is not None
        )
    except ModuleNotFoundError:
        runnable = False
    if not runnable:
        raise UserError(f"there is no module {name} to run")


def _launch(args: argparse.Namespace) -> int:
    """Run this command in several processes, once: the script itself knows from where it could go on."""
    from etude.cli import main
    from etude.dist.jobs.launch import Launch, launch

    return launch(args.typed, Launch(nproc=args.nproc, max_restarts=0), main)


def _code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1
