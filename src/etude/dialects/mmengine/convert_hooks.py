"""Hooks of an MMEngine config in a native one: which can act there, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.mmengine import hook_sources
from etude.dialects.mmengine.lower import TABLES
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.escaped_types import hidden

#: Hooks with native counterparts of the same result.
_NATIVE = {"EmptyCacheHook": "EmptyCache", "SyncBuffersHook": "SyncBuffers"}
#: Hooks that keep their own rules in the native engine, with their arguments.
_KEPT = {"EMAHook": "mmengine.EMA", "EarlyStoppingHook": "mmengine.EarlyStopping"}
#: The hooks of every run, whose work the native engine does in its own way.
_USUAL = {
    "runtime_info": "RuntimeInfoHook", "timer": "IterTimerHook", "sampler_seed": "DistSamplerSeedHook",
    "logger": "LoggerHook", "param_scheduler": "ParamSchedulerHook", "checkpoint": "CheckpointHook",
}  # fmt: skip
#: Hooks that leave something of their own beside a run.
_REFUSED = {"ProfilerHook": "use the native hook Profiler", "NPUProfilerHook": "use the native hook Profiler"}
#: Where schedulers move and where evaluations begin, by MMEngine's numbers and by native ones.
_LOG, _SCHEDULERS, _BETWEEN, _BEHIND = 60, 70, 61, 66


class Hooks:
    """The hooks of a config that are not every run's."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.low = tree, Lowering(tree)

    def obstacles(self) -> Iterator[tuple[Path, str]]:
        """Hooks that cannot be converted, and why."""
        given = self.tree.get("default_hooks") or {}
        for key, usual in _USUAL.items():
            if key in given and not _is_usual(key, given[key], usual):
                yield ("default_hooks", key), f"default_hooks.{key}={_name(given[key])}"
        for path, hook in self._listed():
            name = _name(hook)
            if name in _REFUSED:
                yield path, f"the hook {name}"
            elif name not in (*_NATIVE, *_KEPT) or self._is_own(name):
                why = hook_sources.obstacle(self._target(hook), self.low.folders)
                if why:
                    yield path, f"the hook {name}, {why},"

    def converted(self) -> list[dict[str, Any]]:
        """Native entries in the order in which the hooks act."""
        ordered = sorted(self._listed(), key=lambda entry: self._priority(entry[1]))
        return [self._entry(hook) for _, hook in ordered]

    def _entry(self, hook: Mapping[str, Any]) -> dict[str, Any]:
        name = _name(hook)
        config = {key: value for key, value in hook.items() if key not in ("type", "priority")}
        if name in _NATIVE and not self._is_own(name):
            return {"type": _NATIVE[name]}
        if name in _KEPT and not self._is_own(name):
            kept = {"type": _KEPT[name], "config": hidden(config, "custom_hooks")}
            return {**kept, "priority": 100 if name == "EarlyStoppingHook" else self._place(hook)}
        whole = {"type": hook["type"], **config}
        return {"type": "mmengine.Hook", "priority": self._place(hook), "config": hidden(whole, "custom_hooks")}

    def _place(self, hook: Mapping[str, Any]) -> int:
        """A native priority: all hooks act before evaluations, as MMEngine's do, and relative to log and schedulers."""
        number = self._priority(hook)
        return number if number < _LOG else _BETWEEN if number < _SCHEDULERS else _BEHIND

    def _priority(self, hook: Mapping[str, Any]) -> int:
        return hook_sources.priority_of(hook, self._target(hook), self.low.folders)

    def _listed(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """In the order in which they are registered."""
        for key, hook in (self.tree.get("default_hooks") or {}).items():
            if key not in _USUAL and isinstance(hook, Mapping):
                yield ("default_hooks", str(key)), hook
        for index, hook in enumerate(self.tree.get("custom_hooks") or []):
            yield ("custom_hooks", index), hook

    def _is_own(self, name: str) -> bool:
        return ("HOOKS", name) in self.low.registered

    def _target(self, hook: Mapping[str, Any]) -> str:
        """``module:attr`` of the class that a hook's ``type`` names."""
        full, name = str(hook.get("type", "")), _name(hook)
        found = self.low.registered.get(("HOOKS", name)) or TABLES["HOOKS"].get(name)
        module, _, attribute = full.rpartition(".")
        return found or f"{module}:{attribute}"


def _is_usual(key: str, hook: Any, usual: str) -> bool:
    """Whether the native engine's own way is the same: what only shows or measures may also be switched off."""
    if hook is None:
        return key in ("runtime_info", "timer", "sampler_seed", "logger", "checkpoint")
    return _name(hook) in ("", usual)


def _name(hook: Any) -> str:
    kind = hook.get("type", "") if isinstance(hook, Mapping) else "None" if hook is None else ""
    return str(kind).rpartition(".")[2]
