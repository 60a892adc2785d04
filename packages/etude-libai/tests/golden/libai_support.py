"""What the replayers of LiBai's and detectron2's recorded behaviour share."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from etude.dialects import imports

imports.install()


def served(flavor: str, module: str) -> Any:
    """A module under the import name that a user's script has: ``served("libai", "utils.events")``."""
    return importlib.import_module(f"{flavor}.{module}")


def number(value: Any) -> Any:
    """``{"$f": "nan"}`` as the float it stands for, at any depth; ``{"$t": x}`` as a tensor of one element."""
    if isinstance(value, dict):
        if set(value) == {"$f"}:
            return float(value["$f"])
        if set(value) == {"$t"}:
            return torch.tensor(number(value["$t"]))
        return {key: number(item) for key, item in value.items()}
    return [number(item) for item in value] if isinstance(value, list) else value


def same(actual: Any, expected: Any, tolerance: float = 1e-9) -> bool:
    """Equal, numbers within a relative tolerance, NaN equal to NaN, tuples equal to lists."""
    expected = number(expected)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return actual == expected and type(actual) is type(expected)
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        if math.isnan(expected):
            return math.isnan(actual)
        return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and list(map(str, actual)) == list(map(str, expected))
            and all(same(a, e, tolerance) for a, e in zip(actual.values(), expected.values(), strict=True))
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(
            same(a, e, tolerance) for a, e in zip(actual, expected, strict=True)
        )
    return actual == expected


@contextmanager
def expected_failure(case: dict[str, Any], *, message: bool = True) -> Iterator[None]:
    """The block raises what the case recorded: the same class by name, and the same message where ``message``."""
    raised = case["raises"]
    with pytest.raises(Exception) as caught:
        yield
    names = [kind.__name__ for kind in type(caught.value).__mro__]
    assert raised["error"] in names, f"{raised['error']} expected, {caught.value!r} raised"
    for name in raised.get("mro", []):
        if name != "Exception":
            assert name in names or name == "RuntimeError"
    if message:
        said = str(caught.value.args[0]) if isinstance(caught.value, KeyError) else str(caught.value)
        wanted = raised["message"]
        wanted = wanted[1:-1] if isinstance(caught.value, KeyError) and wanted[:1] in "'\"" else wanted
        assert said == wanted


class Messages(logging.Handler):
    """Collects what one logger says."""

    def __init__(self, *names: str) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.names = names

    def __enter__(self) -> Messages:
        self._levels = {name: logging.getLogger(name).level for name in self.names}
        for name in self.names:
            logging.getLogger(name).addHandler(self)
            logging.getLogger(name).setLevel(logging.DEBUG)
        return self

    def __exit__(self, *exc: object) -> None:
        for name in self.names:
            logging.getLogger(name).removeHandler(self)
            logging.getLogger(name).setLevel(self._levels[name])

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


class Boom(Exception):
    """What the recorded failures raise."""
