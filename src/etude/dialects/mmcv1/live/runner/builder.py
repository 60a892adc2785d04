"""Runners from a config."""

from __future__ import annotations

import copy
from typing import Any

from etude.dialects.openmm.registries.registry_v1 import Registry, build_from_cfg

RUNNERS = Registry("runner", scope="mmcv")
RUNNER_BUILDERS = Registry("runner builder", scope="mmcv")


def build_runner_constructor(cfg: dict[str, Any]) -> Any:
    return build_from_cfg(cfg, RUNNER_BUILDERS)


def build_runner(cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> Any:
    """The runner that ``cfg`` asks for; ``default_args`` are what only the script knows (model, optimizer, …)."""
    settings = copy.deepcopy(cfg)
    constructor = settings.pop("constructor", "DefaultRunnerConstructor")
    build = build_runner_constructor({"type": constructor, "runner_cfg": settings, "default_args": default_args})
    return build()


@RUNNER_BUILDERS.register_module()
class DefaultRunnerConstructor:
    """Builds ``runner_cfg['type']`` with the other keys and the defaults."""

    def __init__(self, runner_cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> None:
        if not isinstance(runner_cfg, dict):
            raise TypeError(f"runner_cfg must be a dict, got {type(runner_cfg).__name__}")
        self.runner_cfg, self.default_args = runner_cfg, default_args

    def __call__(self) -> Any:
        return RUNNERS.build(self.runner_cfg, default_args=self.default_args)
