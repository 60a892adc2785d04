"""McQuic, as a dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Hosted, driven

if TYPE_CHECKING:
    from etude.build import Options
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.dialects.base import Assemble, Lowering, Measure
    from etude.dialects.rehearsal import Record
    from etude.plan import Plan

_KEYS = re.compile(r"^\s+[\"']?(schdr|valFreq|trainSet|valSet|externalLib|wantsMore|batchSize)[\"']?\s*:", re.MULTILINE)
#: No other system says ``key`` and ``params`` of its model.
_MODEL = re.compile(
    r"^[\"']?model[\"']?\s*:\s*(\{\s*[\"']?(key|params)\b|\n\s+[\"']?(key|params)[\"']?\s*:)", re.MULTILINE
)


class McQuic(Hosted):
    """Configs of ``mcquic train``."""

    name = "mcquic"
    title = "McQuic"

    def recognise(self, path: str, text: str) -> bool:
        if not path.endswith((".yaml", ".yml", ".json")):
            return False
        return len(set(_KEYS.findall(text))) >= 2 or _MODEL.search(text) is not None

    def lowering(self) -> Lowering:
        from etude.dialects.mcquic import lower

        return lower

    def build(self, plan: Plan, options: Options, assemble: Assemble) -> Run:
        from etude.dialects.mcquic.live.build import build

        return driven(build(plan, options))

    def rehearse(self, run: Run, record: Record) -> bool:
        from etude.dialects.mcquic.live.rehearse import rehearse

        rehearse(run, record)
        return True

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        from etude.dialects.mcquic.live.build import measure as own

        return own(plan, options, checkpoint, split)

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        from etude.dialects.mcquic.listing import tables

        return tables(tree)

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        from etude.dialects.mcquic import listing

        return listing.schema(tree)

    def reference(self, tree: Tree | None = None) -> str:
        from etude.dialects.mcquic.config import markdown_schema

        return markdown_schema()

    def convert(self, tree: Tree) -> tuple[dict[str, Any], list[str]]:
        from etude.dialects.mcquic.convert import convert

        return convert(tree)
