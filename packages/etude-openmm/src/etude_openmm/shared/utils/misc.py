"""Type checks, conversions and decorators of ``mmcv.utils`` and ``mmengine.utils``."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import shutil
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import getfullargspec
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def is_str(x: Any) -> bool:
    return isinstance(x, str)


def iter_cast(inputs: Any, dst_type: Any, return_type: type | None = None) -> Any:
    """Convert every item to ``dst_type``, and return an iterator or a ``return_type``."""
    if not isinstance(inputs, Iterable):
        raise TypeError("inputs must be an iterable object")
    if not isinstance(dst_type, type):
        raise TypeError('"dst_type" must be a valid type')
    cast: Iterator[Any] = map(dst_type, inputs)
    return cast if return_type is None else return_type(cast)


list_cast = functools.partial(iter_cast, return_type=list)
tuple_cast = functools.partial(iter_cast, return_type=tuple)


def is_seq_of(seq: Any, expected_type: Any, seq_type: type | None = None) -> bool:
    """Return whether ``seq`` is a sequence (of ``seq_type``) whose items are all of ``expected_type``."""
    if seq_type is not None and not isinstance(seq_type, type):
        raise AssertionError("seq_type must be a type")
    wanted: Any = seq_type or Sequence
    return isinstance(seq, wanted) and all(isinstance(item, expected_type) for item in seq)


is_list_of = functools.partial(is_seq_of, seq_type=list)
is_tuple_of = functools.partial(is_seq_of, seq_type=tuple)


def slice_list(in_list: list[Any], lens: int | list[int]) -> list[list[Any]]:
    """Split a list into pieces of the given lengths."""
    if isinstance(lens, int):
        if len(in_list) % lens:
            raise AssertionError(f"{len(in_list)} items cannot be cut into pieces of {lens}")
        lens = [lens] * (len(in_list) // lens)
    if not isinstance(lens, list):
        raise TypeError('"indices" must be an integer or a list of integers')
    if sum(lens) != len(in_list):
        raise ValueError(f"sum of lens and list length does not match: {sum(lens)} != {len(in_list)}")
    ends = list(itertools.accumulate(lens))
    return [in_list[end - length : end] for end, length in zip(ends, lens, strict=True)]


def concat_list(in_list: list[list[Any]]) -> list[Any]:
    return list(itertools.chain(*in_list))


def to_ntuple(n: int) -> Callable[[Any], Any]:
    """Return a function that repeats a single value ``n`` times and returns an iterable unchanged."""

    def parse(x: Any) -> Any:
        return x if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    return parse


to_1tuple, to_2tuple, to_3tuple, to_4tuple = to_ntuple(1), to_ntuple(2), to_ntuple(3), to_ntuple(4)
_ntuple = to_ntuple


def check_prerequisites(
    prerequisites: str | Sequence[str],
    checker: Callable[[str], bool],
    msg_tmpl: str = 'Prerequisites "{}" are required in method "{}" but not found, please install them first.',
) -> Callable[[F], F]:
    """Return a decorator that raises an error if ``checker`` says that something is missing."""

    def wrap(func: F) -> F:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            required = [prerequisites] if isinstance(prerequisites, str) else prerequisites
            missing = [item for item in required if not checker(item)]
            if missing:
                message = msg_tmpl.format(", ".join(missing), func.__name__)
                print(message)
                raise RuntimeError(f"Prerequisites not meet. {message}")
            return func(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return wrap


def _has_package(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def requires_package(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    return check_prerequisites(prerequisites, checker=_has_package)


def requires_executable(prerequisites: str | Sequence[str]) -> Callable[[F], F]:
    return check_prerequisites(prerequisites, checker=lambda name: shutil.which(name) is not None)


def deprecated_api_warning(name_dict: Mapping[str, str], cls_name: str | None = None) -> Callable[[F], F]:
    """Return a decorator that renames deprecated keyword arguments, with a warning."""

    def wrap(old_func: F) -> F:
        @functools.wraps(old_func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            func_name = f"{cls_name}.{old_func.__name__}" if cls_name else old_func.__name__
            names = getfullargspec(old_func).args[: len(args)]
            for old, new in name_dict.items():
                if old in names or old in kwargs:
                    warnings.warn(
                        f'"{old}" is deprecated in `{func_name}`, please use "{new}" instead',
                        DeprecationWarning,
                        stacklevel=2,
                    )
                if old in kwargs:
                    if new in kwargs:
                        raise AssertionError(
                            f"The expected behavior is to replace the deprecated key `{old}` to new key `{new}`, but "
                            f"`{func_name}` got them both"
                        )
                    kwargs[new] = kwargs.pop(old)
            return old_func(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return wrap


def deprecated_function(since: str, removed_in: str, instructions: str) -> Callable[[F], F]:
    """Return a decorator that marks a function as deprecated: a warning at the call, a note in its docstring."""

    def decorator(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            from etude_openmm.shared.logging import log_warning

            log_warning(
                f"'{function.__module__}.{function.__name__}' is deprecated in version {since} and will be removed in "
                f"version {removed_in}. Please {instructions}."
            )
            return function(*args, **kwargs)

        indent = "    "
        note = f".. deprecated:: {since}\n{indent}Deprecated and will be removed in version {removed_in}."
        docs = function.__doc__ or ""
        text = textwrap.indent(inspect.cleandoc(docs), indent) + ("\n" if "\n\n" in docs else "")
        wrapper.__doc__ = f"{note}\n{indent}Please {instructions}.\n\n\n{text}"
        return wrapper  # type: ignore[return-value]

    return decorator


def is_method_overridden(method: str, base_class: type, derived_class: Any) -> bool:
    """Return whether ``derived_class`` (or the class of that object) overrides ``method``."""
    if not isinstance(base_class, type):
        raise AssertionError("base_class doesn't accept instance, Please pass class instead.")
    cls = derived_class if isinstance(derived_class, type) else type(derived_class)
    return bool(getattr(cls, method) != getattr(base_class, method))


def has_method(obj: object, method: str) -> bool:
    return callable(getattr(obj, method, None))


def apply_to(data: Any, expr: Callable[[Any], bool], apply_func: Callable[[Any], Any]) -> Any:
    """Apply ``apply_func`` to every leaf of nested dicts, lists and tuples for which ``expr`` is true."""
    if isinstance(data, dict):
        result = type(data)()
        for key, value in data.items():
            result[key] = apply_to(value, expr, apply_func)
        return result
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(apply_to(item, expr, apply_func) for item in data))
    if isinstance(data, tuple | list):
        return type(data)(apply_to(item, expr, apply_func) for item in data)
    return apply_func(data) if expr(data) else data
