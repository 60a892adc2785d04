"""Resolves choices in a config: ``{oneof: {small: …, large: …}, use: small}`` becomes the alternative that ``use``
names.

Change the choice on the command line with ``model.use=large``, and a group's file with ``defaults.optim=sgd``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from etude.config.formats.from_yaml import parse_value
from etude.config.tree import Path, Tree, dotted
from etude.errors import ConfigError, Finding
from etude.errors.spelling import suggest
from etude.plan import Place

_GROUP = "defaults."


def split_groups(overrides: Iterable[str]) -> tuple[dict[str, tuple[Any, Place]], list[str]]:
    """Separate ``defaults.optim=sgd`` (read before anything is merged) from the other overrides."""
    groups: dict[str, tuple[Any, Place]] = {}
    rest = []
    for text in overrides:
        key, equals, written = text.lstrip("+").partition("=")
        if key.startswith(_GROUP) and equals:
            place = Place(f"override {text!r}", 0, key)
            groups[key.removeprefix(_GROUP)] = (parse_value(written, str(place)), place)
        else:
            rest.append(text)
    return groups, rest


def require_groups(chosen: Mapping[str, tuple[Any, Place]], known: Iterable[str]) -> None:
    """Refuse ``defaults.optm=sgd`` where no file has that group."""
    known = sorted(known)
    wrong = [
        Finding(str(place), f"no config picks a group {group!r}", suggest(group, known))
        for group, (_, place) in chosen.items()
        if group not in known
    ]
    if wrong:
        raise ConfigError(wrong)


def resolve_choices(tree: Tree) -> None:
    """Replace every choice by the alternative it uses; report all that name none."""
    findings: list[Finding] = []
    tree.values = _resolved(tree, (), tree.values, findings)
    if findings:
        raise ConfigError(findings)


def _resolved(tree: Tree, path: Path, value: Any, findings: list[Finding]) -> Any:
    if isinstance(value, Mapping):
        if "oneof" in value and set(value) <= {"oneof", "use"}:
            return _resolved(tree, path, _chosen(tree, path, value, findings), findings)
        return {key: _resolved(tree, (*path, key), item, findings) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_resolved(tree, (*path, index), item, findings) for index, item in enumerate(value))
    return value


def _chosen(tree: Tree, path: Path, value: Mapping[str, Any], findings: list[Finding]) -> Any:
    choices: Any = value["oneof"]
    use: Any = value.get("use")
    if not isinstance(choices, Mapping) or not choices:
        findings.append(
            Finding(str(tree.place(*path, "oneof")), f"{dotted((*path, 'oneof'))} must be a mapping of names")
        )
        return None
    if use not in choices:
        names = [str(name) for name in choices]
        wrong, hint = f"{dotted(path)} needs `use`", " or ".join(names)
        if use is not None:
            wrong, hint = f"{dotted((*path, 'use'))}: no choice is called {use!r}", suggest(str(use), names)
        findings.append(Finding(str(tree.place(*path, "use")), wrong, hint))
        return None
    _move(tree, (*path, "oneof", use), path)
    return choices[use]


def _move(tree: Tree, old: Path, new: Path) -> None:
    """Move the places below ``old`` to ``new``."""
    moved = {(*new, *path[len(old) :]): place for path, place in tree.places.items() if path[: len(old)] == old}
    for path in [path for path in tree.places if path[: len(new)] == new]:
        del tree.places[path]
    tree.places.update(moved)
