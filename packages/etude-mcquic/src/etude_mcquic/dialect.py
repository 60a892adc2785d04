"""The dialect of McQuic configs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Packaged

if TYPE_CHECKING:
    from etude.config.tree import Tree

_KEYS = r"(?m)^\s+[\"']?(schdr|valFreq|trainSet|valSet|externalLib|wantsMore|batchSize)[\"']?\s*:"
#: Only McQuic's configs have ``key`` and ``params`` in ``model``.
_MODEL = r"(?m)^[\"']?model[\"']?\s*:\s*(\{\s*[\"']?(key|params)\b|\n\s+[\"']?(key|params)[\"']?\s*:)"


class McQuic(Packaged):
    """Reads configs of ``mcquic train``."""

    name = "mcquic"
    title = "McQuic"
    asked = 10
    best_keys = (("train", "target"), ())

    def recognise(self, path: str, text: str) -> bool:
        if not path.endswith((".yaml", ".yml", ".json")):
            return False
        return len(set(re.findall(_KEYS, text))) >= 2 or re.search(_MODEL, text) is not None

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        from etude_mcquic import listing

        return listing.schema(tree)
