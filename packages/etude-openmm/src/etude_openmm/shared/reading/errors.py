"""Reports errors that the code of a config raises with the line of the config, instead of a traceback."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from etude.config.files import display
from etude.errors import ConfigError, EtudeError, printable
from etude.errors.advice import frames_of
from etude.errors.spelling import is_slip, nearest
from etude.fast_dataclass import record, replace
from etude_openmm.shared.reading.imported import broken_imports
from etude_openmm.shared.reading.keys import keys_in, texts_of

if TYPE_CHECKING:
    from yaml import MarkedYAMLError


@contextmanager
def reported_by_line(path: str, *, base: str = "{{{{_base_.{}}}}}") -> Iterator[None]:
    """Turn what the code of ``path`` or of its bases raises into a :class:`~etude.errors.ConfigError` with a place.

    A name that is missing because its import is misspelt is reported at the import. What a user-defined module raises
    while the config imports it is not the config's mistake and is raised as it is. ``base`` is how the dialect writes a
    value of the base.
    """
    try:
        yield
    except ConfigError as error:
        line = _line_of(error)
        error.findings = tuple(
            replace(finding, at=_at(line.file, line.number) if line else _short(finding.at))
            for finding in error.findings
        )
        raise
    except EtudeError:
        raise
    except SyntaxError as error:
        cause = error.__cause__ if isinstance(error.__cause__, SyntaxError) else error
        raise ConfigError(f"not valid Python: {cause.msg}", at=_at(cause.filename or path, cause.lineno)) from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"not valid JSON: {error.msg}", at=_at(path, error.lineno)) from None
    except _marked_yaml_error() as error:
        number = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"not valid YAML: {error.problem}", at=_at(path, number)) from None
    except Exception as error:
        line = _line_of(error)
        if line is None:
            raise
        raise _raised(error, line, base) from error


def _marked_yaml_error() -> type[MarkedYAMLError]:
    """Return the error of YAML; most configs are Python, and yaml takes a while to import."""
    import yaml

    return yaml.MarkedYAMLError


@record
class _Line:
    """A line of a config that was being run, and the names that it could use."""

    file: str
    number: int
    names: tuple[str, ...]


def _raised(error: Exception, line: _Line, base: str) -> ConfigError:
    at = _at(line.file, line.number)
    if not isinstance(error, NameError):
        return ConfigError(f"the config raised {type(error).__name__}: {printable(str(error))}", at=at)
    with open(line.file, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    wrong = broken_imports({line.file: text})
    near = nearest(error.name or "", line.names)
    inherited = _of_base(error.name or "", line.file, text)
    hint = f"did you mean {near!r}?" if near else ""
    if inherited and (inherited == error.name or not near):
        hint = f"`{base.format(inherited)}` is that of the base"
    return ConfigError(wrong or str(error), at=at, hint=hint)


def _of_base(name: str, file: str, text: str) -> str:
    """Return the key of a base that a config uses like a variable of its own."""
    if re.search(r"^_base_\s*=", text, re.MULTILINE) is None:
        return ""
    keys = keys_in(texts_of(file, text)[1:])
    return name if name in keys else next((key for key in sorted(keys) if is_slip(name, key)), "")


def _line_of(error: Exception) -> _Line | None:
    """Return the line of the config that raised; None where a module raised that the config only imported."""
    found = None
    for frame, number in frames_of(error):
        if frame.f_globals.get("__name__") == "__config__":
            names = tuple(name for name in frame.f_globals if not name.startswith("_"))
            found = _Line(frame.f_code.co_filename, number, names)
        elif found is not None and frame.f_code.co_name == "<module>":
            return None
    return found


def _short(at: str) -> str:
    file, _, line = at.rpartition(":")
    return _at(file, int(line)) if line.isdigit() and os.path.isabs(file) else at


def _at(file: str, line: int | None) -> str:
    return f"{display(file)}:{line or 1}"
