"""Runners with everything that a config may name registered: ``mmcv.runner``."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmcv1.live.hooks import all_hooks as _hooks
from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner, get_host_info
from etude.dialects.mmcv1.live.runner.builder import RUNNER_BUILDERS, RUNNERS, DefaultRunnerConstructor, build_runner
from etude.dialects.mmcv1.live.runner.epoch_runner import EpochBasedRunner, Runner
from etude.dialects.mmcv1.live.runner.iter_runner import IterBasedRunner, IterLoader

__all__ = [
    "HOOKS", "RUNNERS", "RUNNER_BUILDERS", "BaseRunner", "DefaultRunnerConstructor", "EpochBasedRunner",
    "IterBasedRunner", "IterLoader", "Runner", "build_runner", "get_host_info", "obj_from_dict",
]  # fmt: skip

HOOKS = _hooks.HOOKS


def obj_from_dict(info: dict[str, Any], parent: Any = None, default_args: dict[str, Any] | None = None) -> Any:
    """The object that ``info`` describes, its ``type`` a name in ``parent`` or a class."""
    args = {**(default_args or {}), **info}
    kind = args.pop("type")
    return (getattr(parent, kind) if isinstance(kind, str) else kind)(**args)
