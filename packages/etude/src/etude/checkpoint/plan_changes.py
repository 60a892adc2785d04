"""Compares the plan that a checkpoint was made with to the plan that resumes from it.

The rule: what the plan says (lengths, rates, sizes, hooks) is taken from the new plan; what training has learnt and
counted (weights, moments, averages, counters, generators, position) from the checkpoint. A change that leads to
another result than the run would have had is accepted only by name: ``--allow-change KEY``.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from etude.config.dump import redact, secrets_in
from etude.config.secrets import REDACTED
from etude.config.tree import Path, Tree
from etude.errors import ConfigError, Finding
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.plan import Optimizer, Place, Plan, Spec
from etude.units import Amount

#: Keys that cannot change the numbers, or that users change to train longer: more epochs, more workers.
HARMLESS = (
    "dialect", "builder", "name", "folder", "imports", "files", "source", "init_from", "writers",
    "train.epochs", "train.steps", "train.max_seconds", "train.device", "train.compile",
    "train.gradient_checkpointing", "train.channels_last",
    "train.nonfinite", "train.nonfinite_limit", "metrics", "data.val", "data.test",
    "parallel", "hooks.Checkpoint", "hooks.Log", "hooks.Timer", "hooks.Evaluate",
    "hooks.Alerts", "hooks.Profiler", "ledger",
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
    """One key of the config that differs; None: the key is not there."""

    key: str
    before: Any
    after: Any
    #: What the plan calls it, where that differs.
    fact: str = ""
    #: What messages call it, where that differs: a component that is new or gone is shown by its ``type``.
    shown: str = ""

    @property
    def harmless(self) -> bool:
        fact = self.fact or self.key
        if fact == "parallel.virtual_ranks":
            return not self.before and not self.after  # runs that are older than the key do not have it
        inside = any(fact == key or fact.startswith(f"{key}.") for key in HARMLESS)
        return inside or fact.endswith(_HARMLESS_ENDS)

    def __str__(self) -> str:
        none = "end" if self.key.endswith(".until") else "none"
        before, after = (none if value is None else str(value) for value in (self.before, self.after))
        return f"{self.shown or self.key}: {before} → {after}"

    def allowed(self, keys: Iterable[str]) -> bool:
        """Return whether one of ``keys`` names this change: the key, a section above it, its last word, or ``all``."""
        names = [name for name in (self.key, self.fact, self.shown) if name]
        last = [name.rpartition(".")[2] for name in (self.key, self.fact or self.key)]
        return any(key in ("all", *names, *last) or any(name.startswith(f"{key}.") for name in names) for key in keys)


def facts(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values by dotted key, without places."""
    flat: dict[str, Any] = {VERSION_KEY: VERSION}
    for field in dataclasses.fields(plan):
        if field.name not in ("source", "files"):
            _flatten(_WORDS.get(field.name, field.name), getattr(plan, field.name), flat)
    # A key that refers to a secret has its value, too.
    for secret in secrets_in(plan.source):
        flat = {
            key: value.replace(secret, REDACTED) if isinstance(value, str) else value for key, value in flat.items()
        }
    return flat


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return all keys that differ, in the order of the new plan; nothing if the two have different versions.

    A component that is new or gone (a hook) is one difference, whatever it was given.
    """
    if before.get(VERSION_KEY) != after.get(VERSION_KEY):
        return []
    several = any("loss.1.type" in side for side in (before, after))
    one, two = _in_words(before, several_losses=several), _in_words(after, several_losses=several)
    keys = [*two, *(key for key in one if key not in two)]
    # What makes a component, or a rule for parameter groups, one thing.
    lone = [key for key in keys if re.search(r"\.type$|\.groups\.\d+\.match$", key) and (key in one) != (key in two)]
    heads = {key.rpartition(".")[0]: key for key in sorted(lone, key=len, reverse=True)}
    found = {}
    absent = ("", None)
    for key in keys:
        if one.get(key, absent)[1] == two.get(key, absent)[1]:
            continue
        whole = min((name for name in heads if key.startswith(f"{name}.")), key=len, default="")
        shown = heads.get(whole, key)
        (before_fact, was), (after_fact, now) = one.get(shown, absent), two.get(shown, absent)
        fact = after_fact or before_fact
        if whole:
            fact = fact.rpartition(".")[0]
            shown = whole if whole.startswith("hooks.") else shown  # a hook is called by its type anyway
        found[whole or key] = Change(whole or key, was, now, fact, shown)
    return list(found.values())


def _in_words(known: Mapping[str, Any], *, several_losses: bool) -> dict[str, tuple[str, Any]]:
    """Return the facts by the words of the config, each with the key that it has in the plan."""
    heads: dict[str, tuple[str, int]] = {}
    count: dict[str, int] = {}
    for key in (key for key in known if re.fullmatch(r"schedule\.\d+\.target", key)):
        of = key.removesuffix(".target")
        name = ".".join(filter(None, (known.get(f"{of}.optimizer"), known[key])))
        heads[of] = (f"schedule.{name}", count.get(name, 0))
        # The phases for some groups, and those for others, are one list in the config.
        count[name] = count.get(name, 0) + len({k.split(".")[3] for k in known if k.startswith(f"{of}.phases.")})
    found = {}
    for key, value in known.items():
        word = _word(key, heads)
        if key.startswith("loss.0.") and not several_losses:
            word = f"loss.{key.removeprefix('loss.0.')}"
        if word:
            found[word] = (key, value)
    return found


def _word(key: str, heads: Mapping[str, tuple[str, int]]) -> str:
    """Return what a config calls a key of the plan; empty where it says that elsewhere."""
    section, _, rest = key.partition(".")
    if section == "schedule":
        number, _, rest = rest.partition(".")
        head, first = heads.get(f"schedule.{number}", ("schedule", 0))
        phase = re.fullmatch(r"phases\.(\d+)\.(?:curve\.)?(.*)", rest)
        if phase:
            return f"{head}.{first + int(phase[1])}.{phase[2]}"
        return "" if rest in ("target", "optimizer") else f"{head}.{first}.{rest}"
    if key.startswith("hooks.Schedule."):
        return ""  # it is there where the section `schedule` is
    if section in ("data", "optim"):
        return key.replace(".options.", ".")
    if section == "writers":
        return f"log.to.{rest}"
    return "train.max_time" if key == "train.max_seconds" else key


def require_allowed(
    changes: Iterable[Change], allow: Iterable[str], *, since: str = "", tree: Tree | None = None
) -> None:
    """Raise one error for all changes that alter the result and are not allowed: a finding for each section.

    ``since`` is the name of the checkpoint, ``tree`` the new config, for the places.
    """
    allow = list(allow)
    sections: dict[str, list[Change]] = {}
    for change in changes:
        if not change.harmless and not change.allowed(allow):
            sections.setdefault(change.key.partition(".")[0], []).append(change)
    if sections:
        raise ConfigError([_refusal(refused, since, tree) for refused in sections.values()])


def _refusal(changes: list[Change], since: str, tree: Tree | None) -> Finding:
    """Return the finding for the changes of one section."""
    one = len(changes) == 1
    text = f"{', '.join(map(str, changes))} {'changes' if one else 'change'} the result"
    name = _common(changes)
    fits = ", if the weights still fit" if name.partition(".")[0] == "model" else ""
    hint = f"--allow-change {name} accepts {'it' if one else 'them'}{fits}"
    at = _place(tree, changes[0]) if tree is not None else ""
    return Finding(at, f"{text} after {since}" if since else text, hint)


def _common(changes: list[Change]) -> str:
    """Return the name that accepts all of these changes of one section."""
    ways = [change.key.split(".") for change in changes]
    if ways[0][0] == "schedule":
        return "schedule"  # its phases depend on one another
    return ".".join(steps[0] for steps in takewhile(lambda steps: len({*steps}) == 1, zip(*ways, strict=False)))


def _place(tree: Tree, change: Change) -> str:
    """Return where the new config says what has changed; what it no longer says, as near as possible."""
    if change.key == "loop.type" and change.after in ("epochs", "steps"):
        return str(tree.place("train", str(change.after)))
    value: Any = tree.values
    way: Path = ()
    rest = f"{change.shown or change.key}."
    while rest:
        step = next(((name, key) for name, key in _steps(value) if rest.startswith(f"{name}.")), None)
        if step is None:
            break
        rest, value, way = rest[len(step[0]) + 1 :], value[step[1]], (*way, step[1])
    place = tree.place(*way)
    return str(place) if way else place.file


def _steps(value: Any) -> list[tuple[str, Any]]:
    """Return the words that lead further down, with the key or index for each; long ones first, as names have dots."""
    if isinstance(value, Mapping):
        return sorted(((str(key), key) for key in value), key=lambda step: -len(step[0]))
    if not isinstance(value, list | tuple):
        return []
    types = [item.get("type") if isinstance(item, Mapping) else item for item in value]
    return [(str(name), index) for index, kind in enumerate(types) for name in (index, kind)]


#: Names that are no keys of a plan: everything, the dataset's content, and what separate flags accept.
_WORDS_OF_ALL = ("all", "data", "owner", "attempts")


def words_of(known: Mapping[str, Any]) -> list[str]:
    """Return every name of the facts that may be allowed to change: those of the config, and those of the plan."""
    return [*known, *_in_words(known, several_losses=False), *_in_words(known, several_losses=True)]


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
            if field.name == "clip" and isinstance(value, Optimizer) and value.short_clip:
                flat.update({f"{key}.{word}": most for word, most in value.short_clip.items()})
            elif field.name not in ("at", "places"):
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
