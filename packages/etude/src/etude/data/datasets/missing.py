"""Says which file or folder of a dataset is not there, or why it cannot be read."""

from __future__ import annotations

from etude.errors import ConfigError
from etude.inspection.paths import near_path


def not_there(who: str, path: str, what: str = "file") -> ConfigError:
    """Return the error for a path that leads nowhere, with the path that was probably meant."""
    return ConfigError(f"{who}: there is no {what} {path}", hint=near_path(path))


def cannot_be_read(who: str, path: str, error: Exception) -> ConfigError:
    """Return the error for a file that could not be opened or understood."""
    if isinstance(error, FileNotFoundError):
        return not_there(who, path)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ConfigError(f"{who}: {path} cannot be read: {reason}")
