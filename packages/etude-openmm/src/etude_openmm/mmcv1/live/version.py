"""Answers ``mmcv.__version__``: the newest 1.x that the project which asks accepts.

Étude behaves like mmcv 1.7.2, but MMPose 0.29 and others refuse more than 1.7.0 (or 1.5.0) when they are imported,
only because no newer one was there when they were released.
"""

from __future__ import annotations

import ast
import os
import re
from functools import cache

from mmengine.utils.version_utils import digit_version

from etude.dialects import ownership
from etude_openmm.shared import old_numpy
from etude_openmm.shared.live.checkpoint_v1 import MMCV_VERSION

#: The environment variable that says which version ``mmcv.__version__`` is, whatever a project accepts.
SETTING = "ETUDE_MMCV_VERSION"
#: The last release of each minor version. One of them is taken below a bound that is not accepted itself.
_RELEASES = ("1.7.2", "1.6.2", "1.5.3", "1.4.8", "1.3.18", "1.2.7", "1.1.6", "1.0.5")
_MOST = re.compile(r"(?i)^mmcv_?max")
_ACCEPTED = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?")

# Whoever asks for the version is a project of mmcv 1.x, written for the numpy of its time.
old_numpy.restore()


def current() -> str:
    """Return the version for the code that asks."""
    given = os.environ.get(SETTING, "")
    if given:
        if _ACCEPTED.fullmatch(given) is None:
            raise ValueError(f"the environment variable {SETTING} must be a version such as 1.7.0, not {given!r}")
        return given
    return accepted_by(_package_file(ownership.importer()))


def current_info() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", current())[:3])


@cache
def accepted_by(file: str) -> str:
    """Return the newest version that the ``__init__.py`` of a package accepts; Étude's own if it says nothing."""
    most = _most(file) if file else None
    if most is None:
        return MMCV_VERSION
    bound, is_accepted = most
    if digit_version(bound) > digit_version(MMCV_VERSION):
        return MMCV_VERSION
    if is_accepted:
        return bound
    lower = [release for release in _RELEASES if digit_version(release) < digit_version(bound)]
    return lower[0] if lower else MMCV_VERSION


def _package_file(file: str) -> str:
    """Return the ``__init__.py`` of the top-level package that ``file`` belongs to; empty for a script."""
    found, folder = "", os.path.dirname(os.path.abspath(file)) if file else ""
    while folder and os.path.isfile(inside := os.path.join(folder, "__init__.py")):
        found, folder = inside, os.path.dirname(folder)
    return found


def _most(file: str) -> tuple[str, bool] | None:
    """Return the highest version that a file names (``mmcv_maximum_version``, ``MMCV_MAX``), and whether it accepts it.

    The name may be given to another one (``digit_version(MMCV_MAX)``) before versions are compared by ``<=`` or ``<``.
    """
    try:
        tree = ast.parse(ownership.text_of(file))
    except SyntaxError:
        return None
    bounds, comparisons = dict[str, str](), list[tuple[set[str], bool]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            named = [target.id for target in node.targets if isinstance(target, ast.Name) and _MOST.match(target.id)]
            bounds |= dict.fromkeys(named, node.value.value)
        elif isinstance(node, ast.Compare):
            for op, right in zip(node.ops, node.comparators, strict=True):
                names = {inner.id for inner in ast.walk(right) if isinstance(inner, ast.Name)}
                comparisons.append((names, not isinstance(op, ast.Lt)))
    versions = [version for version in bounds.values() if _ACCEPTED.fullmatch(version)]
    if not versions:
        return None
    compared = [accepted for names, accepted in comparisons if any(_MOST.match(name) for name in names)]
    return min(versions, key=digit_version), all(compared)
