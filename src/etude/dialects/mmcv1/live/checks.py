"""Checks of arguments: the exception that users of mmcv know, which is also a finding of Étude."""

from __future__ import annotations

from etude.dialects.openmm.errors import ConfigAssertionError, ConfigKeyError, ConfigTypeError, ConfigValueError

__all__ = ["ConfigAssertionError", "ConfigKeyError", "ConfigTypeError", "ConfigValueError", "require"]


def require(ok: bool, message: str) -> None:
    """Raise an ``AssertionError``, as mmcv does for these arguments, also under ``python -O``."""
    if not ok:
        raise ConfigAssertionError(message)
