"""Finds installed packages, without ``pkg_resources``, which mmengine's own functions import and Python has no more."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from importlib import metadata


def is_installed(package: str) -> bool:
    """Return whether ``package``, a distribution or an import name, is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            return False
    return True


def get_installed_path(package: str) -> str:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        return str(next(iter(spec.submodule_search_locations)))
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError as error:
        raise metadata.PackageNotFoundError(package) from error
    top = (found.read_text("top_level.txt") or package).split()[0]
    return os.path.join(str(found.locate_file("")), top)


def call_command(cmd: list[str]) -> None:
    subprocess.check_call(cmd)


def install_package(package: str) -> None:
    """Raise an error if a package is missing: Étude installs nothing by itself."""
    if not is_installed(package):
        raise RuntimeError(f"the package {package!r} is not installed: pip install {package}")
