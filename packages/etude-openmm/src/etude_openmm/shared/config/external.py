"""Finds configs inside installed packages (``mmdet::folder/file.py``), with MMEngine's private function names."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import yaml

from etude_openmm.shared.project_names import MODULE2PACKAGE

PKG2PROJECT = MODULE2PACKAGE


def _get_package_and_cfg_path(cfg_path: str) -> tuple[str, str]:
    """Return the package and the file of ``package::folder/file.py``."""
    if re.match(r"\w*::\w*/\w*", cfg_path) is None:
        raise ValueError(f"{cfg_path!r} should name a package and a file in it, such as mmdet::folder/file.py")
    package, *rest = cfg_path.split("::")
    if len(rest) > 1:
        raise ValueError(f"`::` separates a package from a file once, but {cfg_path!r} has several")
    assert package in MODULE2PACKAGE, f"there are no configs of {package!r} to load"
    return MODULE2PACKAGE[package], rest[0]


def _get_external_cfg_base_path(package_path: str, cfg_name: str) -> str:
    """Return the path of the config ``cfg_name`` in a package."""
    path = os.path.join(package_path, ".mim", "configs", cfg_name)
    _require(path)
    return path


def _get_cfg_metainfo(package_path: str, cfg_path: str) -> dict[str, Any]:
    """Return the (first) entry of a config in the model index of a package."""
    found: dict[str, Any] = {}
    for file in _yaml(os.path.join(package_path, ".mim", "model-index.yml"))["Import"]:
        for model in _yaml(os.path.join(package_path, ".mim", file))["Models"]:
            if "Config" not in model:
                warnings.warn(f"{model} names no `Config`", stacklevel=2)
            else:
                found.setdefault(model["Config"].partition("/")[-1], model)
    if cfg_path not in found:
        raise ValueError(f"Expected configs: {found.keys()}, but got {cfg_path}")
    entry: dict[str, Any] = found[cfg_path]
    return entry


def _get_external_cfg_path(package_path: str, cfg_file: str) -> str:
    """Return the path of a config, as the model index of a package gives it."""
    path = os.path.join(package_path, _get_cfg_metainfo(package_path, cfg_file.split(".")[0])["Config"])
    _require(path)
    return path


def _yaml(file: str) -> Any:
    with open(file, encoding="utf-8") as opened:
        return yaml.safe_load(opened)


def _require(file: str) -> None:
    if not os.path.isfile(file):
        raise FileNotFoundError(f'file "{file}" does not exist')
