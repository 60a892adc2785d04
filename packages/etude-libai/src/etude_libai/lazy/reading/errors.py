"""Reports errors while a config is read, with file and line.

Exceptions stay those of the originals, since scripts catch them. The message that the command line prints instead is
attached to them as ``etude_reported``.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Iterable
from glob import glob

from etude.config.files import display
from etude.errors import ConfigError, EtudeError, UserError
from etude.errors.advice import frames_of, is_library, missing_hint
from etude.errors.spelling import is_slip, nearest
from etude_libai.names import MODULES

_ENVIRON = type(os.environ).__getitem__.__code__.co_filename
_NO_NAME = r"cannot import name '(\w+)'"


def as_config_error(error: Exception) -> EtudeError:
    """Return the error to report in place of ``error``."""
    known = getattr(error, "etude_reported", None)
    return known if known is not None else error if isinstance(error, EtudeError) else ConfigError(says(error))


def explain_reading_error(error: Exception, path: str) -> None:
    """Attach the place to an exception that was raised while ``path`` was read: the innermost line of user code."""
    if hasattr(error, "etude_reported") or isinstance(error, ConfigError):
        return
    if isinstance(error, FileNotFoundError) and error.filename == path:
        beside = [os.path.basename(file) for file in glob(os.path.join(os.path.dirname(path), "*.*"))]
        hint = near(os.path.basename(path), [file for file in beside if file.endswith((".py", ".yaml", ".yml"))])
        put_on(error, ConfigError("there is no such config", at=path, hint=hint))
        return
    if not path:
        put_on(error, ConfigError("no config is named", hint="name one with --config-file, before any key=value"))
        return
    at, came_by = _places(error, path)
    hint = "; ".join(filter(None, (hint_of(error), came_by)))
    put_on(error, ConfigError(says(error).removesuffix(".") if hint else says(error), at=at, hint=hint))


def put_on(error: Exception, instead: EtudeError) -> None:
    """Let the command line report ``instead`` in place of ``error``."""
    instead.__cause__ = error
    error.etude_reported = instead  # type: ignore[attr-defined]


def hinted(error: Exception, hint: str) -> Exception:
    """Attach a hint to ``error`` and return it."""
    error.etude_hint = hint  # type: ignore[attr-defined]
    return error


def near(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean …?`` for a misspelt name; empty if nothing is similar."""
    found = nearest(name, sorted(set(known)))
    return f"did you mean {found!r}?" if found else ""


def is_users(filename: str) -> bool:
    """Return whether a file is user code, not Étude's, Python's or an installed package's."""
    return not is_library(filename)


def raised_by_users(error: Exception) -> bool:
    """Return whether user code raised ``error``, or called what raised it."""
    return any(is_users(frame.f_code.co_filename) for frame, _ in frames_of(error))


def says(error: Exception) -> str:
    """Return the exception as one line."""
    syntax = _syntax(error)
    if syntax is not None:
        line = (syntax.text or "").strip()
        return f"SyntaxError: {syntax.msg}" + (f" ({line})" if line else "")
    if getattr(error, "problem_mark", None) is not None:  # YAML's
        return ": ".join(filter(None, (getattr(error, "context", ""), getattr(error, "problem", ""))))
    if is_unset_variable(error):
        return f"the environment variable {error.args[0]} is not set"
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    line = (str(message).strip().splitlines() or [""])[0]
    if isinstance(error, UserError):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def is_unset_variable(error: Exception) -> bool:
    """Return whether ``os.environ`` was asked for a variable that is not set."""
    files = [frame.f_code.co_filename for frame, _ in frames_of(error)]
    return isinstance(error, KeyError) and bool(files) and files[-1] == _ENVIRON


def _places(error: Exception, path: str) -> tuple[str, str]:
    """Return the place of the error and, if it is in another file, the line of ``path`` that led there."""
    places = [(frame.f_code.co_filename, line) for frame, line in frames_of(error)]
    steps = [f"{display(file)}:{line}" for file, line in places if is_users(file)]
    syntax, mark = _syntax(error), getattr(error, "problem_mark", None)
    if syntax is not None:
        steps.append(f"{display(syntax.filename or path)}:{syntax.lineno}")
    elif mark is not None:
        steps.append(f"{display(path)}:{mark.line + 1}")
    at = steps[-1] if steps else display(path)
    own = [step for step in steps if step.startswith(f"{display(path)}:")]
    other = own and not at.startswith(f"{display(path)}:")
    return at, f"read for {own[-1]}" if other else ""


def _syntax(error: BaseException) -> SyntaxError | None:
    """Return the syntax error that has a line: the error itself or its cause."""
    inner = error.__cause__ if isinstance(error.__cause__, SyntaxError) else error
    return inner if isinstance(inner, SyntaxError) and inner.lineno else None


# -- hints -------------------------------------------------------------------------------------------------------------


def hint_of(error: Exception) -> str:
    """Return a hint for an exception; empty if there is none."""
    own: str | None = getattr(error, "etude_hint", None)
    if own is not None:
        return own
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _module_hint(error.name) or missing_hint(error)
    if is_unset_variable(error):
        return f"set it: {error.args[0]}=… etude …"
    if isinstance(error, ImportError) and (lacking := re.search(_NO_NAME, str(error))) and error.name in sys.modules:
        return near(lacking[1], dir(sys.modules[error.name]))
    if isinstance(error, AttributeError) and error.name and "id you mean" not in str(error):
        return near(error.name, (name for name in dir(error.obj) if not name.startswith("_")))
    if isinstance(error, TypeError) and "LazyCall.__call__() takes 1 positional" in str(error):
        return "a lazy call takes its arguments by name: LazyCall(Model)(hidden=8)"
    return ""


def _module_hint(name: str) -> str:
    """Return a hint with a module of a similar name in the same package."""
    parent, _, last = name.rpartition(".")
    from difflib import get_close_matches

    names = modules_in(parent)
    return near(last, [name for name in names if is_slip(last, name) or get_close_matches(last, [name], cutoff=0.8)])


def modules_in(package: str) -> list[str]:
    """Return the modules of a package, or all top-level modules: those on disk and those that Étude provides."""
    served = [name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package]
    folders = [os.path.join(folder, *package.split(".")) for folder in sys.path] if package else None
    return [*served, *(module.name for module in pkgutil.iter_modules(folders))]
