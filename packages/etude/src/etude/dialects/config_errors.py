"""Reports exceptions that wrong values of other systems' configs cause as errors of the config.

Parts of another system are built as that system does it, many of them only when training begins, and refuse wrong
values with assertions and plain exceptions. Before the first step, with no user-defined code involved, such an
exception is about the config, and is reported with the place of the part that was being built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etude.config.files import display
from etude.config.tree import Path, Tree
from etude.errors import ConfigError, EtudeError, ResumeError, printable
from etude.errors.advice import frames_of, is_library, release_hint, said_in_worker
from etude.fast_dataclass import replace
from etude.plan import Place, Plan

if TYPE_CHECKING:
    from etude.core.hook import Site

#: Exceptions that parts of other systems raise for wrong values.
REFUSALS = (TypeError, ValueError, AssertionError, KeyError, AttributeError, RuntimeError, ZeroDivisionError, OSError)


def as_mistake(error: BaseException, plan: Plan | None) -> EtudeError | None:
    """Return the error to report, or None if the exception is not about a config."""
    known: EtudeError | None = getattr(error, "etude_reported", None)
    if known is not None or plan is None:
        return known
    if isinstance(error, ConfigError) and not any(finding.at for finding in error.findings):
        return _with_place(error, plan)
    if isinstance(error, EtudeError) or not _is_refusal(error):
        return None
    message = _message_of(error)
    if isinstance(error, FileNotFoundError) and re.search(r"\.(pth|pt|ckpt|bin|safetensors)\b|checkpoint", message):
        return ResumeError(message)
    at = place_of(error, plan) or (display(plan.files[0]) if plan.files else "")
    return ConfigError(_refusal_message(error, message), at=at)


def _with_place(error: ConfigError, plan: Plan) -> ConfigError | None:
    at = place_of(error, plan)
    return ConfigError([replace(finding, at=at) for finding in error.findings]) if at else None


def _is_refusal(error: BaseException) -> bool:
    """Return whether a part of another system refused a value, with no user-defined code involved."""
    files = [frame.f_code.co_filename for frame, _ in frames_of(error)]
    return isinstance(error, REFUSALS) and all(map(is_library, files))


def _message_of(error: BaseException) -> str:
    said = error.args[0] if isinstance(error, KeyError) and error.args else error
    return said_in_worker(error) or printable(str(said)) or type(error).__name__


def _refusal_message(error: BaseException, message: str) -> str:
    """Name what could not be built, unless an installed package of the wrong release is the cause."""
    hint = release_hint(message)
    made = [] if hint else _being_made(error)
    return f"{_type_name(made[0])} cannot be made: {message}" if made else f"{type(error).__name__}: {message}{hint}"


@contextmanager
def making(given: Mapping[str, Any]) -> Iterator[None]:
    """Attach ``given``, an entry of a config with its type, to exceptions raised while it is built.

    Registries open it around every part that they make, so that an exception knows what it belongs to: the innermost
    part comes first.
    """
    try:
        yield
    except Exception as error:
        error.etude_made = [*_being_made(error), given]  # type: ignore[attr-defined]
        raise


def note_actor(error: BaseException, actor: object) -> None:
    """Attach ``actor``, a hook that was built earlier, to ``error``, which it raised."""
    error.etude_actors = [*getattr(error, "etude_actors", ()), type(actor).__name__]  # type: ignore[attr-defined]


def _at_work(error: BaseException) -> list[Mapping[str, Any]]:
    """Return the hooks that raised ``error``, as entries of a config."""
    site: Site | None = getattr(error, "etude_site", None)
    names = [*getattr(error, "etude_actors", ()), *([site.hook] if site is not None else [])]
    return [{"type": name} for name in names]


def _being_made(error: BaseException) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = getattr(error, "etude_made", [])
    return found


def _type_name(given: Mapping[str, Any]) -> str:
    kind = given.get("type")
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def place_of(error: BaseException, plan: Plan) -> str:
    """Return the place in the config of the part that was being built, or of the hook that raised; else empty."""
    made, values = _being_made(error), Tree(dict(plan.source)).walk()
    entries = [(path, value) for path, value in values if isinstance(value, Mapping) and value.get("type") is not None]
    if not plan.places or not entries:
        return next(filter(None, (_line_of(_type_name(given), plan) for given in made)), "")
    for given in [*made, *_at_work(error)]:
        alike = [(path, known) for path, known in entries if _is_kind(_type_name(known), _type_name(given))]
        for path, known in sorted(alike, key=lambda one: not _same_plain_values(one[1], given)):
            place = _last_change(path, known, plan, str(error))
            if place is not None:
                return str(place)
    return ""


def _is_kind(written: str, made: str) -> bool:
    return written.rpartition(".")[2] == made.rpartition(".")[2]


def _same_plain_values(known: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether ``given`` is built from that entry, judged by plain values."""
    plain = {key: value for key, value in known.items() if isinstance(value, str | int | float)}
    return all(key in given and given[key] == value for key, value in plain.items() if key != "type")


def _last_change(path: Path, known: Mapping[str, Any], plan: Plan, message: str) -> Place | None:
    """Return where an entry was changed last.

    Keys that the message names are preferred. An override comes before the config, the config before its bases.
    """
    order = {display(file): number for number, file in enumerate(plan.files)}
    keys = ["type", *(key for key in known if key != "type")]
    written = [(key, plan.places[*path, key]) for key in keys if (*path, key) in plan.places]
    named = [one for one in written if one[0] != "type" and re.search(rf"\b{re.escape(str(one[0]))}\b", message)]
    return min((place for _, place in named or written), key=lambda place: order.get(place.file, -1), default=None)


def _line_of(made: str, plan: Plan) -> str:
    """Return the first line of the config's files that has ``made`` as a type; else empty."""
    wanted = re.compile(rf"type\s*[=:]\s*[\"']?[\w.]*\b{re.escape(made)}\b")
    for file in plan.files:
        try:
            with open(file, encoding="utf-8") as stream:
                number = next((n for n, line in enumerate(stream, 1) if wanted.search(line)), None)
        except (OSError, UnicodeDecodeError):
            continue
        if number is not None:
            return f"{display(file)}:{number}"
    return ""
