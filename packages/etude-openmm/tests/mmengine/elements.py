"""Data samples of the real mmengine, which come from the disk; the tests' own environment has none."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from tests.projects.conftest import fetched


def element(**fields: Any) -> Any:
    """Return a ``BaseDataElement``."""
    return _class()(**fields)


@cache
def _class() -> Any:
    [folder] = fetched(("mmengine-0.10.7",))
    file = folder / "mmengine" / "structures" / "base_data_element.py"
    spec = importlib.util.spec_from_file_location("mmengine.structures.base_data_element", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BaseDataElement
