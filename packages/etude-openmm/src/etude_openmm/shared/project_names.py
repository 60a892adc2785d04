"""Says what to install for hooks and other names that only exist in OpenMMLab projects. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from etude.dialects import ownership
from etude.errors.spelling import is_slip, nearest, suggest

#: Package to install → its hooks, optimizers and samplers that Étude does not have.
_OWNERS = {
    "mmengine": (
        "PrepareTTAHook BaseTTAModel NaiveVisualizationHook ProfilerHook NPUProfilerHook DeepSpeedStrategy "
        "ColossalAIStrategy"
    ),
    "mmselfsup": "DeepClusterHook ODCHook DeepClusterSampler",
    "mmpretrain": "Adan WarmupParamHook",
    "mmpretrain (or mmcls==0.25.0)": "PreciseBNHook ClassNumCheckHook",
    "mmcls==0.25.0": "CosineAnnealingCooldownLrUpdaterHook CosineAnnealingCooldown MMClsWandbHook",
    "mmdet==2.28.2": (
        "ExpMomentumEMAHook LinearMomentumEMAHook YOLOXLrUpdaterHook YOLOX SyncNormHook CheckInvalidLossHook"
    ),
    "mmtrack==0.14.0": "SiameseRPNLrUpdaterHook SiameseRPN SiameseRPNOptimizerHook SiameseRPNFp16OptimizerHook",
}
#: Packages whose configs refer to one another (`mmpretrain::…`, `default_scope`).
_PACKAGES = [
    "mmaction", "mmagic", "mmcls", "mmdet", "mmdet3d", "mmedit", "mmengine", "mmocr", "mmpose", "mmpretrain", "mmrazor",
    "mmrotate", "mmseg", "mmselfsup", "mmtrack", "mmyolo",
]  # fmt: skip
_SAME = (
    "mmcls mmdet mmdet3d mmtrack mmpose mmedit mmocr mmgen mmfewshot mmrazor mmflow mmhuman3d mmrotate mmselfsup "
    "mmyolo mmpretrain mmagic"
)
#: Import name → name for pip.
MODULE2PACKAGE: dict[str, str] = {name: name for name in _SAME.split()} | {
    "mmseg": "mmsegmentation", "mmaction": "mmaction2",
}  # fmt: skip
#: The path of a config inside an installed project.
_IN_PACKAGE = r"[/\\](\w+)[/\\]\.mim[/\\]configs[/\\]"
_IMPORTS_MMCV = r"(?m)^(import|from) mmcv\b"
_OWNER = {name: package for package, names in _OWNERS.items() for name in names.split()}


def owner_of(name: str) -> str:
    """Return the package that has ``name``; empty if no project is known for it."""
    return _OWNER.get(name, "")


def package_of(path: str) -> str:
    """Return the package that ``path``, an installed config, belongs to; empty for other paths."""
    found = re.search(_IN_PACKAGE, path)
    return found[1] if found else ""


def remedy(name: str, known: Iterable[str]) -> str:
    """Return a hint about the unknown ``name``: install its project, or use a similar one of ``known``."""
    owner = owner_of(name)
    return f"it comes with its project: pip install {owner}" if owner else suggest(name, list(known))


def install(package: str) -> str:
    """Return the command that installs ``package``, or a similar name if it is misspelt."""
    near = None if package in _PACKAGES else nearest(package, _PACKAGES)
    return f"did you mean {near!r}?" if near and is_slip(package, near) else f"pip install {package}"


def missing_project(scope: str) -> str:
    """Return what to install if the project of a config (its ``default_scope``) is missing; else an empty text."""
    if not scope.startswith("mm") or scope == "mmengine" or ownership.original(scope) is not None:
        return ""
    return f"{scope}, which the config is for, is not installed: {install(scope)}"


def missing_mmcv(scope: str) -> str:
    """Return what to install if the project of a config needs an mmcv that is missing; else an empty text."""
    folder = ownership.original(scope) if scope else None
    if folder is None or ownership.generation("mmcv") >= 2:
        return ""
    with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
        if re.search(_IMPORTS_MMCV, file.read()) is None:
            return ""
    found = ownership.original("mmcv")
    lack = f"mmcv {ownership.version('mmcv')} at {found} is too old" if found else "none is on disk"
    return f"layers and images come from mmcv 2.x, and {lack}: pip install mmcv-lite"
