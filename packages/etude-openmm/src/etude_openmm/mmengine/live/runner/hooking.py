"""Registers MMEngine hooks in order of priority, and lets Étude's training loop call them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from etude.core.hook import Call, HookTable, WrappingHook, origin_of
from etude.core.run import Run
from etude.dialects.config_errors import note_actor
from etude.dialects.properties import reads
from etude.errors.spelling import nearest
from etude_openmm.mmengine.live import user_errors
from etude_openmm.mmengine.live.hooks.hook import Hook, acts_at, overrides
from etude_openmm.mmengine.live.runner.views import Views
from etude_openmm.shared.priority import Priority, get_priority, listed
from etude_openmm.shared.registries.root import HOOKS

DEFAULT_HOOKS = {
    "runtime_info": {"type": "RuntimeInfoHook"},
    "timer": {"type": "IterTimerHook"},
    "sampler_seed": {"type": "DistSamplerSeedHook"},
    "logger": {"type": "LoggerHook"},
    "param_scheduler": {"type": "ParamSchedulerHook"},
    "checkpoint": {"type": "CheckpointHook", "interval": 1},
}


class Acting(WrappingHook):
    """Wraps an MMEngine hook for Étude's hook table, which calls its methods with the runner."""

    def __init__(self, hook: Hook, runner: Any, position: int) -> None:
        self.hook, self.runner, self.priority = hook, runner, position

    def calls(self) -> Mapping[str, Call]:
        acting = [(point, name) for point, name in _METHODS.items() if acts_at(self.hook, name)]
        return {point: CALLS[name](_method(self.hook, name), self.runner) for point, name in acting}

    def word_for(self, point: str) -> str:
        return _METHODS[point]


def _method(hook: Hook, point: str) -> Callable[..., Any]:
    """Return the method to call at ``point`` of training.

    If the hook does not override it, this is the fallback itself (``_after_iter``), which saves one call per step.
    """
    if overrides(hook, point):
        return getattr(hook, point)  # type: ignore[no-any-return]
    return partial(getattr(hook, f"_{point.replace('train_', '')}"), mode="train")


def _with_runner(method: Callable[..., Any], runner: Any) -> Call:
    def call(run: Run) -> None:
        try:
            method(runner)
        except TypeError as error:
            user_errors.of_call(error, method)
            raise

    return call


def _before_iter(method: Callable[..., Any], runner: Any) -> Call:
    def call(run: Run) -> None:
        try:
            method(runner, batch_idx=run.step_in_epoch, data_batch=run.batch)
        except TypeError as error:
            user_errors.of_call(error, method)
            raise

    return call


def _after_iter(method: Callable[..., Any], runner: Any) -> Call:
    def call(run: Run) -> None:
        try:
            method(runner, batch_idx=run.step_in_epoch, data_batch=run.batch, outputs=run.outputs)
        except TypeError as error:
            user_errors.of_call(error, method)
            raise

    return call


#: Étude's callback points of training → the names of MMEngine's methods.
_METHODS = {
    "before_epoch": "before_train_epoch", "before_step": "before_train_iter",
    "after_step": "after_train_iter", "after_epoch": "after_train_epoch",
}  # fmt: skip
#: MMEngine's methods → how Étude's table calls them.
CALLS: dict[str, Callable[..., Call]] = {
    "before_train_epoch": _with_runner, "before_train_iter": _before_iter,
    "after_train_iter": _after_iter, "after_train_epoch": _with_runner,
}  # fmt: skip


class Hooking(Views):
    """The part of a runner that holds its hooks. Registration decides which hooks act at which point."""

    _hooks: list[Hook]

    #: All hooks in the order they act.
    hooks: list[Hook] = reads("_hooks")

    def register_hook(self, hook: Hook | dict[str, Any], priority: str | int | Priority | None = None) -> None:
        """Add a hook behind the last one of equal or smaller priority.

        The argument ``priority`` comes before the key ``priority`` of a config, and that before the class attribute.
        """
        if not isinstance(hook, Hook | dict):
            raise TypeError(f"hook should be an instance of Hook or dict, but got {hook!r}")
        if isinstance(hook, dict):
            options = dict(hook)
            configured = options.pop("priority", None)
            priority = configured if priority is None else priority
            made: Hook = HOOKS.build(options)
        else:
            made = hook
        if priority is not None:
            made.priority = priority  # type: ignore[assignment]
        self._insert(made)
        self._warn_of_misspelt(made)

    def _insert(self, hook: Hook) -> None:
        number = get_priority(hook.priority)
        at = len(self._hooks)
        while at > 0 and number < get_priority(self._hooks[at - 1].priority):
            at -= 1
        self._hooks.insert(at, hook)
        self._settle_hooks()

    def register_default_hooks(self, hooks: dict[str, Hook | dict[str, Any] | None] | None = None) -> None:
        """Register the six default hooks; an entry of ``hooks`` replaces, removes (None) or adds one."""
        chosen: dict[str, Any] = dict(DEFAULT_HOOKS)
        for name, hook in (hooks or {}).items():
            if hook is None and name in chosen:
                chosen.pop(name)
            else:
                assert hook is not None, f"there is no default hook {name!r} to switch off, known: {list(chosen)}"
                chosen[name] = hook
        for hook in chosen.values():
            self.register_hook(hook)

    def register_custom_hooks(self, hooks: Iterable[Hook | dict[str, Any]]) -> None:
        """Register hooks in addition to the default ones."""
        for hook in hooks:
            self.register_hook(hook)

    def register_hooks(
        self,
        default_hooks: dict[str, Hook | dict[str, Any] | None] | None = None,
        custom_hooks: Iterable[Hook | dict[str, Any]] | None = None,
    ) -> None:
        """Register the default hooks, then the custom ones. Hooks of equal priority keep this order."""
        self.register_default_hooks(default_hooks)
        if custom_hooks is not None:
            self.register_custom_hooks(custom_hooks)

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call ``fn_name`` of every hook that has it. You may also call points that MMEngine does not have."""
        # ``runner.hooks`` is the list itself. A script may change it, and in MMEngine that takes effect at once.
        if self._settled != self._hooks:
            self._settle_hooks()
        active = self._active.get(fn_name)
        if active is None:
            active = self._active[fn_name] = [hook for hook in self._hooks if acts_at(hook, fn_name)]
        for hook in active:
            try:
                getattr(hook, fn_name)(self, **kwargs)
            except Exception as error:
                if isinstance(error, TypeError):
                    user_errors.of_call(error, getattr(hook, fn_name))
                note_actor(error, hook)
                error.add_note(f"in {type(hook).__name__}.{fn_name} ({origin_of(type(hook))})")
                raise

    def _settle_hooks(self) -> None:
        """Rebuild Étude's hook table, keeping its native hooks, and clear the cache of active hooks."""
        self._settled = list(self._hooks)
        self._active: dict[str, list[Hook]] = {}
        run = getattr(self, "engine", None)
        if run is not None:
            others = [hook for hook in run.hooks if not isinstance(hook, Acting)]
            run.hooks = HookTable([*(Acting(hook, self, at) for at, hook in enumerate(self._hooks)), *others])

    def get_hooks_info(self) -> str:
        """Return a text that lists, for every point, the hooks that act there in order, with their priorities."""
        return listed(self._hooks, Hook.stages)

    def _warn_of_misspelt(self, hook: Hook) -> None:
        """Warn about a misspelt method like ``after_train_itr``, which would never be called."""
        for name, _ in inspect.getmembers(type(hook), inspect.isfunction):
            if name.startswith(("before_", "after_")) and not hasattr(Hook, name):
                meant = nearest(name, Hook.stages)
                if meant is not None:
                    logger = getattr(self, "logger", None) or logging.getLogger("mmengine")
                    logger.warning(
                        f"{type(hook).__name__}.{name} is not a method that MMEngine calls; did you mean {meant}?"
                    )
