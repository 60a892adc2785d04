"""The dialect of McQuic configs."""

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

_KEYS = r"(?m)^\s+[\"']?(schdr|valFreq|trainSet|valSet|externalLib|wantsMore|batchSize)[\"']?\s*:"
#: Only McQuic's configs have ``key`` and ``params`` in ``model``.
_MODEL = r"(?m)^[\"']?model[\"']?\s*:\s*(\{\s*[\"']?(key|params)\b|\n\s+[\"']?(key|params)[\"']?\s*:)"


class McQuic(Hosted):
    """Reads configs of ``mcquic train``."""

    name = "mcquic"
    title = "McQuic"

    def recognise(self, path: str, text: str) -> bool:
        if not path.endswith((".yaml", ".yml", ".json")):
            return False
        return len(set(re.findall(_KEYS, text))) >= 2 or re.search(_MODEL, text) is not None

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
        from etude.dialects.mcquic.schema import markdown_schema

        return markdown_schema()

    def convert(self, tree: Tree) -> tuple[dict[str, Any], list[str]]:
        from etude.dialects.mcquic.convert import convert

        return convert(tree)
