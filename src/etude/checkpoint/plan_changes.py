"""Compares the plan that a checkpoint was made with to the plan that resumes from it.

The rule: what the plan says (lengths, rates, sizes, hooks) is taken from the new plan; what training has learnt and
counted (weights, moments, averages, counters, generators, position) from the checkpoint. A change that leads to
another result than the run would have had is accepted only by name: ``--allow-change KEY``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

from etude.config.dump import redact
from etude.errors import ConfigError, Finding, suggest
from etude.plan import Place, Plan, Spec
from etude.records import record
from etude.units import Amount

#: Keys that cannot change the numbers, or that users change to train longer: more epochs, more workers.
HARMLESS = (
    "dialect", "builder", "name", "folder", "imports", "files", "source", "init_from", "writers",
    "train.epochs", "train.steps", "train.max_seconds", "train.device", "train.compile",
    "train.gradient_checkpointing", "train.channels_last",
    "train.nonfinite", "train.nonfinite_limit", "metrics", "data.val", "data.test",
    "parallel", "hooks.Checkpoint", "hooks.Log", "hooks.Timer", "hooks.Evaluate",
)  # fmt: skip
#: Says in which words the facts are written; plans of different versions cannot be compared with each other.
VERSION_KEY, VERSION = "facts", 1
#: Words of the plan that a config calls otherwise.
_WORDS = {"optimizers": "optim", "schedules": "schedule", "losses": "loss"}
# Shorter values of the environment (`1`, `en`) occur in any text.
_SHORTEST_SECRET = 6
_HARMLESS_ENDS = (".workers", ".pin_memory", ".persistent_workers", ".timeout", ".on_bad_sample", ".bad_samples")


@record
class Change:
    """One key of the plan that differs; None: the key is not there."""

    key: str
    before: Any
    after: Any

    @property
    def harmless(self) -> bool:
        inside = any(self.key == key or self.key.startswith(f"{key}.") for key in HARMLESS)
        return inside or self.key.endswith(_HARMLESS_ENDS)

    def __str__(self) -> str:
        key = "train.max_time" if self.key == "train.max_seconds" else self.key
        return f"{key} {_shown(self.before)} -> {_shown(self.after)}"

    def allowed(self, keys: Iterable[str]) -> bool:
        """Return whether one of ``keys`` names this change: the key, a section above it, its last word, or ``all``."""
        last = self.key.rpartition(".")[2]
        return any(key in ("all", self.key, last) or self.key.startswith(f"{key}.") for key in keys)


def facts(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values by dotted key, without places."""
    flat: dict[str, Any] = {VERSION_KEY: VERSION}
    for field in dataclasses.fields(plan):
        if field.name not in ("source", "files"):
            _flatten(_WORDS.get(field.name, field.name), getattr(plan, field.name), flat)
    return flat


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return all keys that differ, in the order of the new plan; nothing if the two have different versions.

    A component that is new or gone (a hook) is one difference, whatever it was given.
    """
    if before.get(VERSION_KEY) != after.get(VERSION_KEY):
        return []
    keys = [*after, *(key for key in before if key not in after)]
    lone = {key.removesuffix(".type") for key in keys if key.endswith(".type") and (key in before) != (key in after)}
    found = {}
    for key in keys:
        if before.get(key) != after.get(key):
            whole = next((name for name in lone if key.startswith(f"{name}.")), "")
            name = f"{whole}.type" if whole else key
            found[whole or key] = Change(whole or key, before.get(name), after.get(name))
    return list(found.values())


def require_allowed(changes: Iterable[Change], allow: Iterable[str]) -> None:
    """Raise one error for all changes that alter the result and are not allowed."""
    refused = [change for change in changes if not change.harmless and not change.allowed(allow)]
    if refused:
        raise ConfigError(
            [
                Finding("", f"{change} changes the trajectory", f"--allow-change {change.key} accepts it{_if(change)}")
                for change in refused
            ]
        )


def _if(change: Change) -> str:
    """Return the condition on which a change of the model can be accepted."""
    return ", if the weights still fit" if change.key.startswith("model.") else ""


#: Names beside the keys of a plan: everything, the dataset's content, and what flags of their own accept.
_WORDS_OF_ALL = ("all", "data", "owner", "attempts")


def require_known(allow: Iterable[str], keys: Iterable[str]) -> None:
    """Raise for names that could not allow anything: of no key, of no section, and no last word of a key."""
    known = dict.fromkeys(_WORDS_OF_ALL)
    for key in keys:
        steps = key.split(".")
        known |= dict.fromkeys([key, steps[-1], *(".".join(steps[:count]) for count in range(1, len(steps)))])
    unknown = [name for name in allow if name not in known]
    if unknown:
        usual = "name a key of the config as the resume prints it, or 'all'"
        raise ConfigError(
            [
                Finding("", f"--allow-change {name}: no key is called that", suggest(name, known, otherwise=usual))
                for name in unknown
            ]
        )


def _flatten(key: str, value: Any, flat: dict[str, Any]) -> None:
    if isinstance(value, Place):
        return
    if isinstance(value, Amount):
        flat[key] = str(value)
    elif isinstance(value, Spec):
        flat[f"{key}.type"] = value.name
        _flatten(key, value.args, flat)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in ("at", "places"):
                _flatten(key if field.name == "spec" else f"{key}.{field.name}", getattr(value, field.name), flat)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _flatten(f"{key}.{name}" if name != "" else key, item, flat)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _flatten(f"{key}.{_label(item, index)}", item, flat)
    elif isinstance(value, str):
        flat[key] = _public(key, value)
    else:
        flat[key] = value if isinstance(value, bool | int | float | None) else repr(type(value))


def _public(key: str, text: str) -> str:
    """Return a text without secrets and without values from the environment, as a checkpoint may hold it."""
    shown = str(redact({key.rpartition(".")[2]: text}).popitem()[1])
    for value in os.environ.values():
        if len(value) >= _SHORTEST_SECRET and value in shown:
            shown = shown.replace(value, "…")
    return shown


def _label(item: Any, index: int) -> str:
    """Label hooks by name, so that a new one at the front does not rename the others."""
    spec = getattr(item, "spec", None)
    return str(spec.name) if spec is not None else str(index)


def _shown(value: Any) -> str:
    return "(none)" if value is None else str(value)
