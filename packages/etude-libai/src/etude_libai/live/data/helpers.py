"""Compiles LiBai's C++ index builders (``libai.data.data_utils.helpers``) when a dataset first needs them.

LiBai runs ``make`` inside the checkout at every start. Here the file is compiled once, into a cache, with the pybind11
headers that come with torch; a module that you built with ``make`` is used as it is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from etude.errors import UserError


def __getattr__(name: str) -> Any:
    """Return one of the functions (``build_mapping`` …). The module is compiled when one is called."""
    if not name.startswith("build_"):
        raise AttributeError(name)
    return lambda *args: getattr(_module(), name)(*args)


@cache
def _module() -> ModuleType:
    folder = Path(next(iter(importlib.import_module("libai.data.data_utils").__path__)))
    loader = importlib.machinery.ExtensionFileLoader("helpers", str(_compiled(folder / "helpers.cpp")))
    spec = importlib.util.spec_from_file_location("helpers", loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _compiled(source: Path) -> Path:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    digest = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache_home / "etude" / "libai" / digest / f"helpers{suffix}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:  # several processes may compile at once
            _compile(source, Path(made, "helpers"))
            os.replace(Path(made, "helpers"), target)
    return target


def _compile(source: Path, target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise UserError(f"{source} must be compiled, and there is no C++ compiler: install one (g++), or set $CXX")
    includes = [Path(torch.__file__).parent / "include", sysconfig.get_path("include")]
    options = ["-O3", "-shared", "-std=c++17", "-fPIC", *(f"-I{folder}" for folder in includes)]
    done = subprocess.run([compiler, *options, source, "-o", target], capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise UserError(f"{source} cannot be compiled: {first}")
