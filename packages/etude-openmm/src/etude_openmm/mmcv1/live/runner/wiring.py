"""Parts that the training functions of MMClassification and MMTracking share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from etude_openmm.shared.errors import ConfigKeyError

_MISSING: Any = object()


@dataclass
class Wired:
    """A runner with its hooks, and the arguments for its ``run``."""

    runner: Any
    loaders: list[Any]
    workflow: Any
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> Callable[[], None]:
        return partial(self.runner.run, self.loaders, self.workflow, **self.args)


class Held(BaseException):
    """Ends a script at the call of ``run``: what it does after training would draw random numbers before it."""


#: The runs that are held back while :func:`held_back` is open, and whether the first one ends the script.
_held: list[tuple[list[Wired], bool]] = []


@contextmanager
def held_back(*, unwind: bool = False) -> Iterator[list[Wired]]:
    """Let runners made inside this context only record the arguments of ``run``, without running.

    With ``unwind``, they raise :class:`Held` then.
    """
    runs: list[Wired] = []
    entry = (runs, unwind)
    _held.append(entry)
    try:
        yield runs
    finally:
        _held[:] = [one for one in _held if one is not entry]


def hold_back(runner: Any) -> None:
    """Replace ``run`` of a new runner for one call, inside :func:`held_back`."""
    if not _held:
        return
    runs, unwind = _held[-1]

    def note(data_loaders: list[Any], workflow: Any, length: int | None = None, **kwargs: Any) -> None:
        del runner.__dict__["run"]
        key = "max_iters" if runner.unit == "iters" else "max_epochs"
        runs.append(Wired(runner, data_loaders, workflow, {**kwargs, **({key: length} if length is not None else {})}))
        if unwind:
            raise Held

    runner.__dict__["run"] = note


def begin(wired: Wired, cfg: Any) -> None:
    """Resume from ``resume_from`` (or, with ``auto_resume``, from the newest checkpoint), or load ``load_from``."""
    if cfg.get("resume_from"):
        wired.runner.resume(cfg["resume_from"])
    elif cfg.get("auto_resume"):
        wired.runner.auto_resume()
    elif cfg.get("load_from"):
        wired.runner.load_checkpoint(cfg["load_from"])


def present(cfg: Any, key: str, instead: str = "") -> Any:
    """Return the value of a required key, which may be None."""
    value = cfg.get(key, _MISSING)
    if value is _MISSING:
        other = f" (or `{instead}`)" if instead else ""
        raise ConfigKeyError(f"the config has no `{key}`{other}", hint=f"write {key} = None where nothing is wanted")
    return value


def validation_of(cfg: Any) -> Any:
    """Return the config of the validation data. Raises an error if there is none."""
    if cfg["data"].get("val") is None:
        raise ConfigKeyError("there is no data.val to evaluate on", hint="give it, or train with --no-validate")
    return cfg["data"]["val"]
