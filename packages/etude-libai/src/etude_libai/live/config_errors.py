"""Reports exceptions before the first step as errors in the config, with file and line.

``etude train`` checks a config before it builds anything; a script does not. Its exceptions are explained
afterwards, by what ``etude check`` finds in the config, or by the key that the message names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.errors import ConfigError, EtudeError, Finding, UserCodeError
from etude.errors.advice import raised_in_worker
from etude_libai import lower, stages
from etude_libai.checks import calls, missing, structure, typos, values
from etude_libai.lazy.extra import is_dict_config, omegaconf, without_tuples
from etude_libai.lazy.reading.errors import put_on, raised_by_users, says
from etude_libai.places import ORIGINS

#: Exceptions that may come from a wrong value.
_REFUSALS = (TypeError, ValueError, AssertionError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError)
#: Checks of mistakes that can make building fail. Unused keys and missing optional sections cannot.
_CAUSES: tuple[Callable[[Tree], Iterable[Finding]], ...] = (
    structure.not_calls,
    structure.not_loaders,
    values.wrong_values,
    stages.findings,
    missing.missing_targets,
    calls.unknown_arguments,
)


@contextmanager
def explained(cfg: Any) -> Iterator[None]:
    """Explain exceptions of the block by mistakes in ``cfg``, unless user code raised them."""
    try:
        yield
    except Exception as error:
        explain(error, cfg)
        raise


def explain(error: Exception, cfg: Any) -> None:
    """Attach to ``error`` what is wrong with ``cfg``, if that explains it."""
    if isinstance(error, ConfigError) and not any(finding.at for finding in error.findings):
        tree = tree_of(cfg)
        placed = [replace(each, at=str(tree.place(*_key_in(tree, each.message)))) for each in error.findings]
        put_on(error, ConfigError(placed))
    if hasattr(error, "etude_reported") or isinstance(error, EtudeError) or not isinstance(error, _REFUSALS):
        return
    if raised_by_users(error) or raised_in_worker(error) is not None:
        return
    tree = tree_of(cfg)
    wrong = [finding for look in _CAUSES for finding in look(tree) if finding.severity == "error"]
    fields = re.search(r"(\w+)\.forward\(\) (?:got an unexpected keyword|missing \d+ required)", str(error))
    if fields is not None:
        put_on(error, UserCodeError(f"{says(error)}: a batch's fields are the arguments of {fields[1]}.forward"))
        return
    message = str(error) if str(error) and isinstance(error, AssertionError | ValueError) else says(error)
    put_on(error, ConfigError(wrong or message, at="" if wrong else str(tree.place(*_key_in(tree, message)))))


def tree_of(cfg: Any) -> Tree:
    """Return the config of a script as a tree, with the places that its values were read from."""
    values = omegaconf().OmegaConf.to_container(cfg, resolve=False) if is_dict_config(cfg) else {}
    return Tree(_unscaled(without_tuples(values)), ORIGINS.places(), {}, {ORIGINS.file: ""} if ORIGINS.file else {})


def _unscaled(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without milestones if the config was scaled, which the length beside them shows.

    They were written as shares of the run and are iterations by now.
    """
    train = values.get("train")
    scheduler = train.get("scheduler") if isinstance(train, dict) else None
    if not isinstance(train, dict) or not isinstance(scheduler, dict) or "max_iter" not in scheduler:
        return values
    written = {key: value for key, value in scheduler.items() if key != "milestones"}
    return {**values, "train": {**train, "scheduler": written}}


def _key_in(tree: Tree, message: str) -> Path:
    """Return the path of the key that a message names; a full path or a longer name is preferred."""
    words = set(re.findall(r"\w+", message))
    ways = [way for way in tree.places if way and str(way[-1]) in words and len(str(way[-1])) > 3]
    return max(ways, key=lambda way: (dotted(way) in message, len(str(way[-1]))), default=())


def require_sound(cfg: Any, args: Any, logger: logging.Logger) -> None:
    """Raise an error for wrong values and misspelt overrides before anything is written.

    Unknown keys in the config itself, and overrides that add a key, are only warnings.
    """
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
