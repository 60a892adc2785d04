"""Methods of user-defined hooks that are almost called like a point: nothing would ever call them."""

from __future__ import annotations

from etude.dialects.mmengine.checks.components import Components
from etude.dialects.openmm.checks.hook_methods import report_methods

_HOOK = "etude.dialects.mmengine.live.hooks.hook:Hook"
#: Points of mmcv 1.x that MMEngine calls otherwise.
_FORMER = {
    "before_epoch": "before_train_epoch", "after_epoch": "after_train_epoch", "before_iter": "before_train_iter",
    "after_iter": "after_train_iter",
}  # fmt: skip


def report_hook_methods(components: Components) -> None:
    """Read the sources of the hooks that the config names."""
    for path, name in components.low.tree.walk():
        if path[0] in ("custom_hooks", "default_hooks") and path[-1] == "type":
            report_methods(components.low, components.target(name, ("HOOKS",)), _HOOK, _FORMER)
