"""Builds and registers hooks and runners from mmcv configs: ``register_lr_hook``, ``build_runner`` …"""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

from etude.dialects.properties import reads
from etude.errors.spelling import nearest, suggest
from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks.hook import GENERIC, HOOKS, Hook
from etude_openmm.shared.errors import ConfigKeyError, ConfigValueError
from etude_openmm.shared.priority import Priority, get_priority, listed
from etude_openmm.shared.registries.registry_v1 import Registry, build_from_cfg

_METHODS = (*Hook.stages, *dict.fromkeys(GENERIC.values()))


class Registration:
    """The ``register_*`` methods of a runner. Each takes None, a dict or a hook, and has a fixed priority."""

    _hooks: list[Hook]

    #: All registered hooks, in the order they act.
    hooks: list[Hook] = reads("_hooks")

    def register_hook(self, hook: Hook, priority: int | str | Priority = "NORMAL") -> None:
        """Insert ``hook`` after all hooks of the same or an earlier priority."""
        require(isinstance(hook, Hook), f"a hook must be derived from mmcv.runner.Hook, got {type(hook).__name__}")
        if hasattr(hook, "priority"):
            raise ConfigValueError(
                f"{type(hook).__name__} has a `priority` already: it was registered before, or defines that attribute",
                hint="give the priority to register_hook, or in the config",
            )
        _warn_misspelt(hook)
        value = get_priority(priority)
        hook.priority = value  # type: ignore[attr-defined]
        behind = next((i for i, other in enumerate(self._hooks) if _priority(other) > value), len(self._hooks))
        self._hooks.insert(behind, hook)

    def register_hook_from_cfg(self, hook_cfg: dict[str, Any]) -> None:
        """Build and register a hook from a dict that may have a ``priority``."""
        settings = dict(hook_cfg)
        priority = settings.pop("priority", "NORMAL")
        self.register_hook(build_from_cfg(settings, HOOKS), priority=priority)

    def register_lr_hook(self, lr_config: dict[str, Any] | Hook | None) -> None:
        self._register_policy(lr_config, "LrUpdaterHook", "lr_config", "VERY_HIGH")

    def register_momentum_hook(self, momentum_config: dict[str, Any] | Hook | None) -> None:
        self._register_policy(momentum_config, "MomentumUpdaterHook", "momentum_config", "HIGH")

    def register_optimizer_hook(self, optimizer_config: dict[str, Any] | Hook | None) -> None:
        self._register_typed(optimizer_config, "OptimizerHook", "ABOVE_NORMAL")

    def register_checkpoint_hook(self, checkpoint_config: dict[str, Any] | Hook | None) -> None:
        self._register_typed(checkpoint_config, "CheckpointHook", "NORMAL")

    def register_timer_hook(self, timer_config: dict[str, Any] | Hook | None) -> None:
        self._register_typed(copy.deepcopy(timer_config), "IterTimerHook", "LOW")

    def register_profiler_hook(self, profiler_config: dict[str, Any] | Hook | None) -> None:
        self._register_typed(profiler_config, "ProfilerHook", "NORMAL")

    def register_logger_hooks(self, log_config: dict[str, Any] | None) -> None:
        if log_config is None:
            return
        for key in ("interval", "hooks"):
            if key not in log_config:
                raise ConfigKeyError(f"log_config needs `{key}`", hint="log_config = dict(interval=50, hooks=[…])")
        for info in log_config["hooks"]:
            hook = build_from_cfg(info, HOOKS, default_args={"interval": log_config["interval"]})
            self.register_hook(hook, priority="VERY_LOW")

    def register_custom_hooks(self, custom_config: Any) -> None:
        """Register a dict or a hook, or a list of them; a dict may have a ``priority``."""
        if custom_config is None:
            return
        for item in custom_config if isinstance(custom_config, list) else [custom_config]:
            if isinstance(item, dict):
                self.register_hook_from_cfg(item)
            else:
                self.register_hook(item, priority="NORMAL")

    def register_training_hooks(
        self,
        lr_config: dict[str, Any] | Hook | None,
        optimizer_config: dict[str, Any] | Hook | None = None,
        checkpoint_config: dict[str, Any] | Hook | None = None,
        log_config: dict[str, Any] | None = None,
        momentum_config: dict[str, Any] | Hook | None = None,
        timer_config: dict[str, Any] | Hook | None = {"type": "IterTimerHook"},  # noqa: B006
        custom_hooks_config: Any = None,
    ) -> None:
        """Register the default hooks of a run, then the custom ones, which come last among equal priorities."""
        self.register_lr_hook(lr_config)
        self.register_momentum_hook(momentum_config)
        self.register_optimizer_hook(optimizer_config)
        self.register_checkpoint_hook(checkpoint_config)
        self.register_timer_hook(timer_config)
        self.register_logger_hooks(log_config)
        self.register_custom_hooks(custom_hooks_config)

    def get_hook_info(self) -> str:
        """Return a text for the log that lists the hooks of every stage."""
        return listed(self._hooks, Hook.stages)

    def _register_policy(self, config: Any, suffix: str, key: str, priority: str) -> None:
        if config is None:
            return
        if isinstance(config, dict):
            require("policy" in config, f"{key} needs a `policy`: one of {', '.join(policies(suffix))}")
            # As in mmcv, the dict itself is changed: it cannot be registered twice.
            policy = config.pop("policy")
            # 'step' names StepLrUpdaterHook, but 'cosineannealing' no class: other names are written as the class.
            name = policy.title() if policy == policy.lower() else policy
            if HOOKS.get(name + suffix) is None:
                raise ConfigKeyError(f"no {key} policy is called {policy!r}", hint=suggest(policy, policies(suffix)))
            config["type"] = name + suffix
            hook = build_from_cfg(config, HOOKS)
        else:
            hook = config
        self.register_hook(hook, priority=priority)

    def _register_typed(self, config: Any, default: str, priority: str) -> None:
        if config is None:
            return
        if isinstance(config, dict):
            config.setdefault("type", default)
            config = build_from_cfg(config, HOOKS)
        self.register_hook(config, priority=priority)


def policies(suffix: str) -> list[str]:
    """Return the names that ``policy`` may have for hooks whose class ends in ``suffix``."""
    return sorted(name[: -len(suffix)] for name in HOOKS.module_dict if name.endswith(suffix))


def _priority(hook: Hook) -> int:
    return int(getattr(hook, "priority", 50))


def _warn_misspelt(hook: Hook) -> None:
    """Warn about a method whose name is almost that of a stage: nothing would ever call it."""
    for name, _ in inspect.getmembers(type(hook), inspect.isfunction):
        if name.startswith(("before_", "after_")) and name not in _METHODS and not hasattr(Hook, name):
            near = nearest(name, _METHODS)
            if near is not None:
                warnings.warn(
                    f"{type(hook).__name__}.{name} looks like a stage and is none; did you mean {near!r}?", stacklevel=4
                )


RUNNERS = Registry("runner", scope="mmcv")
RUNNER_BUILDERS = Registry("runner builder", scope="mmcv")


def build_runner_constructor(cfg: dict[str, Any]) -> Any:
    return build_from_cfg(cfg, RUNNER_BUILDERS)


def build_runner(cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> Any:
    """Build the runner of ``cfg``. ``default_args`` hold what only the script knows (model, optimizer, …)."""
    settings = copy.deepcopy(cfg)
    constructor = settings.pop("constructor", "DefaultRunnerConstructor")
    build = build_runner_constructor({"type": constructor, "runner_cfg": settings, "default_args": default_args})
    return build()


@RUNNER_BUILDERS.register_module()
class DefaultRunnerConstructor:
    """Builds ``runner_cfg['type']`` with the other keys and the default arguments."""

    def __init__(self, runner_cfg: dict[str, Any], default_args: dict[str, Any] | None = None) -> None:
        if not isinstance(runner_cfg, dict):
            raise TypeError(f"runner_cfg must be a dict, got {type(runner_cfg).__name__}")
        self.runner_cfg, self.default_args = runner_cfg, default_args

    def __call__(self) -> Any:
        return RUNNERS.build(self.runner_cfg, default_args=self.default_args)
