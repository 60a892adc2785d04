"""Recognises configs and imports of guests that are not installed, to name the command that installs them.

This table is all that the engine knows of other systems. What a guest that is installed recognises, it says itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from etude.config.files import display
from etude.errors import ConfigError, UserError


class Guest(NamedTuple):
    """A package of the family, and what its configs and scripts look like."""

    extra: str
    title: str
    #: The names of its dialects, as in ``--dialect``.
    dialects: tuple[str, ...]
    #: A pattern that configs of its dialects match, and hardly any others.
    configs: str
    #: The packages whose import names it answers.
    imports: tuple[str, ...]


GUESTS = (
    Guest(
        "openmm",
        "mmcv 1.x or MMEngine",
        ("mmcv1", "mmengine"),
        r"(?m)^(?:optimizer_config|lr_config|checkpoint_config|log_config|total_epochs|train_cfg|train_dataloader"
        r"|default_hooks|optim_wrapper|param_scheduler|default_scope|_base_)\s*=|\bread_base\(\)|samples_per_gpu",
        ("mmcv", "mmengine", "mmcls", "mmdet", "mmtrack", "mmpretrain", "mmselfsup"),
    ),
    Guest(
        "libai",
        "LiBai or detectron2",
        ("libai",),
        r"(?m)^\s*(?:from|import)\s+(?:libai|detectron2)\b|\bLazyCall\b|^(?:MODEL|SOLVER|DATALOADER)\s*:",
        ("libai", "detectron2", "oneflow", "flowvision"),
    ),
    Guest("mcquic", "McQuic", ("mcquic",), r"(?ms)^model:\s*\n(?:\s+.*\n)*?\s+key\s*:", ("mcquic", "vlutils")),
)


def install_hint(extra: str) -> str:
    """Return the command that installs a guest."""
    return f"pip install 'etude[{extra}]'"


def missing(dialect: str) -> UserError | None:
    """Return the error for a dialect of a guest that is not installed; None for a name that no guest has."""
    for guest in GUESTS:
        if dialect in guest.dialects:
            return UserError(f"the dialect {dialect!r} is in a separate package: {install_hint(guest.extra)}")
    return None


def refuse_missing(path: str, text: str, installed: set[str]) -> None:
    """Raise if a file looks like a config of a guest that is not installed."""
    for guest in GUESTS:
        if not installed & set(guest.dialects) and re.search(guest.configs, text):
            message = f"this looks like a config of {guest.title}, which is not installed"
            raise ConfigError(message, at=display(path), hint=install_hint(guest.extra))


def extra_for(package: str) -> str:
    """Return the extra that answers to an import name; empty if none does."""
    return next((guest.extra for guest in GUESTS if package in guest.imports), "")
