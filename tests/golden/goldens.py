"""Recorded behaviour of the original systems, for the replayers in ``tests/golden`` of each guest.

A replayer writes ``@pytest.mark.parametrize("case", params("mmcv1", "config_files"))``: one test per case, its id
beginning with the dialect's name. Asking for a file claims it; ``test_claims.py`` fails for a file nobody claims.
``ETUDE_GOLDEN=DIR`` replays ``DIR/<dialect>/*.json`` instead of the files here.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import pytest

from tests.places import REPOSITORY

#: Where the recordings of each dialect lie.
FOLDERS = {folder.name: folder for folder in sorted(REPOSITORY.glob("packages/*/tests/golden/*")) if folder.is_dir()}

#: (dialect, file stem) pairs that some replayer knows how to replay.
CLAIMS: set[tuple[str, str]] = set()


def folder(dialect: str) -> Path:
    """The folder with the JSON files of a dialect."""
    others = os.environ.get("ETUDE_GOLDEN")
    return Path(others, dialect) if others else FOLDERS[dialect]


def claim(dialect: str, stem: str) -> None:
    """Say that this replayer replays every case of that file."""
    CLAIMS.add((dialect, stem))


def data(dialect: str, stem: str) -> dict[str, Any]:
    """The whole file as it stands. Under ``ETUDE_GOLDEN`` a file that is not there counts as one without cases."""
    claim(dialect, stem)
    path = folder(dialect) / f"{stem}.json"
    if "ETUDE_GOLDEN" in os.environ and not path.exists():
        return {"cases": []}
    return json.loads(path.read_text(encoding="utf-8"))


def cases(dialect: str, stem: str) -> list[dict[str, Any]]:
    """The cases of one file, as they stand (see :func:`untag`)."""
    return data(dialect, stem)["cases"]


def params(dialect: str, stem: str, *, key: str = "id") -> list[Any]:
    """The cases of one file as ``pytest.param``; ids read ``<dialect>-<stem>-<case[key]>``."""
    known = {name for case in _recorded_here(dialect, stem) for name in case}
    return [pytest.param(Case(case, known), id=f"{dialect}-{stem}-{case[key]}") for case in cases(dialect, stem)]


def _recorded_here(dialect: str, stem: str) -> list[dict[str, Any]]:
    path = FOLDERS[dialect] / f"{stem}.json"
    return json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []


#: What a case says for its readers.
REMARKS = frozenset({"id", "note", "quirk", "lenient", "about", "comment", "why"})


class Case(dict[str, Any]):
    """A case that knows for which of its keys a replayer has asked. ``known`` are those of the cases beside this file."""

    def __init__(self, case: dict[str, Any], known: Set[str] = frozenset()) -> None:
        super().__init__(case)
        self.known, self.asked = known, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def unknown(self) -> list[str]:
        """Return what the case says in words that no case beside this file has and that nobody has asked for."""
        return sorted(set(self) - self.known - self.asked - REMARKS)

    def unread(self) -> list[str]:
        """Return those of :meth:`unknown` that stand for more than a text: something to be done, or to be compared."""
        return [word for word in self.unknown() if not isinstance(dict.__getitem__(self, word), str)]


def options_for(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return what a case says about the arguments of ``function``: under their own names, or together in a mapping that
    is named after the function (``fromfile``, ``fromfile_kwargs``, ``fromfile_options``)."""
    name, known = function.__name__, inspect.signature(function).parameters
    named = [case.get(key) for key in (name, f"{name}_kwargs", f"{name}_options")]
    together = next((found for found in named if isinstance(found, dict)), {})
    return {**{key: case[key] for key in known if key in case}, **untag(together)}


def equal(got: Any, wanted: Any) -> bool:
    """Return whether two values are equal where NaN equals NaN; as with ``==``, types of containers count."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(equal(got[key], wanted[key]) for key in wanted)
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        same_kind = isinstance(got, tuple) == isinstance(wanted, tuple)
        return same_kind and len(got) == len(wanted) and all(map(equal, got, wanted))
    if isinstance(got, float) and isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(got)
    return bool(got == wanted)


def untag(value: Any) -> Any:
    """JSON → Python: ``{"__tuple__": [...]}`` is a tuple, ``{"__float__": "nan"}`` a float that JSON cannot write."""
    if isinstance(value, dict):
        if set(value) == {"__tuple__"}:
            return tuple(untag(item) for item in value["__tuple__"])
        if set(value) == {"__float__"}:
            return float(value["__float__"])
        return {key: untag(item) for key, item in value.items()}
    return [untag(item) for item in value] if isinstance(value, list) else value
