"""Drafts the parts of a native config that mmcv 1.x and MMEngine write alike: classes and parameter groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.builtins import OPTIMIZERS
from etude.config.tree import Path, Tree
from etude.dialects.draft import HOW_MODELS_ARE_CALLED, Draft
from etude_openmm.shared.checks.lowering import Lowering

#: Keys of a component that say how its parent builds it, and are no arguments.
_NOT_ARGUMENTS = ("_scope_", "_delete_", "paramwise_cfg", "constructor")


class OpenDraft(Draft):
    """A draft whose classes are named by registries."""

    def __init__(self, tree: Tree, name: str) -> None:
        super().__init__(tree, name)
        self.low = Lowering(tree)
        self.notes.append(HOW_MODELS_ARE_CALLED)
        if self.low.modules:
            self.config["imports"] = list(self.low.modules)
            self.take("custom_imports")

    def part(self, *path: str | int, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the component at ``path`` under the dotted name of its class."""
        return self.component(*path, target=self.name(*path), leave_out=(*_NOT_ARGUMENTS, *leave_out))

    def name(self, *path: str | int) -> str:
        """Return the dotted name of the class at ``path``; its registered name if its module is unknown."""
        given = self.tree.get(*path)
        kind = str(given.get("type", "") if isinstance(given, Mapping) else given)
        own = next((to for (_, name), to in self.low.registered.items() if name == kind), "")
        if own:
            return own.replace(":", ".")
        if "." not in kind and kind not in OPTIMIZERS:
            self.notes.append(f"{self.tree.place(*path)}: write the dotted name of {kind}, as my_package.{kind}")
        return kind

    def optimizer(self, path: Path, rules: Path, clip: Path) -> None:
        """Add the optimizer with its parameter groups and clipping."""
        made = self.part(*path)
        for theirs, ours in (("max_norm", "clip_norm"), ("clip_value", "clip_value")):
            if self.tree.get(*clip, theirs) is not None:
                made[ours] = self.take(*clip, theirs)
        if self.tree.get(*clip, "norm_type") == 2:
            self.take(*clip, "norm_type")
        groups = self._groups(rules)
        self.config["optim"] = {**made, **({"groups": groups} if groups else {})}

    def _groups(self, path: Path) -> list[dict[str, Any]]:
        groups, keys = [], self.tree.get(*path, "custom_keys") or {}
        for key in sorted(sorted(keys), key=len, reverse=True):  # the longest is tried first, as in the original
            direct = [name for name in keys[key] if name in ("lr_mult", "decay_mult")]
            groups.append(
                {"match": f"*{key}*", **{name: self.take(*path, "custom_keys", key, name) for name in direct}}
            )
        if self.tree.get(*path, "norm_decay_mult") is not None:
            groups.append({"kind": "norm", "decay_mult": self.take(*path, "norm_decay_mult")})
        bias = {f"{name}_mult": self.take(*path, f"bias_{name}_mult") for name in ("lr", "decay")}
        bias = {name: value for name, value in bias.items() if value is not None}
        if bias and not any(group.get("kind") == "norm" for group in groups):
            decay = bias.get("decay_mult", 1.0)
            groups.append({"kind": "norm", "match": "*.bias", "decay_mult": decay})  # the rate is never theirs
        return [*groups, {"match": "*.bias", **bias}] if bias else groups

    def hooks(self, *path: str | int) -> None:
        """Note that hooks have another interface here; their settings stay in the list of what is left."""
        if self.tree.get(*path):
            self.notes.append("hooks: derive yours from etude.Hook; EMAHook is EMA, EarlyStoppingHook is EarlyStop")

    def factor(self, least: Any, base: Any) -> float:
        """Return a lowest learning rate as a factor of the base rate."""
        return float(least or 0.0) / float(base or 1.0)
