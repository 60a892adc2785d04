"""Create a project: a config, a model, a hook and a test. Train it with `etude train config.yaml`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from etude.errors import UserError

#: The files of a new project; their texts are in ``template/``.
FILES = ("config.yaml", "parts.py", "test_project.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="folder to create; existing files are never overwritten")


def run(args: argparse.Namespace) -> int:
    folder = Path(args.dir)
    if folder.is_file():
        raise UserError(f"{folder} is a file; name a folder for the project")
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder} has {', '.join(taken)} already; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(Path(__file__).with_name("template") / f"{name}.txt", folder / name)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    print(f"made {', '.join(FILES)} in {folder}/")
    print(f"next:  cd {folder} && etude train config.yaml")
    print("test:  pip install pytest && python -m pytest")
    return 0
