"""Finds the installed project (MMClassification, MMTracking, MMDetection) of a config. Imports no torch.

The project is not imported: its sources are read, wherever it is installed or checked out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from etude.dialects import ownership
from etude.fast_dataclass import record
from etude_openmm.mmcv1 import overlay
from etude_openmm.shared.checks.project_sources import registered
from etude_openmm.shared.generations import is_of_mmengine

#: Flags of MMTracking's configs → the part of a tracker that each trains alone.
PARTS = {"USE_MMDET": "detector", "TRAIN_REID": "reid"}


@record
class Project:
    """A project whose functions build and train its configs."""

    package: str
    title: str
    #: Other packages whose classes its configs use.
    uses: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[str, ...]:
        return (self.package, *self.uses)


#: In the order in which they are searched for the config's model.
PROJECTS = (
    Project("mmcls", "MMClassification"),
    Project("mmtrack", "MMTracking", uses=("mmdet", "mmcls")),
    Project("mmdet", "MMDetection"),
)
#: If a config of one project imports another, names that both have belong to the first one.
PACKAGES = tuple(one.package for one in PROJECTS)


def installed() -> list[Project]:
    """Return the projects for mmcv 1.x that are installed or checked out."""
    return [one for one in PROJECTS if ownership.original(one.package) is not None and not is_of_mmengine(one.package)]


def project_of(values: Mapping[str, Any], files: Iterable[str], imports: Iterable[Any]) -> Project | None:
    """Return the installed project that a config is for, or None.

    This is decided by keys that only one project has, by imports, by the folder of the config or of a base, or
    by the name of its model.
    """
    found = {one.package: one for one in installed()}
    named = {str(name).partition(".")[0] for name in imports}
    if any(key in values for key in PARTS) or "mmtrack" in named:
        return found.get("mmtrack")
    homes = {_home(file, tuple(found)) for file in files}
    for package in ("mmtrack", "mmdet", "mmcls"):
        if package in found and (package in homes or package in named):
            return found[package]
    model = values.get("model")
    kind = model.get("type") if isinstance(model, Mapping) else None
    name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    return next((one for one in found.values() if any(entry == name for _, entry in registered(one.package))), None)


def _home(file: str, packages: tuple[str, ...]) -> str:
    """Return the package whose checkout or installed folder contains a config file."""
    folder = os.path.dirname(os.path.realpath(file))
    while os.path.dirname(folder) != folder:
        for package in packages:
            if os.path.basename(folder) == package and ownership.is_original(folder, package):
                return package
            if ownership.is_original(os.path.join(folder, package), package):
                return package if os.path.isdir(os.path.join(folder, "configs")) else ""
        folder = os.path.dirname(folder)
    return ""


def registered_by(project: Project) -> dict[tuple[str, str], str]:
    """Map (registry, name) → ``module:attr`` for what the project, its packages and mmcv's layers register."""
    found: dict[tuple[str, str], str] = {}
    for package in ("mmcv", *reversed(project.packages)):
        found.update(registered(package, overlay.is_layer if package == "mmcv" else None))
    return found
