"""The errors of lazy configs, under the class names that their users catch (Hydra's)."""

from __future__ import annotations

from etude.errors import UserError


class HydraException(UserError):
    """The root of what an override or an instantiation raises."""


class CompactHydraException(HydraException):
    """One whose message says enough without a traceback."""


class OverrideParseException(CompactHydraException):
    """A command-line override that the grammar does not know."""

    def __init__(self, override: str, message: str) -> None:
        self.override, self.message = override, message
        super().__init__(message)


class InstantiationException(CompactHydraException):
    """A target that cannot be found or called, or that raised; the original exception is the ``__cause__``."""
