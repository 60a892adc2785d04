"""The names of model zoos in configs (``open-mmlab://…``): their addresses, from the tables of mmengine or mmcv."""

from __future__ import annotations

import json
import os
from functools import cache

from etude.dialects import ownership

#: Scheme → the table in ``mmengine/hub`` and in ``mmcv/model_zoo``.
_TABLES = {
    "torchvision": ("torchvision_0.12.json", "torchvision_0.12.json"),
    "modelzoo": ("torchvision_0.12.json", "torchvision_0.12.json"),
    "open-mmlab": ("openmmlab.json", "open_mmlab.json"),
    "openmmlab": ("openmmlab.json", "open_mmlab.json"),
    "mmcls": ("mmcls.json", "mmcls.json"),
}
_FOLDERS = (("mmengine", "hub"), ("mmcv", "model_zoo"))


def address(text: str) -> tuple[str, str] | None:
    """Return the address of a name, and the file that it is read from; None for a text that is no such name.

    The address is empty if no table has the name, or none is installed.
    """
    scheme, mark, model = text.partition("://")
    if not mark or scheme not in _TABLES or not model:
        return None
    url, stem = _addresses(scheme).get(_today(model), ""), model.replace("/", "_")
    name = os.path.basename(url)
    return url, name if name.startswith(f"{stem}-") else f"{stem}.pth"


@cache
def _addresses(scheme: str) -> dict[str, str]:
    for (package, folder), file in zip(_FOLDERS, _TABLES[scheme], strict=True):
        found = _read(package, os.path.join(folder, file))
        if found:
            return found
    return {}


def _today(model: str) -> str:
    """Return the name that has taken the place of an older one."""
    for package, folder in _FOLDERS:
        if model in (found := _read(package, os.path.join(folder, "deprecated.json"))):
            return found[model]
    return model


@cache
def _read(package: str, file: str) -> dict[str, str]:
    top = ownership.original(package)
    try:
        with open(os.path.join(top or "", file), encoding="utf-8") as table:
            return dict(json.load(table)) if top else {}
    except (OSError, ValueError):
        return {}
