"""The dialect of MMEngine, MMSelfSup and MMPretrain configs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etude.dialects.base import Flag, Packaged
from etude_openmm.shared import flags
from etude_openmm.shared.generations import is_of_mmengine
from etude_openmm.shared.homes import home
from etude_openmm.shared.reading.keys import keys_in, texts_of
from etude_openmm.shared.silence import name_of, only, without

if TYPE_CHECKING:
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.plan import Plan

#: Keys that no other dialect has.
_OWN_KEYS = {
    "optim_wrapper", "train_dataloader", "val_evaluator", "default_hooks", "default_scope", "param_scheduler",
    "env_cfg", "randomness", "log_processor", "visualizer", "test_evaluator", "data_preprocessor",
}  # fmt: skip
#: A ``_base_`` inside an installed package.
_BASE_IN_PACKAGE = re.compile(r"""^_base_\s*=[^\n]*(\n[^\n=]*)*?["']\w+::""", re.MULTILINE)
_IMPORTS = re.compile(r"^\s*(from|import)\s+mmengine\b|^with read_base\(\):", re.MULTILINE)


class MMEngine(Packaged):
    """Reads configs of ``mmengine.runner.Runner``."""

    name = "mmengine"
    title = "MMEngine"
    asked = 30
    seed_key = ("randomness", "seed")
    best_keys = (("default_hooks", "checkpoint", "save_best"), ("default_hooks", "checkpoint", "rule"))
    idle_flags = ("allow_change",)
    flags = (
        flags.LOAD_FROM,
        flags.NO_VALIDATE,
        Flag("--amp", "mixed precision", {"action": "store_true"}),
        Flag("--auto-scale-lr", "scale the learning rate by the batch size", {"action": "store_true"}),
        *flags.SHARED,
    )

    def zoo(self, name: str) -> tuple[str, str] | None:
        from etude_openmm.shared.zoo import address

        return address(name)

    def recognise(self, path: str, text: str) -> bool:
        """Return whether the file, or a base of it, has a key of MMEngine, imports its bases, or is a project's."""
        if not path.endswith((".py", ".json", ".yaml", ".yml")):
            return False
        if path.endswith(".py") and (_IMPORTS.search(text) or _BASE_IN_PACKAGE.search(text)):
            return True
        if keys_in(texts_of(path, text)) & _OWN_KEYS:
            return True
        return path.endswith(".py") and is_of_mmengine(home(path))

    def trains(self, plan: Plan) -> bool:
        return "train" in plan.data and bool(plan.model.name)

    def prepare(self, run: Run) -> None:
        from etude_openmm.mmengine.live.rehearse import prepare

        prepare(run)

    def listing(self, tree: Tree | None = None) -> dict[str, dict[str, str]]:
        from etude_openmm.mmengine.schema import tables

        return tables(tree)

    def silent(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        made = dict(source)
        for key in ("visualizer", "default_visualizer"):
            if isinstance(made.get(key), dict):
                made[key] = made[key] | {"vis_backends": only(made[key].get("vis_backends"), ["LocalVisBackend"])}
        if "vis_backends" in made:
            made["vis_backends"] = only(made["vis_backends"], ["LocalVisBackend"])
        # A new best checkpoint would replace the file of the old one.
        hooks = made.get("default_hooks")
        if isinstance(hooks, dict):
            made["default_hooks"] = {name: _kept_inside(hook) for name, hook in hooks.items()}
        if isinstance(made.get("custom_hooks"), list):
            made["custom_hooks"] = [_kept_inside(hook) for hook in made["custom_hooks"]]
        return made


def _kept_inside(hook: Any) -> Any:
    """Return a hook that saves nothing outside of the work folder."""
    return without(hook, "out_dir", "save_best", "published_keys") if name_of(hook) == "CheckpointHook" else hook
