"""Restores names and behaviour of older numpy and Python that projects of OpenMMLab and their tools use.

The names are added to numpy when one is first asked for, by whoever asks, with one warning per process.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def _asfarray(a: Any, dtype: Any = np.float64) -> Any:
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


_SCTYPES: dict[str, list[type]] = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
}
#: Name that numpy has dropped → what it was.
_DROPPED: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "object": object,
    "str": str,
    "complex": complex,
    "bool8": np.bool_,
    "float_": np.float64,
    "complex_": np.complex128,
    "int0": np.intp,
    "uint0": np.uintp,
    "unicode_": np.str_,
    "string_": np.bytes_,
    "object0": np.object_,
    "str0": np.str_,
    "bytes0": np.bytes_,
    "Inf": np.inf,
    "Infinity": np.inf,
    "infty": np.inf,
    "PINF": np.inf,
    "NINF": -np.inf,
    "NaN": np.nan,
    "PZERO": 0.0,
    "NZERO": -0.0,
    "longfloat": np.longdouble,
    "singlecomplex": np.complex64,
    "cfloat": np.complex128,
    "longcomplex": np.clongdouble,
    "clongfloat": np.clongdouble,
    "asfarray": _asfarray,
    "in1d": _in1d,
    "sctypes": _SCTYPES,
    "alltrue": np.all,
    "sometrue": np.any,
    "cumproduct": np.cumprod,
    "product": np.prod,
    "round_": np.round,
    "mat": np.asmatrix,
    "row_stack": np.vstack,
    "trapz": getattr(np, "trapezoid", None),
}


def restore() -> None:
    """Answer for the dropped names from now on, and let ``random.seed`` take a number of numpy again."""
    if getattr(vars(np).get("__getattr__"), "is_etude", False):
        return
    _answer(vars(np).get("__getattr__"))
    random.seed = _seed_taking_numpy(random.seed)


def _answer(former: Callable[[str], Any] | None) -> None:
    warned: list[str] = []

    def answer(name: str) -> Any:
        if _DROPPED.get(name) is None:
            if former is not None:
                return former(name)
            raise AttributeError(f"module 'numpy' has no attribute {name!r}")
        if not warned:
            warned.append(name)
            frame = sys._getframe(1)
            at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            text = f"{at} uses np.{name}, which numpy {np.__version__} no longer has: Étude adds it and its like"
            warnings.warn(text, FutureWarning, stacklevel=2)
        vars(np)[name] = _DROPPED[name]
        return _DROPPED[name]

    answer.is_etude = True  # type: ignore[attr-defined]
    vars(np)["__getattr__"] = answer


def _seed_taking_numpy(seed: Callable[..., None]) -> Callable[..., None]:
    """Return ``random.seed`` for numbers of numpy, which Python 3.11 and later refuse."""

    def take(a: Any = None, version: int = 2) -> None:
        seed(int(a) if isinstance(a, np.integer) else a, version)

    return take
