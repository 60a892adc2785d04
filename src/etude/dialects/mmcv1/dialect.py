"""The dialect of mmcv 1.x, MMClassification and MMTracking configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Flag, Hosted, driven
from etude.dialects.openmm import flags
from etude.dialects.openmm.reading.keys import keys_in, texts_of

if TYPE_CHECKING:
    from etude.build import Options
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.dialects.base import Assemble, Lowering, Measure
    from etude.dialects.rehearsal import Record
    from etude.plan import Plan

#: Keys that no other dialect has.
_OWN_KEYS = {
    "optimizer_config", "lr_config", "momentum_config", "checkpoint_config", "log_config", "total_epochs",
    "dist_params", "resume_from", "evaluation", "workflow",
}  # fmt: skip


class Mmcv1(Hosted):
    """Reads configs of train scripts that use ``mmcv.runner``."""

    name = "mmcv1"
    title = "mmcv 1.x"
    seed_key = ("seed",)
    idle_flags = ("allow_change",)
    flags = (
        Flag("--resume-from", "resume from this checkpoint", {"metavar": "FILE"}, instead="--resume FILE does"),
        Flag("--auto-resume", "resume from the newest checkpoint", {"action": "store_true"}, instead="--resume does"),
        flags.LOAD_FROM,
        flags.NO_VALIDATE,
        Flag("--deterministic", "deterministic kernels of cuDNN", {"action": "store_true"}),
        Flag("--diff-seed", "seed + rank on every rank", {"action": "store_true"}),
        *flags.SHARED,
    )

    def recognise(self, path: str, text: str) -> bool:
        """Return whether the file, or a base of it, has a key that only this dialect has."""
        if not path.endswith((".py", ".json", ".yaml", ".yml")):
            return False
        return bool(keys_in(texts_of(path, text)) & _OWN_KEYS) or "samples_per_gpu" in text

    def lowering(self) -> Lowering:
        from etude.dialects.mmcv1 import lower

        return lower

    def build(self, plan: Plan, options: Options, assemble: Assemble) -> Run:
        from etude.dialects.mmcv1.live.build import build

        return driven(build(plan, options))

    def rehearse(self, run: Run, record: Record) -> bool:
        from etude.dialects.mmcv1.live.rehearse import rehearse

        rehearse(run, record)
        return True

    def measure(self, plan: Plan, options: Options, checkpoint: str, split: str, measure: Measure) -> Mapping[str, Any]:
        from etude.dialects.mmcv1.live.build import measure as own

        return own(plan, options, checkpoint, split)

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        from etude.dialects.mmcv1.listing import tables

        return tables()

    def schema(self, tree: Tree | None = None) -> dict[str, Any]:
        from etude.dialects.mmcv1.schema import json_schema

        return json_schema(tree)

    def reference(self, tree: Tree | None = None) -> str:
        from etude.dialects.mmcv1.schema import markdown_schema

        return markdown_schema(tree)

    def convert(self, tree: Tree) -> tuple[dict[str, Any], list[str]]:
        from etude.dialects.mmcv1.convert import convert

        return convert(tree)
