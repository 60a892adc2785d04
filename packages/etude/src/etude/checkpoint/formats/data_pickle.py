"""Reads pickles of data, such as annotations of a data set: containers, numbers, texts, arrays and tensors.

A pickle is a program that calls what it names. It may call the names below and the data classes that the caller lists;
any other name is refused before it is looked up. Unlike ``safe_pickle``, which reads the checkpoints of other systems
as inert data, this module returns values of their own types. :mod:`etude.checkpoint.storage.trust` lets pickles run.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from etude.checkpoint.storage import trust
from etude.errors import DataError, printable

#: The flag of types that are made at run time, to which attributes can be given.
_CHANGEABLE = 1 << 9
_ENCODINGS = ("latin1", "utf-8", "ascii")


class RefusedPickle(DataError):
    """A pickle names something that data do not need."""


#: Module and name of a class in a file → the module that has it here.
Classes = Mapping[tuple[str, str], str]


def load(file: Any, classes: Classes, **kwargs: Any) -> Any:
    """Load the open ``file``, which may hold objects of ``classes``; ``kwargs`` are those of :func:`pickle.load`."""
    if trust.is_given():
        return pickle.load(file, **kwargs)
    return _Unpickler(file, classes, **kwargs).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, classes: Classes, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        module, name = _RENAMED.get((module, name), ("builtins" if module == "__builtin__" else module, name))
        plain = module.replace("numpy._core.", "numpy.core.", 1)
        if name in _NAMES.get(plain, ()):
            return _fresh(getattr(importlib.import_module(plain), name))
        if (plain, name) in _MADE:
            made = _MADE[plain, name]
            return lambda *args: made(*args)  # a new function, for a pickle can give attributes to it
        if (module, name) in self._classes:
            return getattr(importlib.import_module(self._classes[module, name]), name)
        if plain in ("torch", "numpy") and name.isidentifier():
            found = _kind_of_number(plain, name)
            if found is not None:
                return found
        # Pickles call `os.system` so; the message has the name that people know.
        module = {"posix": "os", "nt": "os"}.get(module, module)
        raise RefusedPickle(
            f"refused: global {printable(module)}.{printable(name)}. Data in a pickle are plain values, arrays and "
            f"tensors; nothing in it was run. {trust.ADVICE}"
        )


#: Names of Python 2, in which protocols up to 2 are written.
_RENAMED = {
    ("__builtin__", "xrange"): ("builtins", "range"), ("__builtin__", "unicode"): ("builtins", "str"),
    ("__builtin__", "long"): ("builtins", "int"),
}  # fmt: skip
#: Module → names that make data of what they are given.
_NAMES = {
    "builtins": ("set", "frozenset", "complex", "bytearray", "bytes", "range", "slice", "int", "float", "str", "bool",
                 "list", "dict", "tuple"),
    "collections": ("OrderedDict", "defaultdict", "deque", "Counter"),
    "datetime": ("datetime", "date", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"),
    "torch": ("Size", "device"),
    "numpy": ("ndarray", "dtype"),
}  # fmt: skip


def _fresh(kind: type) -> Any:
    """Return a type that a pickle cannot modify: the type itself, or a new function that calls it."""
    return (lambda *args: kind(*args)) if kind.__flags__ & _CHANGEABLE else kind


def _kind_of_number(module: str, name: str) -> Any:
    """Return a kind of number, ``torch.float32`` or ``numpy.float64``; None for anything else of these modules."""
    home = importlib.import_module(module)
    found = getattr(home, name, None)
    if module == "torch":
        return found if isinstance(found, home.dtype) else None
    return found if isinstance(found, type) and issubclass(found, home.generic) else None


def _scalar(kind: Any, *args: Any) -> Any:
    if getattr(kind, "hasobject", True):
        raise RefusedPickle("refused: a numpy scalar that holds objects")
    return _inside_numpy("multiarray").scalar(kind, *args)


def _inside_numpy(module: str) -> Any:
    try:
        return importlib.import_module(f"numpy._core.{module}")
    except ImportError:  # numpy 1
        return importlib.import_module(f"numpy.core.{module}")


def _torch() -> Any:
    return importlib.import_module("torch")


#: What puts arrays and tensors together. A tensor's memory lies in the pickle as a file of torch.
_MADE: dict[tuple[str, str], Callable[..., Any]] = {
    # Protocols up to 2 have no bytes: Python writes them as text in latin1.
    ("_codecs", "encode"): lambda text, name="latin1": str(text).encode(name if name in _ENCODINGS else "latin1"),
    ("numpy.core.multiarray", "_reconstruct"): lambda *args: _inside_numpy("multiarray")._reconstruct(*args),
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): lambda *args: _inside_numpy("numeric")._frombuffer(*args),
    ("torch._utils", "_rebuild_tensor_v2"): lambda *args: _torch()._utils._rebuild_tensor_v2(*args),
    ("torch._utils", "_rebuild_parameter"): lambda *args: _torch()._utils._rebuild_parameter(*args),
    ("torch.storage", "_load_from_bytes"): lambda data: _torch().load(io.BytesIO(data), weights_only=True),
}
