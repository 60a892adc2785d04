"""Reports exceptions before the first step as mistakes of the config, with their places.

``etude train`` checks a config before it builds anything; a script does not. An exception there is explained
afterwards, by what ``etude check`` finds in the config or by the key that the message names.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects.libai import lower
from etude.dialects.libai.checks import arguments, calls, missing, structure, typos, values
from etude.dialects.libai.lazy.extra import is_dict_config, omegaconf, without_tuples
from etude.dialects.libai.lazy.reading.errors import is_users, put_on, says
from etude.dialects.libai.places import ORIGINS
from etude.errors import ConfigError, EtudeError, Finding, UserCodeError, raised_in_worker

#: What parts refuse values with.
_REFUSALS = (TypeError, ValueError, AssertionError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError)
#: What can make a part fail; keys that nobody reads and sections that a script does without cannot.
_CAUSES: tuple[Callable[[Tree], Iterable[Finding]], ...] = (
    structure.not_calls,
    structure.not_loaders,
    values.wrong_values,
    missing.missing_targets,
    arguments.arguments,
    calls.unknown_arguments,
)


@contextmanager
def explained(cfg: Any) -> Iterator[None]:
    """Blame ``cfg`` for exceptions of the block that come from no user-defined code."""
    try:
        yield
    except Exception as error:
        explain(error, cfg)
        raise


def explain(error: Exception, cfg: Any) -> None:
    """Put on ``error`` what is wrong with ``cfg``, if that is what it is about."""
    if isinstance(error, ConfigError) and not any(finding.at for finding in error.findings):
        tree = tree_of(cfg)
        placed = [replace(each, at=str(tree.place(*_spoken_of(tree, each.message)))) for each in error.findings]
        put_on(error, ConfigError(placed))
    if hasattr(error, "etude_reported") or isinstance(error, EtudeError) or not isinstance(error, _REFUSALS):
        return
    users = any(is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__))
    if users or raised_in_worker(error) is not None:
        return
    tree = tree_of(cfg)
    wrong = [finding for look in _CAUSES for finding in look(tree) if finding.severity == "error"]
    fields = re.search(r"(\w+)\.forward\(\) (?:got an unexpected keyword|missing \d+ required)", str(error))
    if fields is not None:
        put_on(error, UserCodeError(f"{says(error)}: a batch's fields are the arguments of {fields[1]}.forward"))
        return
    message = str(error) if str(error) and isinstance(error, AssertionError | ValueError) else says(error)
    put_on(error, ConfigError(wrong or message, at="" if wrong else str(tree.place(*_spoken_of(tree, message)))))


def tree_of(cfg: Any) -> Tree:
    """Return a config that a script holds, with the places of what it was read from."""
    values = omegaconf().OmegaConf.to_container(cfg, resolve=False) if is_dict_config(cfg) else {}
    return Tree(_unscaled(without_tuples(values)), ORIGINS.places(), {}, {ORIGINS.file: ""} if ORIGINS.file else {})


def _unscaled(values: dict[str, Any]) -> dict[str, Any]:
    """Values without the milestones that were written as shares and are iterations by now: the length beside them
    says that the config was scaled."""
    train = values.get("train")
    scheduler = train.get("scheduler") if isinstance(train, dict) else None
    if not isinstance(train, dict) or not isinstance(scheduler, dict) or "max_iter" not in scheduler:
        return values
    written = {key: value for key, value in scheduler.items() if key != "milestones"}
    return {**values, "train": {**train, "scheduler": written}}


def _spoken_of(tree: Tree, message: str) -> Path:
    """Return the first key with a place that a message names, longer names before shorter ones."""
    words = set(re.findall(r"\w+", message))
    ways = [way for way in tree.places if way and str(way[-1]) in words and len(str(way[-1])) > 3]
    return max(ways, key=lambda way: (dotted(way) in message, len(str(way[-1]))), default=())


def require_sound(cfg: Any, args: Any, logger: logging.Logger) -> None:
    """Refuse, before anything is written, values that cannot be and overrides that set what nobody reads and are nearly
    a key that somebody does; point at such keys in the config itself, and at overrides that add a key."""
    given = getattr(args, "opts", None) or []
    added = typos.new_keys({text: way for text, way in ORIGINS.new.items() if text in given})
    tree = tree_of(cfg)
    findings = [*added, *typos.beside(tree), *(finding for look in _CAUSES for finding in look(tree))]
    wrong = [finding for finding in findings if finding.severity == "error"]
    if wrong:
        raise ConfigError(wrong)
    reported = {finding.at for finding in added}
    for finding in [*findings, *(each for each in lower.unknown(tree) if each.at not in reported)]:
        logger.warning(f"{finding.at}: {finding.message}" + (f"; {finding.hint}" if finding.hint else ""))
