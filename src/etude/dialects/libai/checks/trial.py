"""Builds the schedules of a config, which needs no torch, and reports what they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai import names
from etude.dialects.libai.lazy.extra import dict_config
from etude.dialects.libai.lazy.reading.sketches import Unread, as_text
from etude.dialects.libai.lazy.targets import name_of
from etude.errors import ConfigError, Finding

_MULTIPLIERS = "etude.dialects.libai.multipliers:"
_OF_FVCORE = "fvcore.common.param_scheduler"
_WAY: Path = ("lr_multiplier",)


def unmakeable(tree: Tree) -> list[Finding]:
    """Return what the schedules of a config refuse. Call it only if nothing else is wrong."""
    return [*_multiplier(tree), *_milestones(tree), *_warmup(tree)]


def _multiplier(tree: Tree) -> list[Finding]:
    if not isinstance(tree.get(*_WAY), Mapping) or not _is_known(tree.get(*_WAY)):
        return []
    import logging

    from etude.dialects.libai.lazy.instantiate import instantiate_detectron2 as instantiate

    quiet = logging.getLogger(instantiate.__module__)
    before, quiet.disabled = quiet.disabled, True
    try:
        instantiate(dict_config(as_text(tree.values)).lr_multiplier)
    except Exception as error:
        reported = getattr(error, "etude_reported", None)
        return list(reported.findings) if isinstance(reported, ConfigError) else []
    finally:
        quiet.disabled = before
    return []


def _is_known(node: Any) -> bool:
    """Return whether every call in a multiplier is one of those that come with the engine or with fvcore."""
    if isinstance(node, list | tuple):
        return all(_is_known(item) for item in node)
    if not isinstance(node, Mapping):
        return not callable(node) and not isinstance(node, Unread)
    target = node.get("_target_")
    name = target if isinstance(target, str) else name_of(target) if isinstance(target, type) else ""
    module, _, attribute = name.rpartition(".")
    ours = names.MODULES.get(module, {}).get(attribute, "").startswith(_MULTIPLIERS)
    return (ours or module == _OF_FVCORE) and all(_is_known(item) for key, item in node.items() if key != "_target_")


def _milestones(tree: Tree) -> list[Finding]:
    way: Path = ("train", "scheduler", "milestones")
    given = tree.get(*way)
    if not isinstance(given, list | tuple) or all(before < after for before, after in itertools.pairwise(given)):
        return []
    return [Finding(str(tree.place(*way)), f"{dotted(way)} is {list(given)}: each must be larger than the one before")]


def _warmup(tree: Tree) -> list[Finding]:
    way: Path = ("train", "scheduler", "warmup_factor")
    factor, ratio = tree.get(*way), tree.get("train", "warmup_ratio")
    if not ratio or not isinstance(factor, int | float) or factor <= 1:
        return []
    return [Finding(str(tree.place(*way)), f"{dotted(way)} is {factor}: at most 1 is needed")]
