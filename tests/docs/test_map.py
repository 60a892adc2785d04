"""The map of the code names files that exist."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT
from tests.places import ENGINE

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_of_the_map_is_there() -> None:
    table = TEXT[TEXT.index("| you look for") : TEXT.index("## Folders")]
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", table)
    missing = [path for path in named if path != "live/" and not (ENGINE / path).exists()]
    assert len(named) > 60 and missing == []


def test_every_folder_is_in_the_drawing() -> None:
    folders = [path.name for path in ENGINE.iterdir() if (path / "__init__.py").is_file()]
    drawing = TEXT[TEXT.index("## Folders") :]
    assert [name for name in folders if f"{name}/" not in drawing] == []
