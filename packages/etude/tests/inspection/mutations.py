"""Slips of the fingers: every key and name of a config with a letter dropped, doubled, or swapped with its neighbour.

``survey_slips(dialect, tree)`` tells which of them ``etude check`` misses, and which it answers without the right word.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.config.formats.from_yaml import scalar
from etude.config.tree import Tree, copied
from etude.dialects.base import Dialect
from etude.errors import ConfigError, Finding
from etude.registry import TABLES
from tests import sampling

#: Keys whose values are names of components or of results, and mappings whose keys the user makes up.
NAMES = (
    "type",
    "loss",
    "model",
    "update",
    "loop",
    "best",
    "metric",
    "monitor",
    "precision",
    "nonfinite",
    "on_bad_sample",
    "kind",
    "by",
)
NAME_LISTS = ("imports", "metrics", "hooks", "to", "loss", "transform", "transforms")
FREE = {("extra",), ("env",)}
ALL = sampling.ALL


@dataclass
class Survey:
    """How many slips there were; those that nobody noticed; those that were noticed, but not understood."""

    count: int = 0
    missed: list[str] = field(default_factory=list)
    unhelpful: list[str] = field(default_factory=list)


def survey_slips(dialect: Dialect, tree: Tree, names: Sequence[str] = NAMES, known: Sequence[str] = ()) -> Survey:
    """``known`` are the top-level keys that are not the user's own variables; without it, all are looked at."""
    survey = Survey()
    for mutant, word, slip in mutants(tree, names, known):
        if mutant is tree or is_other_name(slip):
            continue
        survey.count += 1
        # The original ignores some words that it does not know: these are warnings, with the right word.
        findings = errors(dialect, mutant) or noticed(dialect, mutant, word)
        if not findings:
            survey.missed.append(f"{word} → {slip}")
        # Guests warn of an unknown key at the top, and then miss the right one: a reader sees both.
        elif not any(f"did you mean {word!r}" in finding.hint for finding in findings) and not noticed(
            dialect, mutant, word
        ):
            survey.unhelpful.append(f"{word} → {slip}: {findings[0]}")
    return survey


def slips(word: str) -> Iterator[str]:
    """The word with a letter dropped, doubled, or swapped with the next; each different result once."""
    letters = [i for i, letter in enumerate(word) if letter.isalnum()]
    made = {word[:i] + word[i + 1 :] for i in letters} | {word[:i] + word[i] + word[i:] for i in letters}
    made |= {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in letters if i + 1 < len(word)}
    for slip in sorted(made - {word, ""}):
        if isinstance(scalar(slip), str):
            yield slip


def drawn(path: tuple[Any, ...], every: Iterator[str]) -> Iterator[str]:
    """Yield a fixed sample, one slip in 24; all of them with ``make test-all``."""
    for slip in every:
        if ALL or zlib.crc32(f"{path} {slip}".encode()) % 24 == 0:
            yield slip


def mutants(tree: Tree, names: Sequence[str] = NAMES, known: Sequence[str] = ()) -> Iterator[tuple[Tree, str, str]]:
    """The tree with one slip in it, the word as it was and as it is now."""
    for path, value in tree.walk():
        if any(path[: len(free)] == free for free in FREE) or (known and path[0] not in known):
            continue
        key = path[-1]
        if isinstance(key, str) and not is_free(tree, path):
            yield from ((renamed(tree, path, slip), key, slip) for slip in drawn(path, slips(key)))
        if is_name(path, value, names):
            yield from ((replaced(tree, path, slip), value, slip) for slip in drawn(path, slips(value)))


def is_free(tree: Tree, path: tuple[Any, ...]) -> bool:
    """Keys that the user makes up, and those that no user writes."""
    return path in made_up(tree) or path[-2:-1] == ("custom_keys",) or str(path[-1]).startswith("_")


def made_up(tree: Tree) -> set[tuple[Any, ...]]:
    """Names of optimizers, where a config has several: the user's own words, like values."""
    optim = tree.values.get("optim")
    several = isinstance(optim, dict) and "type" not in optim
    return {("optim", name) for name in optim} if several and isinstance(optim, dict) else set()


def is_name(path: tuple[Any, ...], value: Any, names: Sequence[str]) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][\w.]+", value):
        return False
    return path[-1] in names or (isinstance(path[-1], int) and path[-2] in NAME_LISTS)


def renamed(tree: Tree, path: tuple[Any, ...], to: str) -> Tree:
    values = copied(tree.values)
    holder = Tree(values).get(*path[:-1])
    if to in holder:
        return tree
    items = [(to if key == path[-1] else key, item) for key, item in holder.items()]
    holder.clear()
    holder.update(items)
    return changed(tree, values)


def replaced(tree: Tree, path: tuple[Any, ...], to: str) -> Tree:
    values = copied(tree.values)
    Tree(values).get(*path[:-1])[path[-1]] = to
    return changed(tree, values)


def changed(tree: Tree, values: dict[str, Any]) -> Tree:
    return Tree(values, tree.places, tree.history, tree.files)


def errors(dialect: Dialect, tree: Tree) -> list[Finding]:
    try:
        found = dialect.check(tree)
    except ConfigError as error:
        return list(error.findings)
    return [finding for finding in found if finding.severity == "error"]


def noticed(dialect: Dialect, tree: Tree, word: str) -> list[Finding]:
    """The warnings of a guest's config that name the word that was meant."""
    if dialect.name == "native":
        return []
    return [finding for finding in dialect.check(tree) if f"did you mean {word!r}" in finding.hint]


def is_other_name(word: str) -> bool:
    """A slip can make another name that exists: ``AdamW`` without its last letter. Nothing is wrong with that one."""
    return any(word in table.names() for table in TABLES.values())
