"""Reads the signature of a callable, for targets that a config holds as objects. Imports no torch."""

from __future__ import annotations

import inspect
from typing import Any

from etude.dialects.libai.lazy.configurable import is_configurable
from etude.inspection.signatures import Parameter, Signature


def signature_of_callable(target: Any) -> Signature | None:
    """Return the signature; None if Python does not know it."""
    try:
        given = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None
    taken = [_parameter(each) for each in given if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    if is_configurable(target):  # ``cfg`` stands for all arguments
        return Signature((Parameter("cfg", default="..."), *taken), open=True)
    return Signature(tuple(taken), open=any(each.kind is each.VAR_KEYWORD for each in given))


def _parameter(given: inspect.Parameter) -> Parameter:
    declared = given.annotation
    text = declared if isinstance(declared, str) else inspect.formatannotation(declared)
    return Parameter(
        given.name,
        "" if declared is given.empty else text,
        None if given.default is given.empty else repr(given.default),
    )
