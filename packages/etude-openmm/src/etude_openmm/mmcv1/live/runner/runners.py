"""The names of ``mmcv.runner``. Importing this module registers all hooks that a config may name."""

from __future__ import annotations

from typing import Any

from etude_openmm.mmcv1.live.hooks import (  # noqa: F401  each registers its hooks
    checkpoint_hook,
    ema,
    evaluation,
    lr_updater,
    momentum_updater,
    optimizer_hook,
    profiler,
    small_hooks,
)
from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.logger import text, trackers  # noqa: F401
from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner, get_host_info
from etude_openmm.mmcv1.live.runner.epoch_runner import EpochBasedRunner, Runner
from etude_openmm.mmcv1.live.runner.iter_runner import IterBasedRunner, IterLoader
from etude_openmm.mmcv1.live.runner.registration import (
    RUNNER_BUILDERS,
    RUNNERS,
    DefaultRunnerConstructor,
    build_runner,
)

__all__ = [
    "HOOKS", "RUNNERS", "RUNNER_BUILDERS", "BaseRunner", "DefaultRunnerConstructor", "EpochBasedRunner", "Hook",
    "IterBasedRunner", "IterLoader", "Runner", "build_runner", "get_host_info", "obj_from_dict",
]  # fmt: skip


def obj_from_dict(info: dict[str, Any], parent: Any = None, default_args: dict[str, Any] | None = None) -> Any:
    """Build the object that ``info`` describes. Its ``type`` is a class, or a name in ``parent``."""
    args = {**(default_args or {}), **info}
    kind = args.pop("type")
    return (getattr(parent, kind) if isinstance(kind, str) else kind)(**args)
