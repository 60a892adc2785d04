"""Finds the project of a config: the package whose models and data it names, and whose script trains it. No torch.

A project is any package for mmcv 1.x: the one that holds the config or a base of it (``configs/`` of a checkout,
``.mim/configs`` of a wheel), one of ``custom_imports``, or one that registers the config's model. It is not imported:
its sources are read, wherever it is installed or checked out.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from etude.dialects import ownership
from etude.fast_dataclass import record
from etude_openmm.mmcv1 import overlay
from etude_openmm.shared.checks.project_sources import imported_by, registered, texts_of
from etude_openmm.shared.generations import is_of_mmengine
from etude_openmm.shared.homes import home, is_project_v1

#: Flags of MMTracking's configs → the part of a tracker that each trains alone.
PARTS = {"USE_MMDET": "detector", "TRAIN_REID": "reid"}
#: The projects for which Étude has stand-ins, or knows the steps of their scripts; in the order of their search.
KNOWN = {"mmcls": "MMClassification", "mmtrack": "MMTracking", "mmdet": "MMDetection"}
#: The script of a checkout, and of a wheel, from the folder of the package.
_SCRIPTS = (os.path.join(os.pardir, "tools", "train.py"), os.path.join(".mim", "tools", "train.py"))


@record
class Project:
    """A project whose functions build and train its configs."""

    package: str

    @property
    def title(self) -> str:
        return KNOWN.get(self.package, self.package)

    @property
    def is_known(self) -> bool:
        """Return whether Étude knows the steps of the project's script, and need not run it."""
        return self.package in KNOWN

    @property
    def packages(self) -> tuple[str, ...]:
        """Return its package, and those of other projects whose classes its configs may name."""
        return (self.package, *_used_by(self.package))

    @property
    def script(self) -> str | None:
        """Return the project's script that trains; None if neither its checkout nor its wheel has one."""
        folder = ownership.original(self.package)
        places = (os.path.normpath(os.path.join(folder, script)) for script in _SCRIPTS) if folder else ()
        return next(filter(os.path.isfile, places), None)


def reads(project: Project, key: str) -> bool:
    """Return whether the project's script, or a file of its package, may read a key of a config."""
    pattern = re.compile(rf"\b{re.escape(key)}\b")
    script = project.script
    texts = texts_of(project.package)
    return any(map(pattern.search, [*texts, *([ownership.text_of(script)] if script else [])]))


def installed() -> list[Project]:
    """Return the known projects for mmcv 1.x that are installed or checked out."""
    return [Project(one) for one in KNOWN if ownership.original(one) is not None and not is_of_mmengine(one)]


def project_of(values: Mapping[str, Any], files: Iterable[str], imports: Iterable[Any]) -> Project | None:
    """Return the installed project that a config is for, or None.

    This is decided by keys that only one project has, by imports, by the folder of the config or of a base, or
    by the names of its model and data.
    """
    there = [one.package for one in installed()]
    named = [package for package in (str(name).partition(".")[0] for name in imports) if is_project_v1(package)]
    if "mmtrack" in there and (any(key in values for key in PARTS) or "mmtrack" in named):
        return Project("mmtrack")
    homes = [package for package in map(home, files) if is_project_v1(package)]
    at_home = [package for package in homes[:1] if package not in KNOWN]
    for package in (*at_home, *(one for one in ("mmtrack", "mmdet", "mmcls") if one in there), *homes, *named):
        if package in homes or package in named:
            return Project(package)
    return _by_names(values, there)


def _by_names(values: Mapping[str, Any], there: Iterable[str]) -> Project | None:
    """Return the project that registers the model; of several, the one that registers the data sets, too."""
    model, data = values.get("model"), values.get("data")
    kind = _name(model)
    if not kind:
        return None
    wanted = {kind, *(_name(one) for one in (data.values() if isinstance(data, Mapping) else ()))} - {""}
    known = {package: {name for _, name in registered(package)} for package in there}
    found = [package for package, names in known.items() if kind in names]
    if not found:
        known = {package: {name for _, name in registered(package)} for package in _others()}
        found = [package for package, names in known.items() if kind in names]
    return Project(max(found, key=lambda package: len(wanted & known[package]))) if found else None


def _name(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind.rpartition(".")[2] if isinstance(kind, str) else ""


@cache
def _others() -> tuple[str, ...]:
    """Return the projects that are installed with their configs, or checked out in the current folder."""

    def found() -> Iterator[str]:
        for entry in dict.fromkeys(entry or os.getcwd() for entry in sys.path):
            if os.path.isdir(entry):
                is_checkout = os.path.isfile(os.path.join(entry, "tools", "train.py"))
                with os.scandir(entry) as below:
                    names = sorted(one.name for one in below if is_checkout or os.path.isdir(f"{one.path}/.mim"))
                yield from (name for name in names if name not in KNOWN and is_project_v1(name))

    return tuple(dict.fromkeys(found()))


def _used_by(package: str) -> tuple[str, ...]:
    if package in KNOWN:
        return {"mmtrack": ("mmdet", "mmcls")}.get(package, ())
    return tuple(name for name in imported_by(package) if name != package and is_project_v1(name))


def registered_by(project: Project) -> dict[tuple[str, str], str]:
    """Map (registry, name) → ``module:attr`` for what the project, its packages and mmcv's layers register."""
    found: dict[tuple[str, str], str] = {}
    for package in ("mmcv", *reversed(project.packages)):
        found.update(registered(package, overlay.is_layer if package == "mmcv" else None))
    return found
